"""One law or batch of laws per line: every contract test runs on all of them, so a new family is one more line here."""

import math

import torch

from phvae.distributions import MatrixLogNormal, MatrixPareto, MatrixWeibull, PhaseType, SeriesPhaseType, TwoSided

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

CHAIN = ([0.2, 0.3, 0.5], [2.5, 4.0, 90.0])


def _batch(family, *shapes):
    """A two by three batch from shapes, scales and chains that broadcast."""
    shape = torch.tensor(shapes, dtype=torch.float64)[:, None]
    scale = torch.tensor([1.0, 1.0, 50.0], dtype=torch.float64)
    return family(SeriesPhaseType([[0.2, 0.8]] * 3, [[3.0, 5.0], [8.0, 13.0], [4.0, 90.0]]), shape, scale)


# Laws on [0, inf) that are no absorption times: `test_tailed_contract` runs on all of them.
TAILED_CASES = {
    "matrix Weibull, stretched": lambda: MatrixWeibull(SeriesPhaseType(*CHAIN), 0.6, 3.0),
    "matrix Weibull, compressed": lambda: MatrixWeibull(SeriesPhaseType(*CHAIN), 2.5, 100.0),
    "matrix Weibull, cyclic chain": lambda: MatrixWeibull(PhaseType(*CYCLE), 1.0),
    "matrix Pareto, infinite variance": lambda: MatrixPareto(SeriesPhaseType(*CHAIN), 0.7, 2.0),
    "matrix Pareto, infinite mean": lambda: MatrixPareto(SeriesPhaseType(*CHAIN), 0.3),
    "matrix Pareto, thin": lambda: MatrixPareto(SeriesPhaseType(*CHAIN), 3.0, 10.0),
    "matrix lognormal": lambda: MatrixLogNormal(SeriesPhaseType(*CHAIN), 2.0, 3.0),
    "matrix lognormal, with a power": lambda: MatrixLogNormal(SeriesPhaseType(*CHAIN), 1.0),
    "matrix lognormal, nearly a power": lambda: MatrixLogNormal(SeriesPhaseType(*CHAIN), 1.2),
    "batch of matrix Weibull": lambda: _batch(MatrixWeibull, 0.6, 2.0),
    "batch of matrix Pareto": lambda: _batch(MatrixPareto, 0.6, 2.0),
    "batch of matrix lognormal": lambda: _batch(MatrixLogNormal, 1.4, 2.0),
}

# Laws on the whole line: `test_two_sided` holds what they promise.
LOSS_SHARE = 0.35
SIGNED_CASES = {
    "gains and losses": lambda: TwoSided(
        math.log(LOSS_SHARE / (1 - LOSS_SHARE)),
        loss=SeriesPhaseType([0.1, 0.3, 0.6], [0.2, 1.0, 5.0]),
        gain=SeriesPhaseType([0.5, 0.5], [0.5, 3.0]),
    ),
}


def assert_density_is_the_derivative(law, x):
    """The density at points is the slope of distribution and survival function there."""
    x = x.clone().requires_grad_()
    log_f = law.log_prob(x).detach()
    (by_cdf,) = torch.autograd.grad(law.log_cdf(x).sum(), x)
    (by_sf,) = torch.autograd.grad(law.log_sf(x).sum(), x)
    torch.testing.assert_close(by_cdf, (log_f - law.log_cdf(x).detach()).exp(), rtol=1e-7, atol=0)
    torch.testing.assert_close(by_sf, -(log_f - law.log_sf(x).detach()).exp(), rtol=1e-7, atol=0)
