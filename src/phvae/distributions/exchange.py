"""The law as a frozen scipy.stats distribution."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rv_continuous

from phvae.distributions.base import AbsorptionTime

Array = NDArray[np.float64]


class _ScipyLaw(rv_continuous):  # type: ignore[misc]
    """rv_continuous whose every method asks the law itself; scipy adds the support and the broadcasting."""

    def __init__(self, law: AbsorptionTime, **options: Any) -> None:
        self._law = law
        super().__init__(**options)

    def _updated_ctor_param(self) -> dict[str, Any]:
        return {**super()._updated_ctor_param(), "law": self._law}

    def _ask(self, name: str, value: Array) -> Array:
        with torch.no_grad():
            answer: Array = getattr(self._law, name)(np.array(value, dtype=np.float64)).cpu().numpy()
        return answer

    def _logpdf(self, x: Array) -> Array:
        return self._ask("log_prob", x)

    def _pdf(self, x: Array) -> Array:
        return np.exp(self._logpdf(x))

    def _logcdf(self, x: Array) -> Array:
        return self._ask("log_cdf", x)

    def _cdf(self, x: Array) -> Array:
        return self._ask("cdf", x)

    def _logsf(self, x: Array) -> Array:
        return self._ask("log_sf", x)

    def _sf(self, x: Array) -> Array:
        return self._ask("sf", x)

    def _ppf(self, q: Array) -> Array:
        return self._ask("icdf", q)

    def _isf(self, q: Array) -> Array:
        return self._ask("isf", q)

    def _munp(self, n: int) -> float:
        return float(self._law.moment(n).detach())

    def _stats(self) -> tuple[float, float, None, None]:
        return float(self._law.mean.detach()), float(self._law.variance.detach()), None, None

    def _entropy(self) -> float:
        return float(self._law.entropy().detach())

    def _rvs(self, size: Any = None, random_state: Any = None) -> Array:
        seed = int(random_state.integers(2**63) if hasattr(random_state, "integers") else random_state.randint(2**31))
        source = torch.Generator(self._law.initial.device).manual_seed(seed)
        draws: Array = self._law.sample(size or (), source).cpu().numpy()
        return draws


def to_scipy(law: AbsorptionTime) -> Any:
    """A frozen ``scipy.stats`` distribution: pdf, logpdf, cdf, sf, logsf, ppf, isf, rvs, mean, var, std, entropy.

    >>> from phvae.distributions import SeriesPhaseType
    >>> frozen = SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).to_scipy()
    >>> round(float(frozen.isf(frozen.sf(12.5))), 9)
    12.5
    """
    if law.batch_shape:
        raise ValueError(f"the law is a batch of shape {tuple(law.batch_shape)}; scipy takes one law, index it first")
    return _ScipyLaw(law=law, a=0.0, name="phase_type")()
