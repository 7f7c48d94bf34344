"""Figures show the law: every rate and start probability appears, and the tail curve is the survival function."""

import numpy as np
import pytest
import torch

from phvae.distributions.phase_type import PhaseType, SeriesPhaseType
from phvae.plots import phase_diagram, tail_plot


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.mark.parametrize("m", [1, 3, 10])
def test_a_series_chain_shows_every_phase_rate_and_start(m, tmp_path):
    rates = torch.arange(1, m + 1, dtype=torch.float64) * 1.5
    ax = phase_diagram(SeriesPhaseType(torch.full((m,), 1 / m, dtype=torch.float64), rates))
    shown = texts(ax)
    assert len(ax.patches) == m
    assert all(f"{float(rate):.3g}" in shown for rate in rates)
    assert shown.count(f"{100 / m:.0f}%") >= m
    assert shown.count("exit") == 1
    ax.figure.savefig(tmp_path / "chain.png")


def test_a_general_chain_shows_every_transition_and_exit(tmp_path):
    generator = [[-2.0, 1.0, 0.5], [0.3, -1.0, 0.7], [0.4, 0.0, -1.5]]
    ax = phase_diagram(PhaseType([0.6, 0.4, 0.0], generator))
    shown = texts(ax)
    assert {"1", "2", "3", "60%", "40%", "0.5", "0.3", "0.7", "0.4", "exit 0.5", "exit 1.1"} <= set(shown)
    assert not any(text.startswith("exit") and text not in ("exit 0.5", "exit 1.1") for text in shown)
    ax.figure.savefig(tmp_path / "chain.png")


def test_a_batch_of_laws_is_refused():
    with pytest.raises(ValueError, match="batch shape"):
        phase_diagram(SeriesPhaseType(torch.full((2, 3), 1 / 3), torch.ones(2, 3).cumsum(-1)))


def test_the_tail_curve_is_the_survival_function_and_is_dashed_beyond_the_data():
    law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    x = np.random.default_rng(0).exponential(size=200)
    ax = tail_plot(law, x, truth=law, unit="days")
    lines = {line.get_label(): line for line in ax.get_lines()}
    for name in ("phase-type law", "extrapolated", "true law"):
        at, height = lines[name].get_data()
        np.testing.assert_allclose(height, law.sf(torch.as_tensor(at)).numpy(), rtol=1e-9)
    assert lines["phase-type law"].get_xdata()[-1] == pytest.approx(x.max())
    assert lines["extrapolated"].get_xdata()[0] == pytest.approx(x.max())
    at, share = lines["data (200 rows)"].get_data()
    assert at[-1] == x.max()
    assert share[-1] == 1 / 200
    assert ax.get_xlabel() == "x [days]"


def test_axes_given_are_axes_returned():
    from matplotlib.figure import Figure

    law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    ax = Figure().add_subplot()
    assert phase_diagram(law, ax) is ax
    assert tail_plot(law, ax=ax) is ax
