"""The mean log-likelihood of one series chain in unconstrained coordinates, and its maximiser.

Coordinates of m phases: m logits (start probabilities are their softmax), then the logarithms of the increments
r_1, r_2 - r_1, ..., r_m - r_{m-1}. Good laws often sit on the edge of the parameter space: start probabilities that
vanish, rates that merge. In these coordinates an edge is at minus infinity, where the gradient fades whether or not
the edge is right. So a small gradient is not enough: `release` also asks for the derivative in the natural
parameters, which stays honest at the edge.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from phvae.distributions.canonical import insert_rate
from phvae.kernels import series

__all__ = ["Objective", "coordinates", "inserted", "natural", "polish", "release", "rise"]

Array = npt.NDArray[np.float64]


def mean_log_likelihood(x: Tensor, weights: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """Σ w_i log f(x_i) for weights that sum to one: the only place where the fit meets the kernel."""
    return (weights * series.log_density(x, initial, rates)).sum()


def natural(point: Array) -> tuple[Array, Array]:
    """Start probabilities and ascending rates at a point.

    >>> natural(np.log([1.0, 3.0, 0.5, 1.5]))
    (array([0.25, 0.75]), array([0.5, 2. ]))
    """
    m = len(point) // 2
    unscaled = np.exp(point[:m] - point[:m].max())
    return unscaled / unscaled.sum(), np.cumsum(np.exp(point[m:]))


def coordinates(initial: Array, rates: Array) -> Array:
    """The point with these positive start probabilities and strictly ascending rates."""
    return np.concatenate([np.log(initial), np.log(np.diff(rates, prepend=0.0))])


def inserted(point: Array, rate: float) -> Array:
    """The same law with one more phase; increments that do not touch the new rate keep every digit."""
    initial, rates = natural(point)
    m = len(rates)
    wider, _ = insert_rate(torch.as_tensor(initial), torch.as_tensor(rates), rate)
    at = int(np.searchsorted(rates, rate))
    around = [rate - rates[at - 1]] + ([rates[at] - rate] if at < m else [])
    increments = point[m:]
    return np.concatenate([np.log(wider.numpy()), increments[:at], np.log(around), increments[at + 1 :]])


class Objective:
    """Mean log-likelihood of weighted data with its gradients; counts its evaluations."""

    def __init__(self, x: Array, weights: Array) -> None:
        self.x = torch.as_tensor(x, dtype=torch.float64)
        self.weights = torch.as_tensor(weights / weights.sum(), dtype=torch.float64)
        self.evaluations = 0

    def gradients(self, point: Array) -> tuple[float, Array, Array]:
        """Value, and the derivatives in start probabilities and in rates."""
        self.evaluations += 1
        parameters = [torch.as_tensor(p).requires_grad_() for p in natural(point)]
        value = mean_log_likelihood(self.x, self.weights, *parameters)
        by_initial, by_rates = torch.autograd.grad(value, parameters)
        return float(value.detach()), by_initial.numpy(), by_rates.numpy()

    def __call__(self, point: Array) -> tuple[float, Array]:
        """Value and gradient in the coordinates."""
        m = len(point) // 2
        initial, _ = natural(point)
        value, by_initial, by_rates = self.gradients(point)
        by_logit = initial * (by_initial - initial @ by_initial)
        return value, np.concatenate([by_logit, np.exp(point[m:]) * _sum_from(by_rates)])

    def hessian(self, point: Array) -> Array:
        """Second derivatives in the coordinates, by central differences of the gradient."""
        step = np.finfo(np.float64).eps ** (1 / 3)
        rows = []
        for shift in step * np.eye(len(point)):
            rows.append((self(point + shift)[1] - self(point - shift)[1]) / (2 * step))
        return np.asarray((np.array(rows) + np.array(rows).T) / 2)

    def slack(self, point: Array) -> Array:
        """Gain per unit of each start probability (mass taken from all phases) and per relative gap of each rate.

        At an optimum every entry is <= 0. The likelihood is concave in the start probabilities, so the largest of
        the first m entries bounds what any other start probabilities could add to the mean log-likelihood.
        """
        _, rates = natural(point)
        _, by_initial, by_rates = self.gradients(point)
        return np.concatenate([by_initial - 1, rates * _sum_from(by_rates)])


def rise(objective: Objective, start: Array, *, tolerance: float, max_iterations: int) -> tuple[Array, float, int]:
    """L-BFGS ascent: the point reached, its value and the iterations used.

    Coordinates are searched where double precision can tell laws apart: a weight 1e-17 of the largest is zero, and
    so is a rate increment far below 1/max(x); a rate far above 1/min(x) is instantaneous.
    """
    m = len(start) // 2
    low, high = np.log(1e-3 / float(objective.x.max())), np.log(1e4 / float(objective.x.min()))
    box = [(start[:m].max() - 80, start[:m].max() + 40)] * m + [(low, high)] + [(low - 40, high)] * (m - 1)
    box = [(min(lo, s), max(hi, s)) for (lo, hi), s in zip(box, start, strict=True)]
    found: Any = minimize(
        lambda point: _negated(*objective(point)),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        options={
            "maxiter": max_iterations,
            "maxfun": 2 * max_iterations,
            "maxcor": 30,
            "ftol": 1e-13,
            "gtol": tolerance,
        },
    )
    return np.asarray(found.x), -float(found.fun), int(found.nit)


def release(objective: Objective, point: Array, *, tolerance: float) -> tuple[Array, float]:
    """Push coordinates that faded at an edge back inside wherever that raises the likelihood: point and gain."""
    before, _ = objective(point)
    value = before
    slack = objective.slack(point)
    for i in np.argsort(-slack):
        if slack[i] <= tolerance:
            break
        closed = point
        for share in 10.0 ** np.arange(-8, 0):
            trial = _opened(closed, i, share)
            higher, _ = objective(trial)
            if higher > value:
                point, value = trial, higher
    return point, value - before


def _opened(point: Array, i: int, share: float) -> Array:
    """The point with this share of all mass added to start probability i, or of the rate to the increment below it."""
    m = len(point) // 2
    whole = np.logaddexp.reduce(point[:m] if i < m else point[m : i + 1])
    opened = point.copy()
    opened[i] = np.logaddexp(point[i], whole + math.log(share))
    return opened


def polish(objective: Objective, point: Array, *, tolerance: float, max_iterations: int) -> tuple[Array, float, int]:
    """Trust-region Newton ascent from a point near the optimum: the point, its gradient norm, the iterations used."""
    known: dict[bytes, tuple[float, Array]] = {}

    def once(at: Array) -> tuple[float, Array]:
        if at.tobytes() not in known:
            known.clear()
            known[at.tobytes()] = _negated(*objective(at))
        return known[at.tobytes()]

    before, _ = objective(point)
    found: Any = minimize(
        lambda at: once(at)[0],
        point,
        jac=lambda at: once(at)[1],
        hess=lambda at: -objective.hessian(at),
        method="trust-exact",
        options={"gtol": tolerance, "maxiter": max_iterations, "max_trust_radius": 5.0},
    )
    reached = np.asarray(found.x) if -found.fun >= before else point
    return reached, float(np.linalg.norm(objective(reached)[1])), int(found.nit)


def _sum_from(values: Array) -> Array:
    """Σ_{j >= k} values_j for every k."""
    return np.asarray(np.cumsum(values[::-1])[::-1])


def _negated(value: float, gradient: Array) -> tuple[float, Array]:
    # The optimisers descend, and read an impossible point as infinitely bad.
    return (-value if np.isfinite(value) else np.inf), -gradient
