"""Metrics of generated data: pure functions on arrays, the truth first.

One column: `tail_distance`, `quantile_error`, `cvar_error`, `tail_mass`, `below_zero`, `tail_anderson_darling`,
`survival_curve`, and the proper scores `crps` (threshold-weighted where asked) and `pinball_loss`. Several columns:
`correlation_error`, `kendall_error`, `coexceedance_error`. Whole tables: `energy_distance`, `classifier_test`,
`memorisation`. `with_error` adds a bootstrap standard error to any of them.
"""

from phvae.metrics.bootstrap import Estimate, with_error
from phvae.metrics.dependence import (
    coexceedance,
    coexceedance_error,
    correlation_error,
    kendall_error,
    kendall_tau,
    log_correlation,
)
from phvae.metrics.samples import MetricWarning
from phvae.metrics.scores import crps, pinball_loss
from phvae.metrics.tails import (
    below_zero,
    cvar_error,
    quantile_error,
    survival_curve,
    tail_anderson_darling,
    tail_distance,
    tail_mass,
)
from phvae.metrics.two_samples import ClassifierTest, Memorisation, classifier_test, energy_distance, memorisation

__all__ = [
    "ClassifierTest",
    "Estimate",
    "Memorisation",
    "MetricWarning",
    "below_zero",
    "classifier_test",
    "coexceedance",
    "coexceedance_error",
    "correlation_error",
    "crps",
    "cvar_error",
    "energy_distance",
    "kendall_error",
    "kendall_tau",
    "log_correlation",
    "memorisation",
    "pinball_loss",
    "quantile_error",
    "survival_curve",
    "tail_anderson_darling",
    "tail_distance",
    "tail_mass",
    "with_error",
]
