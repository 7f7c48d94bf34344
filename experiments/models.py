"""Models of the tables, one line each; more come from files of others."""

import runpy
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
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
from phvae.baselines.t3vae import T3VAE
from phvae.baselines.tail_flow import LogTailTransformFlow, TailTransformFlow
from phvae.baselines.xvae import XVAE, XVAEWithParetoMargins

__all__ = ["COLUMN_MODELS", "OURS", "ROW_MODELS", "TABLE_MODELS", "TRUE_FAMILY", "TRUE_LAW", "include", "model"]


def model(
    cls: Any,
    kind: Kind = "neural",
    *,
    name: str | None = None,
    searched: bool | None = None,
    choices: Sequence[dict[str, float]] = (),
    own_epochs: bool = False,
    tuned_as: str | None = None,
    true_family_of: str | None = None,
    later: float = 0,
    **settings: Any,
) -> Model:
    """A model whose name is that of its class, with settings; references are not searched unless they say so."""
    return Model(
        name or cls(**settings).name,
        partial(cls, **settings),
        kind,
        kind != "reference" if searched is None else searched,
        tuple(choices),
        own_epochs,
        tuned_as=tuned_as,
        true_family_of=true_family_of,
        later=later,
    )


def include(path: Path) -> None:
    """Put the ``MODELS`` of a file into the tables of all models, in this process."""
    if not path.is_file():
        raise ValueError(f"--with {path}: there is no such file; give a Python file that has a list MODELS")
    found = runpy.run_path(str(path), run_name=path.stem).get("MODELS")
    if not isinstance(found, Sequence) or not all(isinstance(one, Model) for one in found):
        raise ValueError(f"--with {path}: it has no MODELS; give a list of what experiments.models.model returns")
    for name in WITH_ALL_MODELS:
        table: dict[str, Model] = import_module(f"experiments.{name}").MODELS
        if known := [one.name for one in found if one.name in table]:
            raise ValueError(f"--with {path}: {known[0]!r} is in {name} already; give a name of its own")
        table.update({one.name: one for one in found})


# Experiments that have all models.
WITH_ALL_MODELS = ("table1", "table2", "dependence")
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
PAPERS_OWN = model(PaperPhaseTypeVAE, "ours", searched=False, own_epochs=True)
TRUE_LAW = Model("true law", _true_law, "reference", searched=False, by_task=True)
TRUE_FAMILY = Model("maximum likelihood, true family", _true_family, "reference", searched=False, by_task=True)
# Its authors leave both open.
T3_CHOICES = [{"degrees": degrees, "spread": spread} for degrees in (3.0, 9.0, 15.0) for spread in (0.1, 1.0)]

NEURAL = [
    model(GaussianVAE),
    model(MeanDecodedGaussianVAE, tuned_as=GaussianVAE.name),
    model(StudentTVAE),
    model(T3VAE, name="t3-VAE", choices=T3_CHOICES),
    model(XVAE),
    model(LogNormalVAE, true_family_of="Lognormal"),
    model(GammaVAE),
]
# They are told to have power tails, which is what these tables ask for.
TOLD_TAILS = [
    model(XVAEWithParetoMargins, "reference", searched=True),
    model(TailTransformFlow, "reference", searched=True, later=0.99),
    model(LogTailTransformFlow, "reference", searched=True, later=0.99),
]
CLASSICAL = [
    model(EmpiricalWithParetoTail, "reference"),
    model(LognormalFit, "reference"),
    model(Bootstrap, "reference"),
]

# One column with a known law; one column of a file; several columns.
COLUMN_MODELS = [OURS, PAPERS_OWN, *NEURAL, *TOLD_TAILS, TRUE_LAW, TRUE_FAMILY, *CLASSICAL]
ROW_MODELS = [OURS, PAPERS_OWN, *NEURAL, *TOLD_TAILS, *CLASSICAL]
TABLE_MODELS = [
    OURS,
    PAPERS_OWN,
    model(IndependentPhaseTypeVAEs, tuned_as=OURS.name),
    *NEURAL,
    *TOLD_TAILS,
    model(EmpiricalWithParetoTail, "reference"),
    model(Bootstrap, "reference"),
]
