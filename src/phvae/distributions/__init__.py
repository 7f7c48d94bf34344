"""Phase-type laws as torch distributions."""

from phvae.distributions.closure import mixture
from phvae.distributions.explain import PhasePosterior
from phvae.distributions.phase_type import PhaseType, SeriesPhaseType

__all__ = ["PhasePosterior", "PhaseType", "SeriesPhaseType", "mixture"]
