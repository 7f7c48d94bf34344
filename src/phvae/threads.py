"""One thread of torch where several would only wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["one_thread"]


@contextmanager
def one_thread(*, wanted: bool = True) -> Iterator[None]:
    """Sums of one thread, the same in the same order however many cores there are; as before at the end.

    Small products are no quicker on several threads, and on a busy machine much slower.
    """
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
