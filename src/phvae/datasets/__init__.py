"""Data with a known law, and the public data sets of the field.

>>> law = PAPER_LAWS["Weibull"]
>>> law.sample(3, seed=0).round(3).tolist(), round(float(law.isf(0.01)), 3)
([1.017, 0.235, 0.019], 6.746)
"""

from phvae.datasets.copulas import CLAIMS, INDEPENDENT_BLOCKS, PAPER_COPULA, StudentCopula
from phvae.datasets.laws import BurrIII, BurrXII, Law, Lognormal, Pareto, Weibull, WithZeros
from phvae.datasets.public import Dataset, claims, danish_fire, danish_fire_parts, equity_returns, word_counts
from phvae.datasets.sources import DataNotFound

__all__ = [
    "CLAIMS",
    "INDEPENDENT_BLOCKS",
    "PAPER_COPULA",
    "PAPER_LAWS",
    "BurrIII",
    "BurrXII",
    "DataNotFound",
    "Dataset",
    "Law",
    "Lognormal",
    "Pareto",
    "StudentCopula",
    "Weibull",
    "WithZeros",
    "claims",
    "danish_fire",
    "danish_fire_parts",
    "equity_returns",
    "word_counts",
]

# The settings of the paper's univariate table; its Burr row mixes the two laws of that name.
PAPER_LAWS: dict[str, Law] = {
    "Weibull": Weibull(0.8),
    "Pareto": Pareto(2.4),
    "Lognormal": Lognormal(0.0, 1.5),
    "Burr XII": BurrXII(1.5, 0.8),
    "Burr III": BurrIII(1.5, 0.8),
}
