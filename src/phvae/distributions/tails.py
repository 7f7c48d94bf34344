"""What every law of the decoders offers: tails in logs, and draws from an explicit generator."""

import inspect
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.distributions.intervals import log_interval_by_tails


class TailedLaw(Distribution):
    """A law of one real variable known by its log density, log survival and log cdf; results are float64.

    To provide: `log_prob`, `log_sf`, `log_cdf`, `icdf`, `isf`, `mean_excess`, ``_draw``, and ``mean``, ``variance`` and
    ``expand`` as in torch; the rest follows. Optional: `log_excess`, which layers and totals ask for, `rsample` with
    ``has_rsample``, and `log_interval` and `typical`, where they have a better form than the one here.
    ``tail_index`` is for laws that bend a chain's time, which `TimeTransformed` asks it of.

    With ``validate_args=False`` nothing is checked and a value that is missing gives NaN.
    """

    def _setup(self, batch_shape: torch.Size, validate_args: bool | None) -> None:
        # our own checks have run and their messages say more than torch's
        super().__init__(batch_shape, torch.Size(), validate_args=False)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args

    def _points(self, name: str, value: Numbers) -> Tensor:
        points = checks.as_tensor(name, value).double()
        if self._validate_args and bool(points.isnan().any()):
            position = tuple(points.isnan().nonzero()[0].tolist())
            raise ValueError(f"{name}{list(position) or ''} is missing; drop or impute missing values first")
        return points

    def _levels(self, name: str, value: Numbers) -> Tensor:
        levels = checks.as_tensor(name, value).double()
        if self._validate_args:
            checks.require_probabilities(name, levels)
        return levels

    @abstractmethod
    def log_prob(self, value: Numbers) -> Tensor:
        """Log density at ``value``, shape ``broadcast(value, batch_shape)``."""

    @abstractmethod
    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""

    @abstractmethod
    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""

    @abstractmethod
    def icdf(self, value: Numbers) -> Tensor:
        """Smallest point with ``P(X <= point) >= value``; for levels near one use `isf`."""

    @abstractmethod
    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``, for levels far below the spacing of numbers near one."""

    @abstractmethod
    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u]`` over ``threshold``."""

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]`` for ``k = order``, 1 or 2; ``-inf`` at infinity."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its stop-loss moments")

    @abstractmethod
    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor: ...

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``; the ends may be infinite, and the whole line has exactly 0."""
        return log_interval_by_tails(self, self._points("lower", lower), self._points("upper", upper))

    def sf(self, value: Numbers) -> Tensor:
        """``P(X > value)``."""
        return self.log_sf(value).exp()

    def cdf(self, value: Numbers) -> Tensor:
        """``P(X <= value)``."""
        return self.log_cdf(value).exp()

    def hazard(self, value: Numbers) -> Tensor:
        """Hazard rate ``f / S`` at ``value``."""
        return (self.log_prob(value) - self.log_sf(value)).exp()

    @property
    def typical(self) -> Tensor:
        """A point of finite density inside the law: its mean, or 1 where that is infinite."""
        mean: Tensor = self.mean
        return torch.where(mean.isfinite(), mean, 1.0)

    def cvar(self, level: Numbers) -> Tensor:
        """Expected shortfall: the mean of the quantiles above ``level``."""
        quantile = self.icdf(level)
        return quantile + self.mean_excess(quantile)

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws that carry pathwise gradients, for a law with ``has_rsample``; arguments as in `sample`."""
        raise NotImplementedError(f"draws of {type(self).__name__} carry no gradients; use sample")

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``sample_shape + batch_shape``.

        Args:
            sample_shape: Leading shape of the draws.
            generator: Source of randomness; the global one of torch when omitted.
        """
        with torch.no_grad():
            return self._draw(self._extended_shape(torch.Size(sample_shape)), generator)


def drawn(law: Any, shape: torch.Size | tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
    """Draws of a law from a generator, shape ``shape + batch_shape``; also of a law of torch, which takes none.

    The global generator of torch, which such a law draws from, is left as it was.

    >>> law = torch.distributions.LogNormal(torch.zeros(3), torch.ones(3))
    >>> first, second = (drawn(law, (2,), torch.Generator().manual_seed(5)) for _ in range(2))
    >>> first.shape, bool((first == second).all())
    (torch.Size([2, 3]), True)
    """
    shape = torch.Size(shape)
    if "generator" in inspect.signature(law.sample).parameters:
        draws: Tensor = law.sample(shape, generator=generator)
        return draws
    if generator is None:
        return torch.as_tensor(law.sample(shape))
    seed = int(torch.randint(2**62, (), device=generator.device, generator=generator))
    with torch.random.fork_rng([generator.device] if generator.device.type == "cuda" else []):
        torch.manual_seed(seed)
        return torch.as_tensor(law.sample(shape))


def typical(law: Distribution) -> Tensor:
    """A point of finite density inside a law; of one of torch its mean, and the median where torch has no mean."""
    if isinstance(law, TailedLaw):
        return law.typical
    try:
        return law.mean
    except NotImplementedError:
        median: Tensor = law.icdf(torch.tensor(0.5))
        return median
