"""Counting the pairs that two orders disagree on, by merging: n log n steps, compiled."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def inversions(values: NDArray[np.int64]) -> int:
    """Pairs ``i < j`` with ``values[i] > values[j]``; sorts ``values`` on the way."""
    n = len(values)
    # short runs by insertion first: merging them costs more
    count = 0
    for low in range(0, n, 16):
        for i in range(low + 1, min(low + 16, n)):
            value = values[i]
            j = i
            while j > low and values[j - 1] > value:
                values[j] = values[j - 1]
                j -= 1
            values[j] = value
            count += i - j
    source, target = values, np.empty_like(values)
    width = 16
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or source[i] <= source[j]):
                    target[k] = source[i]
                    i += 1
                else:
                    target[k] = source[j]
                    j += 1
                    count += middle - i
        source, target = target, source
        width *= 2
    return count
