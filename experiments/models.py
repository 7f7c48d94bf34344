"""Models of the tables, one line each."""

from functools import partial
from typing import Any

from experiments.frame import Kind, Model, Synthetic, Task
from phvae.baselines.baseline import Baseline
from phvae.baselines.decoder_families import (
    GammaVAE,
    GaussianVAE,
    LogNormalVAE,
    MeanDecodedGaussianVAE,
    StudentTVAE,
)
from phvae.baselines.maximum_likelihood import (
    BurrIIIFit,
    BurrXIIFit,
    LognormalFit,
    MaximumLikelihood,
    ParetoFit,
    WeibullFit,
)
from phvae.baselines.phase_type import IndependentPhaseTypeVAEs, PaperPhaseTypeVAE, PhaseTypeVAE
from phvae.baselines.references import Bootstrap, TrueLaw
from phvae.baselines.spliced import EmpiricalWithParetoTail

__all__ = ["COLUMN_MODELS", "OURS", "ROW_MODELS", "TABLE_MODELS", "TRUE_FAMILY", "TRUE_LAW", "model"]


def model(cls: Any, kind: Kind = "neural", *, name: str | None = None, searched: bool = True, **settings: Any) -> Model:
    """A model whose name is that of its class, with settings."""
    return Model(name or cls(**settings).name, partial(cls, **settings), kind, searched)


FAMILIES: dict[str, type[MaximumLikelihood]] = {
    "Weibull": WeibullFit,
    "Pareto": ParetoFit,
    "Lognormal": LognormalFit,
    "Burr XII": BurrXIIFit,
    "Burr III": BurrIIIFit,
}


def _true_law(task: Task) -> Baseline:
    assert isinstance(task, Synthetic)
    return TrueLaw(task.law)


def _true_family(task: Task) -> Baseline:
    return FAMILIES[task.name]()


OURS = model(PhaseTypeVAE, "ours")
PAPERS_OWN = model(PaperPhaseTypeVAE, "ours", searched=False)
TRUE_LAW = Model("true law", _true_law, "reference", by_task=True)
TRUE_FAMILY = Model("maximum likelihood, true family", _true_family, "reference", by_task=True)

NEURAL = [
    model(GaussianVAE),
    model(MeanDecodedGaussianVAE),
    model(StudentTVAE),
    model(LogNormalVAE),
    model(GammaVAE),
]
CLASSICAL = [
    model(EmpiricalWithParetoTail, "reference"),
    model(LognormalFit, "reference"),
    model(Bootstrap, "reference"),
]

# One column with a known law; one column of a file; several columns.
COLUMN_MODELS = [OURS, PAPERS_OWN, *NEURAL, TRUE_LAW, TRUE_FAMILY, *CLASSICAL]
ROW_MODELS = [OURS, PAPERS_OWN, *NEURAL, *CLASSICAL]
TABLE_MODELS = [
    OURS,
    PAPERS_OWN,
    model(IndependentPhaseTypeVAEs, "neural"),
    *NEURAL,
    model(EmpiricalWithParetoTail, "reference"),
    model(Bootstrap, "reference"),
]
