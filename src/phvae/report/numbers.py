"""Everything a report says, as JSON values: the page shows these numbers and no others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from phvae import __version__
from phvae.checkpoint import fingerprint
from phvae.report.backtest import backtest
from phvae.report.curves import tail_curves
from phvae.report.dependence import dependence
from phvae.report.subject import Rows, Subject
from phvae.report.tables import layer_rows, return_rows, risk_rows
from phvae.report.wording import plain
from phvae.risk.estimate import CONFIDENCE

__all__ = ["report_numbers"]

# Columns whose tails are drawn, the least trusted ones first; every column has its rows in the tables.
MOST_DRAWN = 12
# From the least to the most trusted.
VERDICTS = ("unsupported", "caution", "supported")


def report_numbers(
    subject: Subject,
    X: Any,
    held_out: Any,
    *,
    names: Mapping[str, str | None],
    unit: str,
    levels: Sequence[float],
    periods: Sequence[float],
    events_per_period: float | None,
    layers: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    """The numbers of a report; arguments as in `phvae.report.tail_report`."""
    model = subject.model
    tested = X if held_out is None else held_out
    certificate = model.tail_certificate(tested)
    verdicts = certificate.to_dict()["columns"]
    order = sorted(range(len(verdicts)), key=lambda j: VERDICTS.index(verdicts[j]["verdict"]))
    drawn = sorted(order[:MOST_DRAWN])
    rows = model._read(tested, reset=False).values
    found = {
        "title": names.get("title") or "Tail-risk report",
        "unit": unit,
        "phvae": __version__,
        "confidence": CONFIDENCE,
        "rtol": subject.rtol,
        "splice": subject.splice,
        "has_truth": any(law is not None for law in subject.truth),
        "model": {"name": names.get("model"), **_of_model(model)},
        "data": {"name": names.get("data"), **_of_rows(subject.values, model)},
        "held_out": None if held_out is None else {"name": names.get("held_out"), **_of_rows(rows, model)},
        "columns": _columns(subject),
        "verdicts": verdicts,
        "risk": risk_rows(subject, levels),
        "returns": {
            "events_per_period": events_per_period,
            "rows": return_rows(subject, periods, events_per_period or 1.0),
        },
        "layers": layer_rows(subject, layers, events_per_period) if layers else [],
        "dependence": dependence(subject),
        "backtest": backtest(subject, certificate, rows),
        "training": {
            **model.history_.to_dict(),
            "best_epoch": model.history_.best_epoch,
            "note": certificate.training,
        },
        "curves": [tail_curves(subject, j, certificate.columns[j].trust_point) for j in drawn],
    }
    numbers: dict[str, Any] = plain(found)
    return numbers


def _of_model(model: Any) -> dict[str, Any]:
    """What a model is, with a digest of its parameters."""
    settings = model.settings_
    shown = ("n_rows", "n_phases", "latent_dim", "prior", "tail", "seed")
    return {
        **{name: settings.get(name) for name in shown},
        "n_parameters": sum(value.numel() for value in model.vae_.parameters()),
        "epochs": len(model.history_),
        "fingerprint": fingerprint(*model.vae_.state_dict().values()),
        "data_fingerprint": model.fingerprint_,
    }


def _of_rows(values: Any, model: Any) -> dict[str, Any]:
    digest = fingerprint(torch.from_numpy(np.require(values, requirements=["C", "W"])))
    return {"n_rows": len(values), "fingerprint": digest, "of_the_fit": digest == model.fingerprint_}


def _columns(subject: Subject) -> Rows:
    """Counts, zeros, mean and largest value of every column, with the mean of the model."""
    rows = []
    for position, answer in enumerate(subject.ask(lambda losses: losses.mean())):
        x = subject.column(position)
        rows.append(
            {
                "name": subject.names[position],
                "n": len(x),
                "zero_share": float((x == 0).mean()),
                "median": float(np.median(x)),
                "mean": float(x.mean()),
                "model_mean": answer["value"],
                "largest": float(x[0]),
            }
        )
    return rows
