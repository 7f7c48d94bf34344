"""What pytest must not import to look for examples: the CUDA kernel, where Triton is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/phvae/kernels/gpu.py"]
