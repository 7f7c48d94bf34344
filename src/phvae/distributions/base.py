"""Everything a phase-type law offers that follows from its log density, log survival and log cdf."""

from abc import abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.distributions.composable import Composable
from phvae.distributions.entropy import entropy
from phvae.distributions.explain import Given, PhasePosterior
from phvae.distributions.intervals import log_interval
from phvae.distributions.quantiles import follow, invert


class AbsorptionTime(Composable, Distribution):
    """Time to absorption of a finite Markov chain: the common part of `PhaseType` and `SeriesPhaseType`.

    Results are float64 and differentiable in the parameters; log tails stay exact where the tails underflow. Arguments
    may be tensors, arrays, lists or numbers of any shape that broadcasts with the batch shape.
    """

    support: ClassVar[constraints.Constraint] = constraints.nonnegative
    has_rsample = True
    initial: Tensor

    @abstractmethod
    def _log_density(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_survival(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_distribution(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]``: for order 1 the integral of S from x to infinity."""

    @abstractmethod
    def _expected_time(self, reward: Tensor) -> Tensor:
        """Expected reward until absorption from each phase: ``(-generator)^-1 · reward``."""

    @abstractmethod
    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor: ...

    @abstractmethod
    def _posterior(self, x: Tensor, given: Given) -> PhasePosterior: ...

    @abstractmethod
    def _rescaled(self, factor: Tensor) -> Self: ...

    @abstractmethod
    def _chosen(self, laws: Tensor) -> Self:
        """The laws with these numbers, counted along the flattened batch."""

    @property
    @abstractmethod
    def _highest_density(self) -> Tensor:
        """The fastest exit, which bounds the density."""

    @property
    @abstractmethod
    def tail_rate(self) -> Tensor:
        """Rate at which the tail dies off at last: the limit of the hazard, and of ``-log S(x) / x``."""

    @abstractmethod
    def laplace(self, s: Numbers) -> Tensor:
        """Laplace transform ``E[exp(-s X)]`` for real ``s >= 0``."""

    def _setup(self, batch_shape: torch.Size, validate_args: bool | None) -> None:
        # our own checks have run and their messages say more than torch's
        super().__init__(batch_shape, torch.Size(), validate_args=False)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args

    def __getitem__(self, index: Any) -> Self:
        """The law, or the smaller batch of laws, at a place of the batch.

        >>> from phvae.distributions import SeriesPhaseType
        >>> float(SeriesPhaseType([[1.0], [1.0]], [[2.0], [4.0]])[1].mean)
        0.25
        """
        if not self.batch_shape:
            raise TypeError("one law, not a batch of laws: there is no axis to index")
        laws = torch.arange(self.batch_shape.numel(), device=self.initial.device).reshape(self.batch_shape)
        return self._chosen(laws[index])

    def _broadcastable(self, name: str, value: Numbers) -> Tensor:
        # a tensor knows its device; a law that computes its parameters on demand is not asked for them
        like = None if isinstance(value, Tensor) else self.initial
        tensor = checks.as_tensor(name, value, like=like).double()
        try:
            if tensor.shape != self.batch_shape:
                torch.broadcast_shapes(tensor.shape, self.batch_shape)
        except RuntimeError as error:
            shapes = f"{name} has shape {tuple(tensor.shape)} and the batch of laws {tuple(self.batch_shape)}"
            raise ValueError(f"{shapes}; make the trailing axes equal or of length one") from error
        if self._validate_args:
            checks.require_some(name, tensor)
        return tensor

    def _points(self, name: str, value: Numbers) -> Tensor:
        tensor = self._broadcastable(name, value)
        if self._validate_args:
            checks.require_observations(name, tensor)
        return tensor

    def _levels(self, name: str, value: Numbers) -> Tensor:
        tensor = self._broadcastable(name, value)
        if self._validate_args:
            checks.require_probabilities(name, tensor)
        return torch.where((tensor >= 0) & (tensor <= 1), tensor, torch.nan)

    def _validate_sample(self, value: Tensor) -> None:
        self._points("value", value)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density ``log f(value)``, shape ``broadcast(value, batch_shape)``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([1.0], [1.0]).log_prob([0.0, 1e6])
        tensor([       0., -1000000.], dtype=torch.float64)
        """
        return self._log_density(self._points("value", value))

    def log_sf(self, value: Numbers) -> Tensor:
        """Log survival ``log S(value) = log P(X > value)``, exact far beyond the underflow of ``sf``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> float(SeriesPhaseType([1.0], [2.0]).log_sf(5e5))
        -1000000.0
        """
        return self._log_survival(self._points("value", value))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log distribution function ``log F(value) = log P(X <= value)``, exact down to tiny ``value``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [1.0]).log_cdf(1e-100)), 6)              # log(1 - exp(-x)) ~ log x
        -230.258509
        """
        return self._log_distribution(self._points("value", value))

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``, to 1e-9 also where the interval is narrow or far out in a tail.

        Args:
            lower: Lower ends, ``-inf`` where there is none, shape broadcastable with the batch shape.
            upper: Upper ends, ``inf`` where there is none, likewise.

        >>> from phvae.distributions import SeriesPhaseType
        >>> law = SeriesPhaseType([1.0], [2.0])
        >>> float(law.log_interval(1e6, torch.inf)), float(law.log_interval(-torch.inf, torch.inf))
        (-2000000.0, 0.0)
        """
        ends = [self._broadcastable(*end) for end in (("lower", lower), ("upper", upper))]
        shape = torch.broadcast_shapes(self.batch_shape, *(end.shape for end in ends))
        below, above = (end.expand(shape).reshape(-1) for end in ends)
        laws = torch.arange(self.batch_shape.numel(), device=below.device).reshape(self.batch_shape)
        laws = laws.expand(shape).reshape(-1)

        def evaluate(quantity: str, points: Tensor, places: Tensor) -> Tensor:
            values: Tensor = getattr(self._chosen(laws[places]), quantity)(points)
            return values

        return log_interval(evaluate, below, above).reshape(shape)

    def sf(self, value: Numbers) -> Tensor:
        """Survival ``S(value) = P(X > value)``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [0.5]).sf(2.0)), 6)
        0.367879
        """
        return self.log_sf(value).exp()

    def cdf(self, value: Numbers) -> Tensor:
        """Distribution function ``F(value) = P(X <= value)``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [0.5]).cdf(2.0)), 6)
        0.632121
        """
        return self.log_cdf(value).exp()

    def hazard(self, value: Numbers) -> Tensor:
        """Hazard rate ``f(value) / S(value)``, at any depth; at infinity its limit, `tail_rate`.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([0.5, 0.5], [1.0, 3.0]).hazard([0.0, torch.inf])
        tensor([1.5000, 1.0000], dtype=torch.float64)
        """
        points = self._points("value", value)
        far, near = self._split(points)
        ratio = (self._log_density(near) - self._log_survival(near)).exp()
        return torch.where(far, self.tail_rate, ratio) if bool(far.any()) else ratio

    def icdf(self, value: Numbers) -> Tensor:
        """Quantile: the point ``x`` with ``F(x) = value``; for levels near one use `isf`.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [1.0]).icdf(0.5)), 9)                          # log 2
        0.693147181
        """
        return self._quantile("value", value)

    def _quantile(self, name: str, value: Numbers) -> Tensor:
        level = self._levels(name, value)
        return invert(self, torch.log1p(-level), level.log())

    def isf(self, value: Numbers) -> Tensor:
        """Upper quantile: the point ``x`` with ``S(x) = value``, for levels down to 1e-300.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [1.0]).isf(1e-300)), 6)                        # 300 log 10
        690.775528
        """
        level = self._levels("value", value)
        return invert(self, level.log(), torch.log1p(-level))

    @property
    def mean(self) -> Tensor:
        """Expected value ``E[X] = initial · (-generator)^-1 · 1``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> float(SeriesPhaseType([0.5, 0.5], [1.0, 2.0]).mean)                   # half of the time 1 + 1/2, else 1/2
        1.0
        """
        return self.moment(1)

    def moment(self, order: int) -> Tensor:
        """Raw moment ``E[X^k] = k! · initial · (-generator)^-k · 1``.

        Args:
            order: ``k``, a non-negative integer.

        >>> from phvae.distributions import SeriesPhaseType
        >>> float(SeriesPhaseType([1.0], [0.5]).moment(3))                                    # 3! / 0.5^3
        48.0
        """
        if not checks.is_whole(order, least=0):
            raise ValueError(f"order = {order!r} is not the order of a moment; give an integer >= 0")
        reward = torch.ones_like(self.initial)
        for k in range(1, int(order) + 1):
            reward = k * self._expected_time(reward)
        return (self.initial * reward).sum(-1)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u] = ∫_u^∞ S(x) dx / S(u)``, at any depth; at infinity its limit.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([0.5, 0.5], [1.0, 4.0]).mean_excess([0.0, torch.inf])
        tensor([0.7500, 1.0000], dtype=torch.float64)
        """
        return self._mean_excess(self._points("threshold", threshold))

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]``, exact where it underflows; ``-inf`` at infinity.

        Args:
            threshold: ``u``, shape broadcastable with the batch shape.
            order: ``k``, a positive integer.

        >>> from phvae.distributions import SeriesPhaseType
        >>> float(SeriesPhaseType([1.0], [2.0]).log_excess(1e4)), SeriesPhaseType([1.0], [2.0]).log_excess(0, 2).exp()
        (-20000.69314718056, tensor(0.5000, dtype=torch.float64))
        """
        if not checks.is_whole(order, least=1):
            raise ValueError(f"order = {order!r} is not the order of a stop-loss moment; give an integer >= 1")
        return self._log_excess(self._points("threshold", threshold), int(order))

    def _mean_excess(self, points: Tensor) -> Tensor:
        far, near = self._split(points)
        ratio = (self._log_excess(near) - self._log_survival(near)).exp()
        return torch.where(far, 1 / self.tail_rate, ratio) if bool(far.any()) else ratio

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Where the points are infinite, and points with those replaced by a harmless one."""
        far = points == torch.inf
        return far, torch.where(far, self.mean.detach(), points) if bool(far.any()) else points

    def cvar(self, level: Numbers) -> Tensor:
        """Expected shortfall ``E[X | X > q] = q + mean_excess(q)`` with ``q = icdf(level)``.

        A level within 1e-16 of one is one in floating point: there, use ``q = isf(probability)`` and `mean_excess`.

        >>> from phvae.distributions import SeriesPhaseType
        >>> round(float(SeriesPhaseType([1.0], [1.0]).cvar(0.99)), 6)                         # 1 + log 100
        5.60517
        """
        quantile = self._quantile("level", level)
        return quantile + self._mean_excess(quantile)

    def entropy(self) -> Tensor:
        """Differential entropy ``-∫ f(x) log f(x) dx`` in nats, by quadrature with a checked error of 1e-10.

        >>> from phvae.distributions import SeriesPhaseType
        >>> abs(float(SeriesPhaseType([1.0], [1.0]).entropy()) - 1) < 1e-10
        True
        """
        return entropy(self)

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``sample_shape + batch_shape``.

        The series form adds up exponentials from a drawn entry phase on. The general form simulates the chain jump by
        jump, for all elements at once; where 10,000 jumps or more are expected it inverts the survival instead.

        Args:
            sample_shape: Leading shape of the draws.
            generator: Source of randomness; the global one of torch when omitted.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([1.0], [2.0]).sample((3,), torch.Generator().manual_seed(0)).shape
        torch.Size([3])
        """
        with torch.no_grad():
            return self._draw(self._extended_shape(torch.Size(sample_shape)), generator)

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws that carry pathwise gradients ``dx/dθ = (∂log S/∂θ) S / f``; arguments as in `sample`.

        >>> from phvae.distributions import SeriesPhaseType
        >>> rate = torch.tensor([2.0], requires_grad=True)
        >>> x = SeriesPhaseType([1.0], rate).rsample(generator=torch.Generator().manual_seed(0))
        >>> x.backward()
        >>> round(float(rate.grad[0] / x.detach()), 6)                               # x is (a draw) / rate
        -0.5
        """
        return follow(self, self.sample(sample_shape, generator))

    def scaled(self, factor: Numbers) -> Self:
        """Law of ``factor · X``, exact: the rates are divided by ``factor``.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).scaled(10).rates
        tensor([0.0500, 0.4000], dtype=torch.float64)
        """
        value = self._broadcastable("factor", factor)
        if self._validate_args:
            checks.require_positive("factor", value)
        return self._rescaled(torch.where((value > 0) & (value < torch.inf), value, torch.nan))

    def phase_posterior(self, value: Numbers, given: Given = "equal") -> PhasePosterior:
        """Entry phase and time in each phase of the chain, given the value it produced.

        ``entry_i = P(first phase is i | X)`` and ``time_k = E[∫ 1(phase k at u) du | X]``.

        Args:
            value: Finite observations, shape broadcastable with the batch shape.
            given: ``"equal"`` conditions on ``X = value``, ``"exceeds"`` on ``X > value``.

        Returns:
            ``(entry, time)`` of shape ``broadcast(value, batch_shape) + (m,)``; detached from the graph.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([0.5, 0.5], [1.0, 1.0]).phase_posterior(3.0).entry      # f(x) ∝ x e^-x against e^-x
        tensor([0.7500, 0.2500], dtype=torch.float64)
        """
        if given not in ("equal", "exceeds"):
            raise ValueError(f"given = {given!r} is unknown; use 'equal' or 'exceeds'")
        points = self._points("value", value)
        if self._validate_args:
            checks.require_finite("value", points)
        return self._posterior(torch.where(points < torch.inf, points, torch.nan), given)

    def to_scipy(self) -> Any:
        """A frozen ``scipy.stats`` distribution with this law (one law, not a batch)."""
        from phvae.distributions.exchange import to_scipy

        return to_scipy(self)
