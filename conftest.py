"""One thread a process, since the suite runs several; and what pytest must not import to look for examples."""

import os
import signal
from importlib.util import find_spec

# before torch and numba are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# a suite that was started in the background has been told to ignore Ctrl-C, which some tests press
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# the CUDA kernels cannot be imported where Triton is not installed
collect_ignore_glob = [] if find_spec("triton") else ["src/phvae/kernels/gpu*.py"]
