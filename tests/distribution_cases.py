"""One law or batch of laws per line: every contract test runs on all of them, so a new family is one more line here."""

import torch

from phvae.distributions import PhaseType, SeriesPhaseType

CYCLE = ([0.4, 0.0, 0.6], [[-5.2, 3.0, 2.2], [1.2, -2.5, 0.5], [4.0, 2.3, -7.55]])


def _near_erlang():
    """Ten rates that differ in the ninth digit, entered at every phase."""
    return SeriesPhaseType(
        torch.full((10,), 0.1, dtype=torch.float64), 1 + 1e-9 * torch.arange(10, dtype=torch.float64)
    )


def _stiff():
    return SeriesPhaseType([1e-6, 0.1, 0.2, 0.3, 0.4 - 1e-6], [1e-3, 1.0, 10.0, 1e3, 1e5])


def _grid():
    """A two by three batch from parameters that broadcast."""
    initial = torch.tensor([[[0.2, 0.3, 0.5]], [[0.0, 1.0, 0.0]]], dtype=torch.float64)
    rates = torch.tensor([[1.0, 1.0, 1.0], [0.01, 2.0, 7.0], [3.0, 3.0, 90.0]], dtype=torch.float64)
    return SeriesPhaseType(initial, rates)


def _two_cycles():
    generator = torch.tensor([CYCLE[1], [[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.9, 0.0, -1.0]]], dtype=torch.float64)
    return PhaseType(torch.tensor(CYCLE[0], dtype=torch.float64), generator)


CASES = {
    "exponential": lambda: SeriesPhaseType([1.0], [2.5]),
    "three phases in a row": lambda: SeriesPhaseType([0.3, 0.2, 0.5], [0.5, 2.0, 2.0]),
    "nearly equal rates": _near_erlang,
    "stiff series": _stiff,
    "grid of series": _grid,
    "cycle": lambda: PhaseType(*CYCLE),
    "two cycles": _two_cycles,
    "acyclic in parallel": lambda: PhaseType([0.25, 0.75], [[-1.0, 0.0], [0.0, -30.0]]),
    "sum, then smaller of two": lambda: (PhaseType(*CYCLE) + SeriesPhaseType([1.0], [0.1])).minimum(
        SeriesPhaseType([0.5, 0.5], [1e-3, 50.0])
    ),
}
