"""One thread a process, since the suite runs several; and what pytest must not import to look for examples."""

import os
from importlib.util import find_spec

# before torch and numba are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# the CUDA kernels cannot be imported where Triton is not installed
collect_ignore_glob = [] if find_spec("triton") else ["src/phvae/kernels/gpu*.py"]
