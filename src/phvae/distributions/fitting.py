"""Maximum likelihood for one series phase-type law, without a latent variable."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from phvae.distributions import checks
from phvae.distributions.ascent import Array, Objective, coordinates, inserted, natural, polish, release, rise
from phvae.distributions.checks import Numbers
from phvae.distributions.phase_type import SeriesPhaseType

__all__ = ["SeriesFit", "fit_series"]

# Two neighbouring rates closer than this factor are one cluster: a phase inserted between them says nothing new.
DISTINCT_RATES = 1.05
ROUNDS, NEWTON_STEPS = 20, 10


@dataclass(frozen=True)
class SeriesFit:
    """A fitted law and what is known about the fit; likelihoods are in the units of the data.

    `gradient_norm` is that of the mean log-likelihood in the unconstrained coordinates. `optimality_gap` bounds what
    any other start probabilities (at these rates) could still add to the mean log-likelihood. `converged` says that
    the gradient norm is below the tolerance and that no vanished weight or merged rate gains by coming back.
    """

    law: SeriesPhaseType
    log_likelihood: float
    mean_log_likelihood: float
    gradient_norm: float
    optimality_gap: float
    converged: bool
    iterations: int
    evaluations: int
    n_phases: int
    n_observations: int
    total_weight: float

    @property
    def n_parameters(self) -> int:
        """Free parameters: m - 1 start probabilities and m rates."""
        return 2 * self.n_phases - 1

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 k - 2 log L; smaller is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion, k log n - 2 log L with n the total weight; smaller is better."""
        return self.n_parameters * math.log(self.total_weight) - 2 * self.log_likelihood

    def __str__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        weight = "" if self.total_weight == self.n_observations else f" of total weight {self.total_weight:.6g}"
        return (
            f"SeriesPhaseType fit: {self.n_phases} phases, {self.n_observations} observations{weight}, {state}\n"
            f"  log-likelihood   {self.log_likelihood:.4f} in total, {self.mean_log_likelihood:.6f} per observation\n"
            f"  AIC {self.aic:.2f}, BIC {self.bic:.2f} with {self.n_parameters} parameters\n"
            f"  gradient norm    {self.gradient_norm:.1e} (mean log-likelihood, unconstrained coordinates)\n"
            f"  optimality gap   {self.optimality_gap:.1e} (mean log-likelihood left in the start probabilities)\n"
            f"  work             {self.iterations} iterations, {self.evaluations} evaluations"
        )


def fit_series(
    x: Numbers,
    n_phases: int,
    weights: Numbers | None = None,
    *,
    starts: Literal["nested", "geometric"] | SeriesPhaseType = "nested",
    tolerance: float = 1e-6,
    max_iterations: int = 2000,
) -> SeriesFit:
    """Fit a series phase-type law by maximum likelihood.

    Maximises Σ_i w_i log f(x_i; initial, rates) over start probabilities and rates. The data are divided by their
    median first and the rates afterwards, which is exact; the likelihood reported is that of the data as given.

    Args:
        x: positive observations, any shape, read as one sample.
        n_phases: number of phases m.
        weights: non-negative weight per observation; a weight of 2 counts a row twice.
        starts: where the search begins. `"nested"`: fits 1, 2, ..., m phases in turn; each takes the best of rates
            spread geometrically over the data and of the previous law with one phase inserted into each gap between
            its rates, so that more phases never fit worse. It costs about m²/2 searches. `"geometric"`: one search
            only, for large data. A `SeriesPhaseType`: one search from that law, such as an earlier fit.
        tolerance: largest gradient norm of the mean log-likelihood that counts as converged.
        max_iterations: for each search.

    Returns:
        The fit; its law is `.law`.

    >>> fit = fit_series([0.2, 0.5, 0.7, 1.1, 2.5], 1)
    >>> fit.converged, round(float(fit.law.rates[0]), 6)                # one phase: the rate is 1 / mean
    (True, 1.0)
    """
    values, mass, rows = _checked(x, n_phases, weights)
    scale = _median(values, mass)
    objective = Objective(values / scale, mass)
    search = _Search(objective, tolerance / 10, max_iterations)
    if isinstance(starts, SeriesPhaseType):
        point = search.best([_from_law(starts, n_phases, scale)])
    elif starts == "geometric":
        point = search.best([_geometric(objective, n_phases)])
    elif starts == "nested":
        point = search.nested(n_phases)
    else:
        raise ValueError(f"starts is {starts!r}; give 'nested', 'geometric' or a SeriesPhaseType")

    value, gradient = objective(point)
    gradient_norm = float(np.linalg.norm(gradient))
    initial, rates = natural(point)
    total = float(mass.sum())
    mean = value - math.log(scale)
    return SeriesFit(
        law=SeriesPhaseType(torch.as_tensor(initial), torch.as_tensor(rates / scale)),
        log_likelihood=total * mean,
        mean_log_likelihood=mean,
        gradient_norm=gradient_norm,
        optimality_gap=float(objective.slack(point)[:n_phases].max()),
        converged=gradient_norm <= tolerance and search.last_gain <= tolerance,
        iterations=search.iterations,
        evaluations=objective.evaluations,
        n_phases=n_phases,
        n_observations=rows,
        total_weight=total,
    )


