"""Phase-type laws: time to absorption of a Markov chain, general or in series canonical form."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from phvae.distributions import checks, simulation
from phvae.distributions.base import AbsorptionTime
from phvae.distributions.checks import Numbers
from phvae.distributions.composable import Composable
from phvae.distributions.explain import Given, PhasePosterior, general_posterior, series_posterior
from phvae.kernels import elimination, general, series

if TYPE_CHECKING:
    from phvae.distributions.fitting import SeriesFit


class SeriesPhaseType(AbsorptionTime):
    """Phase-type law in series canonical form: enter at phase ``i``, pass phases ``i, ..., m``, leave from the last.

    ``f(x) = Σ_i initial_i h_i(x)``, where ``h_i`` is the density of the sum of exponentials with rates ``λ_i ... λ_m``.
    Every acyclic phase-type law has this form (Cumani, "On the canonical representation of homogeneous Markov
    processes modelling failure-time distributions", Microelectron. Reliab. 22, 1982).

    Args:
        initial: Entry probabilities, shape ``(..., m)``, non-negative, sum one (to 1e-6; then normalised exactly).
        rates: Rates of the phases, shape ``(..., m)``, positive and non-decreasing.
        validate_args: Check parameters and observations; ``False`` gives NaN in the rows at fault instead.

    >>> law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    >>> round(float(law.mean), 3)
    0.85
    >>> round(float(law.log_sf(1e5)), 3)
    -50001.07
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "initial": checks.entry,
        "rates": checks.increasing_rates,
    }

    def __init__(self, initial: Numbers, rates: Numbers, validate_args: bool | None = None) -> None:
        start, speed = checks.as_tensor("initial", initial), checks.as_tensor("rates", rates)
        batch = checks.same_phases(("initial", start, 1), ("rates", speed, 1))
        self._setup(batch, validate_args)
        if self._validate_args:
            checks.require_entry(start)
            checks.require_rates(speed)
        size = start.shape[-1]
        self.initial = checks.normalised(start).expand(*batch, size)
        speed = speed.double()
        self.rates = checks.where_sound(checks.increasing_rates.check(speed)[..., None], speed).expand(*batch, size)

    @classmethod
    def _build(cls, initial: Tensor, rates: Tensor, validate_args: bool | None) -> Self:
        law = cls.__new__(cls)
        law.initial, law.rates = initial, rates
        law._setup(initial.shape[:-1], validate_args)
        return law

    @classmethod
    def fit(
        cls,
        x: Numbers,
        n_phases: int,
        weights: Numbers | None = None,
        *,
        starts: "Literal['nested', 'geometric'] | SeriesPhaseType" = "nested",
        tolerance: float = 1e-6,
        max_iterations: int = 2000,
    ) -> "SeriesFit":
        """Maximum likelihood fit to observations; arguments as in `phvae.distributions.fitting.fit_series`.

        >>> fit = SeriesPhaseType.fit([0.2, 0.5, 0.7, 1.1, 2.5], 1)
        >>> round(float(fit.law.mean), 6), fit.converged
        (1.0, True)
        """
        from phvae.distributions.fitting import fit_series

        return fit_series(x, n_phases, weights, starts=starts, tolerance=tolerance, max_iterations=max_iterations)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``.

        >>> SeriesPhaseType([1.0], [2.0]).expand((3,)).mean
        tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)
        """
        shape = (*batch_shape, self.rates.shape[-1])
        return self._build(self.initial.expand(shape), self.rates.expand(shape), self._validate_args)

    def _chosen(self, laws: Tensor) -> Self:
        size = self.rates.shape[-1]
        initial, rates = self.initial.reshape(-1, size)[laws], self.rates.reshape(-1, size)[laws]
        return self._build(initial, rates, self._validate_args)

    @property
    def tail_rate(self) -> Tensor:
        """Rate at which the tail dies off at last: that of the slowest phase that can be entered.

        >>> float(SeriesPhaseType([0.0, 0.5, 0.5], [1.0, 2.0, 3.0]).tail_rate)
        2.0
        """
        first = (self.initial > 0).int().argmax(-1, keepdim=True)
        return torch.where(self.initial[..., 0].isnan(), torch.nan, self.rates.gather(-1, first)[..., 0])

    def _rescaled(self, factor: Tensor) -> Self:
        rates = self.rates / factor[..., None]
        return self._build(self.initial.expand(rates.shape), rates, self._validate_args)

    def _log_density(self, x: Tensor) -> Tensor:
        return series.log_density(x, self.initial, self.rates)

    def _log_survival(self, x: Tensor) -> Tensor:
        return series.log_survival(x, self.initial, self.rates)

    def _log_distribution(self, x: Tensor) -> Tensor:
        return series.log_cdf(x, self.initial, self.rates)

    def _log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        # the equilibrium law enters a phase in proportion to the expected time spent there
        weights = self.initial
        for _ in range(order):
            weights = weights.cumsum(-1) / self.rates
        return math.lgamma(order + 1) + series.log_survival(x, weights, self.rates)

    def _expected_time(self, reward: Tensor) -> Tensor:
        return _sum_from(reward / self.rates)

    @property
    def _highest_density(self) -> Tensor:
        return self.rates[..., -1]

    @property
    def variance(self) -> Tensor:
        """Variance, as the sum of the variances within and between entry phases: no cancellation.

        >>> float(SeriesPhaseType([1.0, 0.0], [1.0, 2.0]).variance)                                     # 1 + 1/4
        1.25
        """
        means = _sum_from(1 / self.rates)
        centre = (self.initial * means).sum(-1, keepdim=True)
        return (self.initial * (_sum_from(self.rates**-2) + (means - centre) ** 2)).sum(-1)

    def laplace(self, s: Numbers) -> Tensor:
        """Laplace transform ``E[exp(-s X)] = Σ_i initial_i Π_{k>=i} λ_k / (s + λ_k)`` for real ``s >= 0``.

        >>> float(SeriesPhaseType([0.0, 1.0], [1.0, 2.0]).laplace(2.0))
        0.5
        """
        points = self._broadcastable("s", s)
        if self._validate_args:
            checks.require_non_negative("s", points)
        points = torch.where(points >= 0, points, torch.nan)[..., None]
        factors = self.rates / (points + self.rates)
        return (self.initial * factors.flip(-1).cumprod(-1).flip(-1)).sum(-1)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        entry = simulation.entry_phases(self.initial, shape, generator)
        size = self.rates.shape[-1]
        pauses = torch.empty((*shape, size), dtype=self.rates.dtype, device=self.rates.device)
        pauses = pauses.exponential_(generator=generator) / self.rates
        passed = torch.arange(size, device=self.rates.device) >= entry[..., None]
        drawn = torch.where(passed, pauses, 0.0).sum(-1)
        return torch.where(self.initial[..., 0].isnan(), torch.nan, drawn)

    def _posterior(self, x: Tensor, given: Given) -> PhasePosterior:
        return series_posterior(x, self.initial, self.rates, given)

    def to_phase_type(self) -> "PhaseType":
        """The same law with its bidiagonal generator.

        >>> SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).to_phase_type().generator
        tensor([[-0.5000,  0.5000],
                [ 0.0000, -4.0000]], dtype=torch.float64)
        """
        generator = torch.diag_embed(-self.rates)
        exits = torch.zeros_like(self.rates[..., :-1])
        if self.rates.shape[-1] > 1:
            generator = generator + torch.diag_embed(self.rates[..., :-1], offset=1)
        exit_rates = torch.cat((exits, self.rates[..., -1:]), -1)
        return PhaseType._build(self.initial, generator, exit_rates, self._validate_args)


class PhaseType(AbsorptionTime):
    """Phase-type law of any Markov chain with one absorbing state.

    ``f(x) = initial · exp(generator x) · exit_rates`` with ``exit_rates = -generator · 1``.

    Args:
        initial: Entry probabilities, shape ``(..., m)``, non-negative, sum one (to 1e-6; then normalised exactly).
        generator: Sub-generator, shape ``(..., m, m)``: jump rates off the diagonal, row sums at most zero.
        validate_args: Check parameters and observations; ``False`` gives NaN in the rows at fault instead.

    >>> law = PhaseType([0.4, 0.0, 0.6], [[-5.2, 3.0, 2.2], [1.2, -2.5, 0.5], [4.0, 2.3, -7.55]])
    >>> round(float(law.mean), 4)
    1.5734
    >>> round(float(law.log_sf(1e5)), 2)
    -64121.83
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "initial": checks.entry,
        "generator": checks.sub_generator,
    }

    def __init__(self, initial: Numbers, generator: Numbers, validate_args: bool | None = None) -> None:
        start, matrix = checks.as_tensor("initial", initial), checks.as_tensor("generator", generator)
        batch = checks.same_phases(("initial", start, 1), ("generator", matrix, 2))
        self._setup(batch, validate_args)
        if self._validate_args:
            checks.require_entry(start)
            checks.require_generator(matrix)
        size = start.shape[-1]
        sound = checks.sub_generator.check(matrix)[..., None, None]
        roundoff = torch.finfo(matrix.dtype).eps
        matrix = checks.where_sound(sound, matrix.double())
        exits = general.row_deficits(matrix, roundoff)
        # a row that sums to zero only up to rounding is balanced on its diagonal
        residue = (matrix.sum(-1) + exits).detach()
        self.initial = checks.normalised(start).expand(*batch, size)
        self.generator = (matrix - torch.diag_embed(residue)).expand(*batch, size, size)
        self.exit_rates = exits.expand(*batch, size)

    @classmethod
    def _build(cls, initial: Tensor, generator: Tensor, exit_rates: Tensor, validate_args: bool | None) -> Self:
        law = cls.__new__(cls)
        law.initial, law.generator, law.exit_rates = initial, generator, exit_rates
        law._setup(initial.shape[:-1], validate_args)
        return law

    @classmethod
    def from_arrays(cls, initial: Numbers, generator: Numbers) -> Self:
        """Law from the pair that matrixdist (R) and BuTools use; a ``(1, m)`` row vector is taken as ``(m,)``.

        >>> float(PhaseType.from_arrays([[1.0, 0.0]], [[-2.0, 2.0], [0.0, -4.0]]).mean)
        0.75
        """
        start, matrix = checks.as_tensor("initial", initial), checks.as_tensor("generator", generator)
        return cls(start[0] if start.ndim == 2 and matrix.ndim == 2 and len(start) == 1 else start, matrix)

    @staticmethod
    def mixture(weights: Numbers, laws: Sequence[Composable], validate_args: bool | None = None) -> "PhaseType":
        """Law that is ``laws[k]`` with probability ``weights[k]``; see `phvae.distributions.mixture`."""
        from phvae.distributions.closure import mixture

        return mixture(weights, laws, validate_args)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``.

        >>> PhaseType([1.0], [[-2.0]]).expand((3,)).mean
        tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)
        """
        shape = (*batch_shape, self.initial.shape[-1])
        generator = self.generator.expand(*shape, shape[-1])
        return self._build(self.initial.expand(shape), generator, self.exit_rates.expand(shape), self._validate_args)

    def _chosen(self, laws: Tensor) -> Self:
        size = self.initial.shape[-1]
        initial, exits = self.initial.reshape(-1, size)[laws], self.exit_rates.reshape(-1, size)[laws]
        return self._build(initial, self.generator.reshape(-1, size, size)[laws], exits, self._validate_args)

    @property
    def tail_rate(self) -> Tensor:
        """Rate at which the tail dies off at last: minus the eigenvalue nearest zero of the phases that can be reached.

        >>> round(float(PhaseType([0.5, 0.5], [[-2.0, 1.0], [1.0, -2.0]]).tail_rate), 12)
        1.0
        """
        return elimination.tail_rate(self.initial, self.generator, self.exit_rates)

    def _rescaled(self, factor: Tensor) -> Self:
        exit_rates = self.exit_rates / factor[..., None]
        generator = self.generator / factor[..., None, None]
        return self._build(self.initial.expand(exit_rates.shape), generator, exit_rates, self._validate_args)

    def _log_density(self, x: Tensor) -> Tensor:
        return general.log_density(x, self.initial, self.generator, self.exit_rates)

    def _log_survival(self, x: Tensor) -> Tensor:
        return general.log_survival(x, self.initial, self.generator, self.exit_rates)

    def _log_distribution(self, x: Tensor) -> Tensor:
        return general.log_cdf(x, self.initial, self.generator, self.exit_rates)

    def _log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        sojourns = elimination.sojourns(self.generator, self.exit_rates)
        weights = self.initial[..., None, :]
        for _ in range(order):
            weights = weights @ sojourns
        log_integral = general.log_survival(x, weights[..., 0, :], self.generator, self.exit_rates)
        return math.lgamma(order + 1) + log_integral

    def _expected_time(self, reward: Tensor) -> Tensor:
        return elimination.solve(self.generator, self.exit_rates, reward[..., None])[..., 0]

    @property
    def _highest_density(self) -> Tensor:
        return self.exit_rates.amax(-1)

    @property
    def variance(self) -> Tensor:
        """Variance by conditioning on the first jump: a sum of non-negative terms, no cancellation.

        >>> float(PhaseType([1.0, 0.0], [[-1.0, 1.0], [0.0, -2.0]]).variance)                           # 1 + 1/4
        1.25
        """
        speed = -self.generator.diagonal(dim1=-2, dim2=-1)
        means = self._expected_time(torch.ones_like(speed))
        jumps = self.generator + torch.diag_embed(speed)
        onward = (jumps @ means[..., None])[..., 0] / speed
        spread = (jumps * (means[..., None, :] - onward[..., :, None]) ** 2).sum(-1) + self.exit_rates * onward**2
        within = self._expected_time(1 / speed + spread)
        centre = (self.initial * means).sum(-1, keepdim=True)
        return (self.initial * (within + (means - centre) ** 2)).sum(-1)

    def laplace(self, s: Numbers) -> Tensor:
        """Laplace transform ``E[exp(-s X)] = initial · (s I - generator)^-1 · exit_rates`` for real ``s >= 0``.

        >>> float(PhaseType([1.0], [[-2.0]]).laplace(2.0))
        0.5
        """
        points = self._broadcastable("s", s)
        if self._validate_args:
            checks.require_non_negative("s", points)
        never = points == torch.inf
        points = torch.where((points >= 0) & ~never, points, torch.where(never, 0.0, torch.nan))[..., None]
        exits = self.exit_rates.expand(*torch.broadcast_shapes(points.shape, self.exit_rates.shape))
        # killing at rate s only adds to the exits; the diagonal is never used
        generator = self.generator.expand(*exits.shape, exits.shape[-1])
        value = (self.initial * elimination.solve(generator, exits + points, exits[..., None])[..., 0]).sum(-1)
        return torch.where(never, 0 * value, value)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        speed = -self.generator.diagonal(dim1=-2, dim2=-1)
        jumps = self.generator + torch.diag_embed(speed)
        expected_jumps = (self.initial * self._expected_time(speed)).sum(-1)
        if bool((expected_jumps > simulation.MOST_JUMPS).any()):
            # a chain that jumps for ages before it is absorbed is inverted, not simulated
            uniform = torch.rand(shape, dtype=speed.dtype, device=speed.device, generator=generator)
            return self.isf(1 - uniform)
        return simulation.absorption_times(self.initial, jumps, self.exit_rates, shape, generator)

    def _posterior(self, x: Tensor, given: Given) -> PhasePosterior:
        return general_posterior(x, self.initial, self.generator, self.exit_rates, given)

    def to_phase_type(self) -> "PhaseType":
        """The law itself."""
        return self

    def to_series(self) -> SeriesPhaseType:
        """The same law in series canonical form, for an acyclic generator.

        >>> PhaseType([0.5, 0.5], [[-4.0, 0.0], [0.0, -1.0]]).to_series().initial
        tensor([0.3750, 0.6250], dtype=torch.float64)
        """
        from phvae.distributions import canonical

        sound = self.generator.isfinite().all(-1).all(-1) & self.initial.isfinite().all(-1)
        # a row that is no law goes through as one phase after another, and comes out as NaN
        stand_in = torch.eye(self.initial.shape[-1], dtype=self.initial.dtype, device=self.initial.device)
        initial = torch.where(sound[..., None], self.initial, stand_in[0])
        generator = torch.where(sound[..., None, None], self.generator, -stand_in)
        exits = torch.where(sound[..., None], self.exit_rates, 1.0)
        initial, rates = (
            torch.where(sound[..., None], value, torch.nan) for value in canonical.to_series(initial, generator, exits)
        )
        return SeriesPhaseType._build(initial, rates, self._validate_args)


def _sum_from(value: Tensor) -> Tensor:
    """``Σ_{k>=i} value_k`` for each phase ``i``."""
    return value.flip(-1).cumsum(-1).flip(-1)
