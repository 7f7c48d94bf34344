"""The numbers printed in the paper (Ziani, Horvath, Ballarini, Phase-Type Variational Autoencoders), as facts.

Mean and standard deviation over training runs where the paper gives them; nan where it prints N/A.
"""

from typing import NamedTuple

__all__ = ["ABLATION", "DEPENDENCE", "TABLE_1", "TABLE_2", "TIMING", "Printed"]

NA = float("nan")


class Printed(NamedTuple):
    """A printed number with its standard deviation; None where none is given."""

    mean: float
    deviation: float | None = None


P = Printed

# Tail KS and 99% quantile error on Weibull(0.8), Pareto(2.4), Lognormal(0, 1.5), Burr(1.5, 0.8).
LAWS = ("Weibull", "Pareto", "Lognormal", "Burr")
TABLE_1: dict[str, dict[str, tuple[Printed, Printed]]] = {
    model: dict(zip(LAWS, cells, strict=True))
    for model, cells in {
        "VAE": (
            (P(0.190, 0.012), P(0.235, 0.003)),
            (P(0.259, 0.005), P(0.336, 0.002)),
            (P(0.498, 0.007), P(0.582, 0.002)),
            (P(0.433, 0.002), P(0.724, 0.003)),
        ),
        "t-VAE": (
            (P(0.225, 0.090), P(0.878, 0.000)),
            (P(0.233, 0.025), P(0.632, 0.006)),
            (P(0.650, 0.001), P(100.783, 1.683)),
            (P(0.518, 0.002), P(39.845, 1.837)),
        ),
        "xVAE": (
            (P(0.187, 0.008), P(0.062, 0.005)),
            (P(0.161, 0.002), P(0.131, 0.008)),
            (P(0.032, 0.005), P(0.209, 0.020)),
            (P(NA), P(1.000, 0.000)),
        ),
        "LogNormal-VAE": (
            (P(0.326, 0.023), P(2.088, 0.381)),
            (P(0.072, 0.046), P(0.197, 0.079)),
            (P(0.026, 0.010), P(0.082, 0.051)),
            (P(0.143, 0.010), P(0.379, 0.056)),
        ),
        "Gamma-VAE": (
            (P(0.056, 0.004), P(0.082, 0.012)),
            (P(0.236, 0.100), P(0.342, 0.030)),
            (P(0.136, 0.048), P(0.306, 0.050)),
            (P(0.083, 0.015), P(0.166, 0.087)),
        ),
        "PH-VAE": (
            (P(0.022, 0.003), P(0.010, 0.002)),
            (P(0.051, 0.003), P(0.023, 0.012)),
            (P(0.020, 0.005), P(0.016, 0.009)),
            (P(0.080, 0.008), P(0.599, 0.008)),
        ),
    }.items()
}

# Relative errors of quantile and CVaR at three levels.
LEVELS = (0.95, 0.99, 0.995)
TABLE_2: dict[str, dict[str, dict[str, tuple[Printed, Printed, Printed]]]] = {
    "PH-VAE": {
        "Danish fire": {
            "QErr": (P(0.130, 0.052), P(0.456, 0.082), P(0.334, 0.050)),
            "CVaRErr": (P(0.263, 0.087), P(0.200, 0.137), P(0.192, 0.140)),
        },
        "word counts": {
            "QErr": (P(0.065, 0.029), P(0.096, 0.047), P(0.070, 0.056)),
            "CVaRErr": (P(0.219, 0.039), P(0.332, 0.043), P(0.402, 0.043)),
        },
    },
    "VAE": {
        "Danish fire": {
            "QErr": (P(0.423, 0.009), P(0.654, 0.018), P(0.702, 0.015)),
            "CVaRErr": (P(0.677, 0.007), P(0.809, 0.005), P(0.854, 0.003)),
        },
        "word counts": {
            "QErr": (P(0.435, 0.016), P(0.515, 0.036), P(0.558, 0.040)),
            "CVaRErr": (P(0.636, 0.034), P(0.720, 0.043), P(0.757, 0.049)),
        },
    },
}

# Tail KS and 99% quantile error on Pareto(2.4), by number of phases and weight of the divergence.
ABLATION: dict[tuple[int, float], tuple[Printed, Printed]] = {
    (10, 1.0): (P(0.084, 0.006), P(0.030, 0.036)),
    (5, 1.0): (P(0.093, 0.027), P(0.217, 0.177)),
    (15, 1.0): (P(0.055, 0.008), P(0.149, 0.254)),
    (10, 0.5): (P(0.110, 0.008), P(0.859, 0.642)),
    (10, 2.0): (P(0.083, 0.008), P(0.078, 0.067)),
}

# Correlation error, Kendall error, co-exceedance error at 99%.
DEPENDENCE: dict[str, dict[str, tuple[Printed, Printed, Printed]]] = {
    "5-D synthetic": {
        "Gaussian VAE": (P(0.5798), P(0.1429), P(1.38e-3)),
        "Independent PH-VAEs": (P(1.8824), P(0.2679), P(2.04e-3)),
        "PH-VAE": (P(0.5659), P(0.0672), P(5.44e-4)),
    },
    "equities": {
        "Gaussian VAE": (P(0.8848), P(0.2667), P(1.38e-3)),
        "Independent PH-VAEs": (P(1.8645), P(0.0359), P(2.05e-3)),
        "PH-VAE": (P(0.1716), P(0.0293), P(9.79e-4)),
    },
}

# Seconds per epoch with their deviation, seconds in total, final negative log-likelihood, by law and phases.
PHASES = (2, 4, 8, 16, 32)
TIMING: dict[str, dict[int, tuple[Printed, Printed, Printed]]] = {
    law: dict(zip(PHASES, cells, strict=True))
    for law, cells in {
        "Weibull": (
            (P(5.40, 0.25), P(72.5), P(1.0895)),
            (P(5.18, 0.16), P(67.6), P(1.0863)),
            (P(5.29, 0.24), P(69.1), P(1.0866)),
            (P(5.23, 0.17), P(68.1), P(1.0863)),
            (P(5.20, 0.11), P(67.3), P(1.0877)),
        ),
        "Lognormal": (
            (P(5.23, 0.19), P(68.5), P(1.8255)),
            (P(5.28, 0.15), P(68.3), P(1.8897)),
            (P(5.16, 0.12), P(67.0), P(1.8846)),
            (P(5.18, 0.18), P(67.5), P(1.8821)),
            (P(5.13, 0.07), P(67.1), P(1.8822)),
        ),
        "Burr": (
            (P(5.22, 0.14), P(68.0), P(1.5059)),
            (P(5.32, 0.21), P(68.6), P(1.4988)),
            (P(5.24, 0.22), P(67.8), P(1.4556)),
            (P(5.25, 0.18), P(67.7), P(1.4552)),
            (P(5.51, 0.33), P(71.3), P(1.4517)),
        ),
        "Pareto": (
            (P(5.12, 0.04), P(67.1), P(1.2670)),
            (P(5.19, 0.12), P(67.5), P(1.1111)),
            (P(5.27, 0.26), P(69.4), P(0.9852)),
            (P(5.29, 0.23), P(68.5), P(0.7973)),
            (P(5.20, 0.12), P(67.3), P(0.6182)),
        ),
    }.items()
}