class _Search:
    """One maximisation: the searches it ran, the work they took and what the last release gained."""

    def __init__(self, objective: Objective, tolerance: float, max_iterations: int) -> None:
        self.objective = objective
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.iterations = 0
        self.last_gain = math.inf

    def nested(self, n_phases: int) -> Array:
        """The best law with n phases, each number of phases starting from the best law with one fewer."""
        point = self.best([_geometric(self.objective, 1)])
        for m in range(2, n_phases + 1):
            _, rates = natural(point)
            gaps = [math.sqrt(a * b) for a, b in pairwise(rates) if b > DISTINCT_RATES * a]
            wider = [inserted(point, rate) for rate in [*gaps, 2 * float(rates[-1])]]
            point = self.best([_geometric(self.objective, m), *wider])
        return point

    def best(self, candidates: list[Array]) -> Array:
        """Climb from every candidate, then finish from the highest."""
        reached = [self._rise(candidate) for candidate in candidates]
        return self._finish(max(reached, key=lambda pair: pair[1])[0])

    def _rise(self, start: Array) -> tuple[Array, float]:
        size = math.sqrt(len(start))
        point, value, used = rise(
            self.objective, start, tolerance=self.tolerance / size, max_iterations=self.max_iterations
        )
        self.iterations += used
        return point, value

    def _finish(self, point: Array) -> Array:
        """Polish, and reopen closed edges, until neither pays: a few Newton steps leave a saddle, a climb follows."""
        for _ in range(ROUNDS):
            point, settled = self._polished(point)
            freed, self.last_gain = release(self.objective, point, tolerance=self.tolerance)
            if settled and self.last_gain <= self.tolerance:
                break
            point, _ = self._rise(freed)
        return point

    def _polished(self, point: Array) -> tuple[Array, bool]:
        """The point after a few Newton steps, and whether its gradient is small enough."""
        if float(np.linalg.norm(self.objective(point)[1])) <= self.tolerance:
            return point, True
        point, gradient_norm, used = polish(
            self.objective, point, tolerance=self.tolerance, max_iterations=NEWTON_STEPS
        )
        self.iterations += used
        return point, gradient_norm <= self.tolerance


def _geometric(objective: Objective, n_phases: int) -> Array:
    """Equal weights on rates spread from the largest observation to well inside the median."""
    x, weights = objective.x.numpy(), objective.weights.numpy()
    if n_phases == 1:
        return coordinates(np.ones(1), np.array([1 / (weights @ x)]))
    rates = np.geomspace(3 / x.max(), 20 / _median(x, weights), n_phases)
    return coordinates(np.full(n_phases, 1 / n_phases), rates)


def _from_law(law: SeriesPhaseType, n_phases: int, scale: float) -> Array:
    initial = law.initial.detach().double().numpy()
    rates = law.rates.detach().double().numpy() * scale
    if initial.shape != (n_phases,):
        raise ValueError(f"starts has phases of shape {initial.shape}; give one law with {n_phases} phases")
    # A start, not an answer: a little of every weight and gap lets the search reopen what had vanished or merged.
    share = 1e-3
    inside = (1 - share) * initial + share / n_phases
    return np.concatenate([np.log(inside), np.log(np.diff(rates, prepend=0.0) + share * rates / n_phases)])


def _median(x: Array, weights: Array) -> float:
    """The smallest value with at least half of the weight at or below it; x ascending."""
    share = np.cumsum(weights)
    return float(x[np.searchsorted(share, share[-1] / 2)])


def _checked(x: Numbers, n_phases: int, weights: Numbers | None) -> tuple[Array, Array, int]:
    """Distinct values ascending, the weight of each, and the number of rows of positive weight."""
    if not checks.is_whole(n_phases, least=1):
        raise ValueError(f"n_phases is {n_phases!r}; give a whole number of at least 1")
    values = _vector("x", x)
    if values.size == 0:
        raise ValueError("x is empty; give at least two different positive observations")
    _reject(values, ~np.isfinite(values), "x", "remove the row or impute it")
    _reject(values, values < 0, "x", "the law lives on positive numbers: remove the row or subtract the lower endpoint")
    _reject(
        values, values == 0, "x", "the likelihood is unbounded at zero: remove exact zeros and model their share apart"
    )
    mass = np.ones_like(values) if weights is None else _vector("weights", weights)
    if mass.shape != values.shape:
        raise ValueError(f"weights has {mass.size} entries and x has {values.size}; give one weight per observation")
    _reject(mass, ~(np.isfinite(mass) & (mass >= 0)), "weights", "weights are finite and >= 0")
    kept = mass > 0
    if not kept.any():
        raise ValueError("weights are all zero; give at least two observations a positive weight")
    distinct, where = np.unique(values[kept], return_inverse=True)
    if distinct.size == 1:
        raise ValueError(f"x is {distinct[0]:g} in every row; a constant has no spread to fit, give data that vary")
    if distinct.size < n_phases:
        raise ValueError(
            f"x has {distinct.size} distinct values, too few for n_phases={n_phases}; "
            f"give more data or at most {distinct.size} phases"
        )
    return distinct, np.bincount(where, weights=mass[kept]).astype(np.float64), int(kept.sum())


def _vector(name: str, values: Numbers) -> Array:
    return np.asarray(checks.as_tensor(name, values).detach().double().cpu().numpy()).reshape(-1)


def _reject(values: Array, wrong: npt.NDArray[np.bool_], name: str, remedy: str) -> None:
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        more = f" ({int(wrong.sum())} such entries)" if wrong.sum() > 1 else ""
        raise ValueError(f"{name}[{at}] is {values[at]:g}{more}; {remedy}")
