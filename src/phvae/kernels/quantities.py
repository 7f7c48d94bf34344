"""Small integers shared by all backends: which function is asked for, and what is known of a row."""

from typing import NamedTuple

from torch import Tensor

DENSITY, SURVIVAL, CDF = 0, 1, 2

# TRUSTED: the contour answers; DOUBTFUL: squaring does; BOUNDARY: x is 0 or infinite; INVALID: the answer is NaN.
TRUSTED, DOUBTFUL, BOUNDARY, INVALID = 0, 1, 2, 3


class Evaluation(NamedTuple):
    """Log of a quantity for a flat batch of rows, with its partial derivatives where they were asked for.

    ``regular`` says that no row is a limit or invalid, so that every number is finite.
    """

    value: Tensor
    d_x: Tensor
    d_initial: Tensor
    d_rates: Tensor
    status: Tensor
    regular: bool
