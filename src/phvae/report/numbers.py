"""Everything a report says, as JSON values: the page shows these numbers and no others."""

from collections.abc import Mapping, Sequence
from typing import Any

from phvae import __version__
from phvae.checkpoint import fingerprint
from phvae.report.backtest import backtest, zero_shares
from phvae.report.curves import tail_curves
from phvae.report.dependence import dependence
from phvae.report.known import cells, notes
from phvae.report.subject import Rows, Subject
from phvae.report.tables import layer_rows, return_rows, risk_rows
from phvae.report.wording import plain
from phvae.risk.certificate import certify_sides
from phvae.risk.estimate import CONFIDENCE
from phvae.risk.seen import SeenRows

__all__ = ["report_numbers"]

# Columns whose tails are drawn, the least trusted ones first; every column has its rows in the tables.
MOST_DRAWN = 12
# From the least to the most trusted.
VERDICTS = ("unsupported", "caution", "supported")


def report_numbers(
    subject: Subject,
    held_out: SeenRows | None,
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
    tested = subject.rows if held_out is None else held_out
    certificate = certify_sides(model, tested, [(side.position, side.minus) for side in subject.sides])
    verdicts = certificate.to_dict()["columns"]
    order = sorted(range(len(verdicts)), key=lambda place: VERDICTS.index(verdicts[place]["verdict"]))
    drawn = sorted(order[:MOST_DRAWN])
    found = {
        "title": names.get("title") or "Tail-risk report",
        "unit": unit,
        "phvae": __version__,
        "confidence": CONFIDENCE,
        "rtol": subject.rtol,
        "splice": subject.splice,
        "has_gpd": any(tail is not None for tail in subject.tails),
        "has_truth": any(law is not None for law in subject.truth),
        "model": {"name": names.get("model"), **_of_model(model)},
        "data": {"name": names.get("data"), **_of_rows(subject.rows)},
        "held_out": None if held_out is None else {"name": names.get("held_out"), **_of_rows(held_out)},
        "n_columns": len(subject.names),
        "signed": any(side.minus for side in subject.sides),
        "columns": _columns(subject),
        "cells": cells(subject),
        "notes": notes(subject),
        "verdicts": verdicts,
        "risk": risk_rows(subject, levels),
        "returns": {
            "events_per_period": events_per_period,
            "rows": return_rows(subject, periods, events_per_period or 1.0),
        },
        "layers": layer_rows(subject, layers, events_per_period) if layers else [],
        "dependence": dependence(subject),
        "backtest": backtest(subject, certificate, tested),
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


def _of_rows(rows: SeenRows) -> dict[str, Any]:
    return {"n_rows": rows.n_rows, "fingerprint": rows.digest, "of_the_fit": rows.of_the_fit}


def _columns(subject: Subject) -> Rows:
    """Counts, zeros, mean and largest value of every side, with the mean of the model."""
    rows = []
    answers = subject.ask(lambda losses: losses.mean())
    for place, (side, data, answer) in enumerate(zip(subject.sides, subject.data, answers, strict=True)):
        rows.append(
            {
                "name": side.name,
                "n": data.n,
                "zero_share": data.zero_share,
                "model_zero_share": zero_shares(subject, place)[1],
                "median": data.median,
                "mean": data.mean,
                "model_mean": answer["value"],
                "largest": data.largest,
            }
        )
    return rows
