"""Gaps, censoring, intervals across zero, counts and bounds in columns with both signs."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats
from signed_models import fit, returns

from phvae import PHVAE
from phvae.distributions import MatrixPareto, SeriesPhaseType, TwoSided
from phvae.distributions.zero_atom import ZeroAtom
from phvae.layout import Layout
from phvae.observation import representative
from phvae.observed import Cells, read_cells
from phvae.signed_cells import points_of, sides

INF, NAN = math.inf, math.nan
SIGNED = np.array([True])
# Below one in a million on both sides, for a normal estimate.
SIGMAS = 4.9
QUIET = {"latent_dim": 0, "epochs": 0}


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def values(answer):
    return np.array(answer["value"])


def laplace(odds, losses, gains):
    """Asymmetric Laplace law: exponential on either side."""
    return TwoSided(odds, SeriesPhaseType([1.0], [losses]), SeriesPhaseType([1.0], [gains]))


ENDS = [(-3.0, -2.0), (-0.5, 0.7), (-1e-9, 1e-9), (0.4, 0.9), (-INF, -30.0), (-INF, 2.0), (-0.2, INF), (25.0, INF)]
ENDS += [(-40.0, -39.999), (30.0, 30.001), (-1.0, 0.0), (0.0, 1.0), (-INF, INF)]


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_an_interval_is_a_difference_of_distribution_functions_in_high_precision(low, high):
    mpmath = pytest.importorskip("mpmath")
    q, losses, gains = 0.4, 0.8, 1.7
    with mpmath.workdps(60):

        def below(x):
            if x < 0:
                return q * mpmath.exp(losses * mpmath.mpf(x))
            return 1 - (1 - q) * mpmath.exp(-gains * mpmath.mpf(x))

        wanted = float(mpmath.log(below(mpmath.mpf(high)) - below(mpmath.mpf(low))))
    law = laplace(math.log(q / (1 - q)), losses, gains)
    assert float(law.log_interval(low, high)) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    # an atom is in the intervals that hold zero
    atom = float(ZeroAtom(0.0, law).log_interval(low, high).exp())
    assert atom == pytest.approx(0.5 * math.exp(wanted) + 0.5 * (low < 0 <= high), rel=1e-9)


@pytest.mark.parametrize(
    ("low", "high"), [(-3.0, -2.0), (-0.5, 0.7), (-INF, -3.0), (-INF, 2.0), (-0.2, INF), (0.4, 0.9)]
)
def test_gradients_of_an_interval_reach_what_it_holds(low, high):
    def within(logit, losses, gains, shape):
        law = TwoSided(
            logit, MatrixPareto(SeriesPhaseType([0.3, 0.7], losses), shape), SeriesPhaseType([0.6, 0.4], gains)
        )
        return law.log_interval(low, high)

    parts = at(-0.3), at([0.5, 2.0]), at([0.7, 1.9]), at(1.4)
    parts = [part.requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(within, parts)
    gradients = torch.autograd.grad(within(*parts), parts, materialize_grads=True)
    losses, gains = (-INF < low < 0) or high < 0, low > 0 or 0 < high < INF
    for reached, gradient in ((losses, gradients[1]), (losses, gradients[3]), (gains, gradients[2])):
        assert bool((gradient != 0).any()) == reached


def test_a_row_is_the_product_of_what_its_cells_are():
    x = returns()
    model = fit(x, **QUIET, missing="model")
    laws = []
    for j in range(2):
        share, zeros = model.scaler_.loss_share_[j], model.scaler_.zero_share_[j]
        law = TwoSided(math.log(share / (1 - share)), model.phase_type(j, tail="lower"), model.phase_type(j))
        laws.append(law if not zeros else ZeroAtom(math.log(zeros / (1 - zeros)), law))
    row = np.array([[0.01, -0.02]])
    first, second = laws[0].log_prob(0.01), laws[1].log_prob(-0.02)

    def score(row, **beside):
        return model.score_samples(row, **beside)[0]

    near = {"abs": 1e-5}
    assert score(row) == pytest.approx(float(first + second), **near)
    assert score([[NAN, -0.02]]) == pytest.approx(float(second), **near)
    assert score(row, censored=np.array([[True, False]])) == pytest.approx(float(laws[0].log_sf(0.01) + second), **near)
    # a stop-loss order: no better than -0.02
    fill = np.array([[NAN, -INF]])
    assert score(row, lower=fill) == pytest.approx(float(first + laws[1].log_cdf(-0.02)), **near)
    wide = {"lower": np.array([[-0.03, NAN]]), "upper": np.array([[0.004, NAN]])}
    assert score(row, **wide) == pytest.approx(float(laws[0].log_interval(-0.03, 0.004) + second), **near)
    across = {"lower": np.array([[NAN, -0.001]]), "upper": np.array([[NAN, 0.0]])}
    assert score(row, **across) == pytest.approx(float(first + laws[1].log_interval(-0.001, 0.0)), **near)
    seen = {"entry": np.array([[-0.01, NAN]]), "exit": np.array([[0.05, -0.01]])}
    inside = laws[0].log_interval(-0.01, 0.05) + laws[1].log_cdf(-0.01)
    assert score(row, **seen) == pytest.approx(float(first + second - inside), **near)


N = 3000


def observed(kind, law, seed=5):
    """Rows of a law of which little is known, what is said beside them, and the share of rows that are values."""
    rng = np.random.default_rng(seed)
    x = law.rvs(size=(N, 1), random_state=rng)
    width = float(law.ppf(0.75) - law.ppf(0.25))
    if kind == "gaps":
        return np.where(rng.random((N, 1)) < 0.6, NAN, x), {}
    if kind == "interval":
        low = (np.floor(x / width - 0.3) + 0.3) * width
        cut = rng.random((N, 1)) < 0.6
        return x, {"lower": np.where(cut, low, NAN), "upper": np.where(cut, low + width, NAN)}
    other = law.rvs(size=(N, 1), random_state=rng) - 0.3 * width
    if kind == "censored":
        return np.minimum(x, other), {"censored": x > other}
    keep = (x > other)[:, 0]
    return x[keep], {"entry": other[keep]}


@pytest.mark.parametrize("kind", ["gaps", "interval", "censored", "truncated"])
def test_an_asymmetric_laplace_law_is_recovered_from_what_is_known_of_it(kind):
    """One phase on each side is that family: maximum likelihood estimates, with the errors of their curvature."""
    losses, gains = 90.0, 160.0
    law = stats.laplace_asymmetric(math.sqrt(gains / losses), scale=1 / math.sqrt(losses * gains))
    # the share of losses of a continuous asymmetric Laplace density follows from its rates
    q = gains / (losses + gains)
    x, beside = observed(kind, law)
    model = fit(x, **QUIET, n_phases=1, missing="model", **beside)
    found = [
        float(values(model.sf(0, [0.0], tail="lower"))[0]),
        float(model.phase_type(0, tail="lower").rates[0]),
        float(model.phase_type(0).rates[0]),
    ]
    cells = read_cells(x, ["x"], **beside, gaps=True, signed=SIGNED)
    low, high = at(cells.lower), at(cells.upper)

    def below(x, point):
        left, right = point[0] * (point[1].exp() * x).exp(), 1 - (1 - point[0]) * (-point[2].exp() * x).exp()
        return torch.where(x < 0, left, right)

    def total(point):
        """The log-likelihood in closed form."""
        loss, gain = point[0].log() + point[1] + point[1].exp() * low, (1 - point[0]).log() + point[2]
        exact = torch.where(low < 0, loss, gain - point[2].exp() * low)
        within = (below(high, point) - below(low, point)).log()
        known = torch.where(low == high, exact, within)[(low > -INF) | (high < INF)]
        return known.sum() - (0 if cells.entry is None else (1 - below(at(cells.entry), point)).log().sum())

    truth = at([q, math.log(losses), math.log(gains)])
    step = 1e-4 * torch.eye(3, dtype=torch.float64)
    information = [
        [
            -(total(truth + a + b) - total(truth + a - b) - total(truth - a + b) + total(truth - a - b)) / 4e-8
            for a in step
        ]
        for b in step
    ]
    covariance = torch.linalg.inv(at(information))
    error = covariance.diagonal().sqrt()
    gap = at([found[0], math.log(found[1]), math.log(found[2])]) - truth
    # the climbs stop where a step gains less than 0.01 nats: within sqrt(2 · 0.01) standard errors
    assert bool((gap.abs() < (SIGMAS + math.sqrt(0.02)) * error).all()), (gap / error).tolist()
    # and it is not the data that are so good: the errors are those of few values
    assert bool((error[1:] > 1 / math.sqrt(N)).all())


def test_many_intervals_of_many_widths_across_zero_say_all_that_they_say():
    rng = np.random.default_rng(32)
    n, losses, gains = 2500, 90.0, 160.0
    x = np.where(rng.random(n) < 0.64, -rng.exponential(1 / losses, n), rng.exponential(1 / gains, n))
    low, high = x - rng.exponential(0.015, n), x + rng.exponential(0.015, n)
    model = fit(x[:, None], **QUIET, n_phases=1, lower=low[:, None], upper=high[:, None])

    def loss(point):
        odds, *rates = point
        q = 1 / (1 + np.exp(-odds))

        def below(x):
            left, right = q * np.exp(rates[0] * np.minimum(x, 0)), 1 - (1 - q) * np.exp(-rates[1] * np.maximum(x, 0))
            return np.where(x < 0, left, right)

        return -np.log(below(high) - below(low)).sum()

    q = values(model.sf(0, [0.0], tail="lower"))[0]
    found = np.log(q / (1 - q)), *(float(model.phase_type(0, tail=tail).rates[0]) for tail in ("lower", "upper"))
    best = optimize.minimize(
        loss, [math.log(0.64 / 0.36), losses, gains], method="Nelder-Mead", options={"fatol": 1e-6}
    )
    # more different cells than are kept one by one; single precision of the decoder costs less than a thousandth
    assert loss(found) - best.fun < 0.02


@pytest.mark.parametrize("kind", ["gaps", "interval", "censored"])
def test_quantiles_of_a_student_law_are_recovered_in_both_tails(kind):
    law = stats.t(4, scale=0.01)
    x, beside = observed(kind, law, seed=11)
    model = fit(x, **QUIET, n_phases=8, missing="model", **beside)
    for level in (0.02, 0.1, 0.3, 0.7, 0.9):
        q = law.ppf(level)
        # a third of the rows at least say on which side of a quantile they are; and eight phases bend by two percent
        spread = SIGMAS * np.sqrt(level * (1 - level) / (N / 3)) / law.pdf(q) + 0.02 * abs(q)
        assert values(model.quantile(0, level))[0] == pytest.approx(q, abs=spread)


@pytest.mark.parametrize("kind", ["censored", "interval", "truncated"])
def test_a_fit_to_minus_what_is_known_is_the_mirror_image(kind):
    law = stats.laplace_asymmetric(1.4, scale=0.01)
    x, beside = observed(kind, law)
    x, beside = x[:600], {name: part[:600] for name, part in beside.items()}
    low, high = x.copy(), x.copy()
    if kind == "censored":
        high = np.where(beside["censored"], INF, x)
        ours, theirs = {"lower": low, "upper": high}, {"lower": -high, "upper": -low}
    elif kind == "interval":
        ours, theirs = beside, {"lower": -beside["upper"], "upper": -beside["lower"]}
    else:
        ours, theirs = beside, {"exit": -beside["entry"]}
    one, other = fit(x, **QUIET, n_phases=3, **ours), fit(-x, **QUIET, n_phases=3, **theirs)
    levels = [0.01, 0.2, 0.6, 0.97]
    for tail, turned in (("upper", "lower"), ("lower", "upper")):
        # both climbs stop within 1e-4 nats of the top
        expected = values(other.quantile(0, levels, tail=turned))
        assert values(one.quantile(0, levels, tail=tail)) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_weights_count_cells_of_every_kind():
    law = stats.laplace_asymmetric(1.4, scale=0.01)
    x, beside = observed("censored", law)
    x, cut = x[:400], beside["censored"][:400]
    x = np.where(np.arange(400)[:, None] % 7 == 0, NAN, x)
    cut = cut & ~np.isnan(x)
    w = np.arange(400) % 3
    common = {**QUIET, "n_phases": 3, "missing": "model", "support": "real", "hidden": (8,), "random_state": 0}
    weighted = PHVAE(**common).fit(x, sample_weight=w, censored=cut)
    repeated = PHVAE(**common).fit(np.repeat(x, w, axis=0), censored=np.repeat(cut, w, axis=0))
    levels = [0.01, 0.3, 0.9]
    assert values(weighted.quantile(0, levels)) == pytest.approx(values(repeated.quantile(0, levels)), rel=1e-4)


def test_gaps_are_learned_through_and_filled_with_draws_of_their_law():
    rng = np.random.default_rng(4)
    common = rng.laplace(size=500)
    x = 0.01 * np.column_stack([common + 0.3 * rng.laplace(size=500), common + 0.3 * rng.laplace(size=500)])
    gappy = np.where(rng.random(x.shape) < 0.3, NAN, x)
    gappy[np.isnan(gappy).all(1)] = x[np.isnan(gappy).all(1)]
    model = fit(gappy, missing="model", latent_dim=1, epochs=40, batch_size=64, learning_rate=0.02, n_phases=4)
    assert np.isfinite(model.score(gappy))
    filled = model.impute(gappy, n_draws=5, random_state=0)
    filled = np.stack([np.asarray(part) for part in filled])
    known = ~np.isnan(gappy)
    assert (filled[:, known] == gappy[known]).all()
    assert np.isfinite(filled).all()
    # cells are drawn beside their row: losses mostly where the other column has one
    one = np.isnan(gappy[:, 0]) & (gappy[:, 1] < -0.01)
    assert (filled[:, one, 0] < 0).mean() > 0.7
    assert model.score(gappy) > fit(gappy, missing="model", **QUIET).score(gappy) + 0.1


def test_imputed_cells_lie_between_their_ends_and_follow_the_law_there():
    model = fit(returns()[:, :1], **QUIET)
    n = 1000
    x = np.full((n, 1), NAN)
    low, high = np.full((n, 1), -0.004), np.full((n, 1), 0.006)
    drawn = np.asarray(model.impute(x, lower=low, upper=high, random_state=3))[:, 0]
    assert ((drawn > -0.004) & (drawn <= 0.006)).all()
    ends = values(model.cdf(0, [-0.004, 0.006]))

    def below(points):
        return (values(model.cdf(0, points)) - ends[0]) / (ends[1] - ends[0])

    # fails once in 1e7 runs of other seeds
    assert stats.kstest(drawn, below).pvalue > 1e-7
    lowest = np.asarray(model.impute(x, lower=np.full((n, 1), -INF), upper=np.full((n, 1), -0.02), random_state=3))
    assert (lowest <= -0.02).all()


def test_counts_and_columns_with_zeros_stand_beside_returns():
    rng = np.random.default_rng(8)
    n = 400
    frame = pd.DataFrame(
        {
            "return": returns()[:n, 0],
            "orders": rng.poisson(3.0, n).astype(float),
            "loss": np.where(rng.random(n) < 0.6, 0.0, rng.exponential(size=n)),
            "net": np.rint(rng.laplace(size=n) * 3),
        }
    )
    model = fit(frame, support={"return": "real", "net": "real"}, counts=["orders", "net"], latent_dim=1, epochs=1)
    assert model.settings_["counts"] == [1, 3]
    assert model.scaler_.zero_share_.tolist() == [0, 0, pytest.approx((frame["loss"] == 0).mean()), 0]
    sample = model.sample(2000, 0)
    assert (sample["orders"] % 1 == 0).all()
    assert (sample["orders"] >= 0).all()
    assert (sample["net"] % 1 == 0).all()
    assert (sample["net"] < 0).any()
    assert 0.4 < (sample["loss"] == 0).mean() < 0.8
    # counts that nobody asked for are found among the columns without signs
    automatic = fit(frame[["return", "orders"]], support={"return": "real"})
    assert automatic.settings_["counts"] == [1]
    # a whole number of a signed column is the probability of what is rounded to it
    alone = fit(frame[["net"]], counts=["net"], **QUIET)
    score = alone.score_samples(pd.DataFrame({"net": [-2.0, 0.0]}))
    chances = np.diff(values(alone.cdf("net", [-2.5, -1.5, -0.5, 0.5])))[[0, 2]]
    assert np.exp(score) == pytest.approx(chances, rel=1e-6)


def test_an_atom_between_the_sides_is_told_from_intervals_that_hold_zero():
    rng = np.random.default_rng(9)
    n = 4000
    law = stats.laplace_asymmetric(1.4, scale=0.01)
    x = np.where(rng.random(n) < 0.3, 0.0, law.rvs(size=n, random_state=rng))[:, None]
    wide = rng.random((n, 1)) < 0.5
    beside = {"lower": np.where(wide & (np.abs(x) < 0.008), -0.008, NAN)}
    beside["upper"] = np.where(np.isnan(beside["lower"]), NAN, 0.008)
    model = fit(x, **QUIET, n_phases=1, **beside)
    zero = values(model.cdf(0, [0.0, -1e-12]))
    # half of the rows at least say whether they are zeros
    assert zero[0] - zero[1] == pytest.approx(0.3, abs=SIGMAS * math.sqrt(0.3 * 0.7 / (n / 2)))


def test_what_stands_for_a_cell_is_on_its_side():
    cells = read_cells(
        np.array([[NAN], [-3.0], [-3.0], [2.0], [NAN]]),
        ["x"],
        lower=np.array([[NAN], [-INF], [NAN], [NAN], [-2.0]]),
        upper=np.array([[NAN], [NAN], [NAN], [NAN], [6.0]]),
        censored=np.array([[False], [False], [True], [True], [False]]),
        gaps=True,
        signed=SIGNED,
    )
    assert cells.lower[:, 0].tolist() == [-INF, -INF, -3.0, 2.0, -2.0]
    assert cells.upper[:, 0].tolist() == [INF, -3.0, INF, INF, 6.0]
    layout = Layout(1, intervals=True)
    shown = representative(at(cells.rows(layout)), layout, at([0.0]), torch.tensor([True]))
    assert shown[:, 0].tolist() == [0.0, -3.0, -3.0, 2.0, 2.0]
    assert points_of(cells, SIGNED)[:, 0].tolist() == [0.0, -3.0, 0.0, 2.0, 0.0]


def test_an_interval_across_zero_counts_on_both_sides_by_the_rows_in_it():
    lower = np.array([[-1.0], [1.0], [2.0], [3.0], [-4.0]])
    upper = np.array([[-1.0], [1.0], [2.0], [3.0], [2.5]])
    gains, losses = (side[0] for side in sides(Cells(lower, upper), SIGNED, None))
    # of the values from -4 to 2.5 two in three are gains
    assert gains.sketch.weights.sum() == pytest.approx(3 + 2 / 3)
    assert losses.sketch.weights.sum() == pytest.approx(1 + 1 / 3)
    assert losses.ends[:, :2].tolist() == [[1.0, 1.0], [-INF, 4.0]]


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"lower": [[1.0]], "upper": [[-1.0]]}, "lower of column 'x', row 0 is 1 and upper is -1"),
        ({"lower": [[INF]], "upper": [[INF]]}, "lower of column 'x', row 0 is inf"),
        ({"lower": [[-INF]], "upper": [[-INF]]}, "upper of column 'x', row 0 is -inf"),
        ({"entry": [[0.0]]}, "entry of column 'x', row 0 is 0, above the value -2"),
        ({"exit": [[-3.0]]}, "exit of column 'x', row 0 is -3, below the value -2"),
        ({"entry": [[2.0]], "exit": [[-3.0]]}, "entry of column 'x', row 0 is 2 and exit is -3"),
    ],
)
def test_bounds_that_cannot_be_are_one_line(beside, message):
    with pytest.raises(ValueError, match=f"^{message}") as error:
        read_cells(np.array([[-2.0]]), ["x"], **beside, signed=SIGNED)
    assert "\n" not in str(error.value)


def test_a_model_of_cells_is_kept_in_its_file(tmp_path):
    x = returns()[:300].copy()
    x[::5, 0] = NAN
    model = fit(x, missing="model", latent_dim=2, epochs=1, lower=np.where(x < -0.02, -INF, NAN))
    model.save(tmp_path / "m.phvae")
    again = PHVAE.load(tmp_path / "m.phvae")
    assert PHVAE.verify(tmp_path / "m.phvae").largest_difference == 0
    assert again.score_samples(x[:20]).tolist() == model.score_samples(x[:20]).tolist()
    assert again.transform(x[:20]).tolist() == model.transform(x[:20]).tolist()


def test_a_side_of_which_no_value_is_known_keeps_the_ends_that_were_reached():
    x = returns()[:, :1]
    losses = x < 0
    # every loss is only known to be at least so large
    model = fit(x, **QUIET, lower=np.where(losses, -INF, NAN))
    record = model.tail_record_
    assert record.losses[0].largest == -x.min()
    assert record.columns[0].largest == x.max()
    assert values(model.quantile(0, 0.01))[0] < np.quantile(x, 0.01)


def test_the_encoder_is_told_on_which_side_a_cell_is_open():
    x = returns()[:200].copy()
    model = fit(x, latent_dim=1, epochs=1, censored=np.arange(400).reshape(200, 2) % 5 == 0)
    encoder = model.vae_.encoder
    assert encoder.layout.flagged
    rows = at([[-0.01, 0.02], [-0.01, -INF], [NAN, 0.02]])
    ends = at([[-0.01, 0.02], [INF, 0.02], [NAN, 0.03]])
    rows[2, 0], ends[2, 0] = -INF, INF
    flags = encoder.features(torch.cat((rows, ends), 1))[:, 4:].reshape(3, 4, 2)
    # missing, censored from the right, in an interval, censored from the left
    assert flags[:, :, 0].argmax(1).tolist()[1:] == [1, 0]
    assert flags[:, :, 1].argmax(1).tolist()[1:] == [3, 2]
    assert flags.sum(1).tolist() == [[0, 0], [1, 1], [1, 1]]
