"""Phase-type laws as torch distributions."""

from phvae.distributions.closure import mixture
from phvae.distributions.explain import PhasePosterior
from phvae.distributions.matrix_lognormal import MatrixLogNormal
from phvae.distributions.matrix_pareto import MatrixPareto
from phvae.distributions.matrix_weibull import MatrixWeibull
from phvae.distributions.phase_type import PhaseType, SeriesPhaseType
from phvae.distributions.two_sided import TwoSided

__all__ = [
    "MatrixLogNormal",
    "MatrixPareto",
    "MatrixWeibull",
    "PhasePosterior",
    "PhaseType",
    "SeriesPhaseType",
    "TwoSided",
    "mixture",
]
