"""Answers about signed columns: two exact tails, each the mirror image of the other."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from risk_models import exact, inside
from signed_models import fit, model, returns

from phvae.distributions import TwoSided
from phvae.risk.sources import Column
from phvae.risk.splice import Spliced
from phvae.risk.two_tails import TwoTails

LEVELS = [0.001, 0.3, 0.9, 0.999]
POINTS = [-0.2, -0.01, 0.004, 0.3]
SPLICES = [None, "gpd"]


def values(answer):
    return answer["value"]


def at(numbers):
    return torch.as_tensor(numbers, dtype=torch.float64)


def test_without_latent_variables_every_answer_is_the_closed_form_of_a_two_sided_law():
    plain = model(latent_dim=0)
    share = plain.scaler_.loss_share_[0]
    law = TwoSided(math.log(share / (1 - share)), plain.phase_type(0, tail="lower"), plain.phase_type(0))
    mirrored = TwoSided(math.log((1 - share) / share), plain.phase_type(0), plain.phase_type(0, tail="lower"))
    for tail, own in (("upper", law), ("lower", mirrored)):
        x = at(POINTS)
        for name, question, wanted in [
            ("sf", (0, POINTS), own.sf(x)),
            ("log_cdf", (0, POINTS), own.log_cdf(x)),
            ("pdf", (0, POINTS), own.log_prob(x).exp()),
            ("hazard", (0, POINTS), (own.log_prob(x) - own.log_sf(x)).exp()),
            ("mean_excess", (0, POINTS), own.mean_excess(x)),
            ("quantile", (0, LEVELS), own.icdf(at(LEVELS))),
            ("isf", (0, [0.9, 1e-9, 1e-15]), own.isf(at([0.9, 1e-9, 1e-15]))),
            ("cvar", (LEVELS, 0), own.cvar(at(LEVELS))),
            ("mean", (0,), own.mean),
            ("std", (0,), own.stddev),
            ("return_level", ([10, 1000], 2.5, 0), own.isf(at([1 / 25, 1 / 2500]))),
            ("limited_expected_value", (0, [0.02]), own.mean - own.log_excess(at([0.02])).exp()),
        ]:
            answer = getattr(plain, name)(*question, tail=tail)
            # parameters of the decoder are single precision
            assert values(answer) == pytest.approx(np.atleast_1d(wanted.numpy()), rel=1e-6), name
            assert answer["standard_error"].tolist() == [0.0] * len(answer)
            assert set(answer["column"]) == {"x0" if tail == "upper" else "-x0"}


@pytest.mark.parametrize("splice", SPLICES)
def test_the_lower_tail_is_the_upper_one_of_minus_the_column(splice):
    one = model()

    def ask(name, *question, tail="upper"):
        return values(getattr(one, name)(*question, splice=splice, tail=tail, rtol=0.01))

    # the two sides are integrated over different points, each to a hundredth: five standard errors are allowed
    x, p = np.array(POINTS), np.array(LEVELS)
    assert ask("sf", 1, x) == pytest.approx(ask("cdf", 1, -x, tail="lower"), rel=0.05)
    assert ask("pdf", 1, x) == pytest.approx(ask("pdf", 1, -x, tail="lower"), rel=0.05)
    assert ask("quantile", 1, p) == pytest.approx(-ask("isf", 1, p, tail="lower"), rel=0.05)
    mean, size = float(ask("mean", 1)[0]), float(ask("std", 1)[0])
    assert ask("mean", 1, tail="lower")[0] == pytest.approx(-mean, abs=0.02 * size)
    assert ask("std", 1, tail="lower")[0] == pytest.approx(size, rel=0.05)
    # the whole mean is made of the worst and of the best outcomes
    worst, best = ask("cvar", p, 1), ask("cvar", 1 - p, 1, tail="lower")
    assert (1 - p) * worst - p * best == pytest.approx(np.full(4, mean), abs=0.05 * size)


def test_a_fit_to_minus_the_rows_is_the_mirror_image():
    plain, mirrored = model(latent_dim=0), fit(-returns())
    questions = [
        ("sf", (None, POINTS)),
        ("quantile", (None, LEVELS)),
        ("cvar", (0.99,)),
        ("mean", ()),
        ("layer", (None, 0.02, [-0.01, 0.01])),
        ("joint_sf", ({0: 0.01, 1: 0.02},)),
        ("chi", (0.95,)),
    ]
    for tail, other in (("upper", "lower"), ("lower", "upper")):
        for name, question in questions:
            answers = (getattr(plain, name)(*question, tail=tail), getattr(mirrored, name)(*question, tail=other))
            assert values(answers[0]) == pytest.approx(values(answers[1]), rel=1e-5), name
            assert answers[0]["extrapolated"].tolist() == answers[1]["extrapolated"].tolist()
        ours, theirs = plain.tail_certificate(returns(), tail=tail), mirrored.tail_certificate(-returns(), tail=other)
        for a, b in zip(ours.columns, theirs.columns, strict=True):
            assert (a.verdict, a.n, a.largest, a.support) == (b.verdict, b.n, b.largest, b.support)
            assert a.trust_point == pytest.approx(b.trust_point, rel=1e-5)
            assert [test.observed for test in a.tests] == [test.observed for test in b.tests]
            assert a.words.count('tail="pareto"') == b.words.count('tail="pareto"')
    rows = plain.score_samples(returns())
    assert mirrored.score_samples(-returns()) == pytest.approx(rows, abs=1e-5)


@pytest.mark.parametrize("tail", ["upper", "lower"])
@pytest.mark.parametrize("power", [2, 6, 12])
def test_probabilities_down_to_1e_12_are_those_of_an_exact_integral_in_both_tails(power, tail):
    one = model()
    probability = 10.0**-power
    x = float(values(one.isf(0, probability, tail=tail))[0])
    law = inside(one).vae.decoder.column
    truth = exact(lambda z: (law(z, 0).log_sf(x) if tail == "upper" else law(z, 0).log_cdf(-x))[:, 0].exp())
    answer = one.sf(0, x, tail=tail)[0]
    assert x > 0
    assert answer["value"] == pytest.approx(float(truth), rel=0.01)
    assert abs(answer["value"] - truth) < 8 * answer["standard_error"] + 1e-9 * truth
    assert float(truth) == pytest.approx(probability, rel=0.01)
    # the same number as a level of the other side
    if power < 10:
        assert values(one.quantile(0, probability, tail="lower" if tail == "upper" else "upper"))[0] == pytest.approx(
            -x, rel=1e-3
        )


def nodes(low, high, panels=80, order=8):
    """Gauss' points and weights between ends, in panels that widen away from zero."""
    points, weights = (at(part) for part in np.polynomial.legendre.leggauss(order))
    size = 1e-5
    edges = size * at(np.sinh(np.linspace(np.arcsinh(low / size), np.arcsinh(high / size), panels + 1)))
    half = edges.diff()[:, None] / 2
    return (edges[:-1, None] + half * (1 + points)).flatten(), (half * weights).flatten()


@pytest.mark.parametrize("splice", SPLICES)
@pytest.mark.parametrize("tail", ["upper", "lower"])
def test_density_distribution_and_moments_are_integrals_of_each_other(tail, splice):
    fitted = inside(model()).asked(tail, [1])
    # few points: every replicate is a law of its own
    law = Column(fitted, 1, splice).at()(16)
    assert isinstance(law, TwoTails) == (splice == "gpd")
    far, zero = 1e4, at([0.0])
    kinks = [0.0] if splice is None else [-law.losses.threshold, 0.0, law.upper.threshold]

    def integral(function, low, high):
        cuts = [low, *(cut for cut in kinks if low < cut < high), high]
        return sum((function(x) * weights).sum(-1) for x, weights in (nodes(*ends) for ends in pairwise(cuts)))

    def density(x):
        return law.log_pdf(x).exp()

    def near(x, wanted, **tolerance):
        assert torch.allclose(x, wanted, **{"rtol": 1e-6, "atol": 1e-8, **tolerance})

    atom = (law.log_cdf(zero).exp() - law.log_cdf(at([-1e-300])).exp())[:, 0]
    assert bool(((atom > 0.05) & (atom < 0.5)).all())
    near(integral(density, -far, far), 1 - atom)
    near(law.mean, integral(lambda x: x * density(x), -far, far), atol=1e-6)
    for u in (-0.4, -0.005, 0.02):
        below = integral(density, -far, u)
        near(law.log_cdf(at([u]))[:, 0].exp(), below + (atom if u >= 0 else 0))
        near(law.log_sf(at([u]))[:, 0].exp(), 1 - below - (atom if u >= 0 else 0))
        excess = integral(lambda x, u=u: (x - u) * density(x), u, far) + (atom * -u if u < 0 else 0)
        near(law.log_excess(at([u]))[:, 0].exp(), excess, atol=1e-6)
    for p in (0.03, 0.55, 0.98):
        q = law.isf(at([p]))
        beyond = law.log_excess(q)[:, 0].exp() / p + q[:, 0]
        near(law.tail_mean(at([p]))[:, 0], beyond)
        # the mean of the quantiles, which bend at the ends of the atom, in panels fine at the rare end
        levels, weights = nodes(0.0, p, panels=24)
        near((law.isf(levels) * weights).sum(-1) / p, beyond, rtol=2e-3, atol=1e-5)


def test_quantiles_are_the_generalised_inverse_on_both_sides_and_in_the_atom():
    one = model()
    levels = np.array([1e-7, 0.01, 0.2, 0.8, 0.99])
    x = values(one.quantile(1, levels))
    assert (np.diff(x) > 0).all()
    # quantiles are known to a thousandth, and far out their probability moves some ten times as much
    assert values(one.cdf(1, x)) == pytest.approx(levels, rel=0.02)
    no_gain = values(one.cdf(1, [0.0]))[0]
    loss = values(one.sf(1, [0.0], tail="lower"))[0]
    inside_atom = np.linspace(loss, no_gain, 7)[1:-1]
    assert values(one.quantile(1, inside_atom)).tolist() == [0.0] * 5
    assert values(one.isf(1, 1 - inside_atom)).tolist() == [0.0] * 5


def test_the_expectile_weighs_gains_against_losses():
    plain = model(latent_dim=0)
    levels = np.array([0.1, 0.5, 0.99])
    upper = values(plain.expectile(levels, 0))
    assert values(plain.expectile(1 - levels, 0, tail="lower")) == pytest.approx(-upper, rel=1e-6)
    assert upper[1] == pytest.approx(values(plain.mean(0))[0], rel=1e-9)
    for level, e in zip(levels, upper, strict=True):
        above = values(plain.mean_excess(0, e))[0] * values(plain.sf(0, e))[0]
        below = values(plain.mean_excess(0, -e, tail="lower"))[0] * values(plain.sf(0, -e, tail="lower"))[0]
        assert level * above == pytest.approx((1 - level) * below, rel=1e-6)


def test_both_ends_of_the_observations_are_where_answers_are_extrapolated():
    one, x = model(), returns()[:, 0]
    points = np.array([1.01 * x.min(), 0.99 * x.min(), 0.99 * x.max(), 1.01 * x.max()])
    assert one.cdf(0, points)["extrapolated"].tolist() == [True, False, False, True]
    assert one.sf(0, -points, tail="lower")["extrapolated"].tolist() == [True, False, False, True]
    assert one.quantile(0, [1e-9, 0.5, 1 - 1e-9])["extrapolated"].tolist() == [True, False, True]


@pytest.mark.parametrize("splice", SPLICES)
def test_joint_tails_mix_sides(splice):
    plain = model(latent_dim=0)
    for tail in ("lower", {"x0": "lower"}, {"x1": "lower", "x0": "upper"}):
        sides = tail if isinstance(tail, dict) else dict.fromkeys(("x0", "x1"), tail)
        alone = [values(plain.sf(j, 0.02, splice=splice, tail=sides.get(f"x{j}", "upper")))[0] for j in range(2)]
        joint = plain.joint_sf({"x0": 0.02, "x1": 0.02}, splice=splice, tail=tail)
        assert values(joint)[0] == pytest.approx(alone[0] * alone[1], rel=1e-6)
        assert [name.lstrip("-") for name in joint.dtype.names[:2]] == ["x0", "x1"]
        assert [name[0] == "-" for name in joint.dtype.names[:2]] == [sides.get(f"x{j}") == "lower" for j in range(2)]
    t = values(plain.joint_quantile({0: 1.0, 1: 2.0}, 0.01, tail="lower"))[0]
    assert values(plain.joint_sf({0: t, 1: 2 * t}, tail="lower"))[0] == pytest.approx(0.01, rel=1e-6)
    # columns of one law have no rank correlation, whatever their atoms
    tau = plain.kendall_tau()
    assert abs(values(tau)[0]) < 8 * tau["standard_error"][0] + 1e-4


@pytest.mark.parametrize("splice", SPLICES)
def test_conditional_rows_meet_bounds_below_zero_with_their_probability(splice):
    one = model()
    drawn = one.conditional_sample(400, {0: ("<", -0.05), 1: ("between", -0.02, 0.01)}, 3, splice=splice)
    assert (drawn.rows[:, 0] <= -0.05).all()
    assert ((drawn.rows[:, 1] > -0.02) & (drawn.rows[:, 1] <= 0.01)).all()
    assert (drawn.rows[:, 1] == 0).any()
    alone = one.conditional_sample(400, {0: ("<", -0.05)}, 3, splice=splice)
    assert alone.probability == pytest.approx(values(one.cdf(0, -0.05, splice=splice))[0], rel=5e-3)
    # of n draws below a level at which a share q lies, n q lie below it, but for 5.5 standard deviations
    deeper = values(one.cdf(0, -0.08, splice=splice))[0] / alone.probability
    spread = 5.5 * math.sqrt(deeper * (1 - deeper) / 400)
    assert (alone.rows[:, 0] <= -0.08).mean() == pytest.approx(deeper, abs=spread)


def test_samples_have_both_tails_and_a_splice_moves_both():
    one, n = model(), 20_000
    plain, moved = one.sample(n, 5), one.sample(n, 5, splice="gpd")
    trust = [Column(inside(one), j, "gpd").at()(256) for j in range(2)]
    for j, law in enumerate(trust):
        body = (plain[:, j] <= law.upper.threshold) & (plain[:, j] >= -law.losses.threshold)
        assert (moved[body, j] == plain[body, j]).all()
        assert (moved[~body, j] != plain[~body, j]).all()
        assert (np.argsort(plain[:, j], kind="stable") == np.argsort(moved[:, j], kind="stable")).all()
        assert law.move(at(plain[:50, j])).tolist() == pytest.approx(moved[:50, j].tolist(), rel=1e-9)
        assert law.origin_of(at(moved[:50, j])).tolist() == pytest.approx(plain[:50, j].tolist(), rel=1e-6)
        for x in (-0.03, 0.0, 0.02):
            share = values(one.cdf(j, x))[0]
            assert (plain[:, j] <= x).mean() == pytest.approx(share, abs=5.5 * math.sqrt(share * (1 - share) / n))


def test_a_law_without_a_mean_says_so():
    fitted = inside(model())
    own = Column(fitted, 0).at()(256)
    other = Column(fitted.mirrored([0]), 0).at()(256)
    u = (0.05, 0.06)
    both = TwoTails(Spliced(own, u[0], 1.2), Spliced(other, u[1], 1.1))
    with pytest.raises(ValueError, match=r"^splice = 'gpd': both tails have an infinite mean"):
        _ = both.mean
    lower = TwoTails(Spliced(own, u[0], 0.1), Spliced(other, u[1], 1.1))
    assert bool((lower.mean == -math.inf).all() & (lower.variance == math.inf).all())
    assert bool(lower.log_excess(at([-0.05])).isfinite().all())
    with pytest.raises(ValueError, match=r"^a threshold of -0.07 lies in a lower tail of shape 1.1"):
        lower.log_excess(at([-0.07]))


def test_lower_tails_of_columns_without_one_and_other_words_are_refused():
    x = np.column_stack([returns()[:, 0], 1 + np.abs(returns()[:, 1])])
    mixed = fit(pd.DataFrame(x, columns=["stock", "volume"]), support={"stock": "real"})
    match = r"^tail = 'lower': column 'volume' is never below"
    with pytest.raises(ValueError, match=match):
        mixed.var(0.99, tail="lower")
    with pytest.raises(ValueError, match=match):
        mixed.phase_type("volume", tail="lower")
    with pytest.raises(ValueError, match=r"^tail = 'left'; give 'upper' or 'lower'"):
        mixed.var(0.99, tail="left")
    with pytest.raises(ValueError, match=r"^tail\['stock'\] = 1; give 'upper' or 'lower'"):
        mixed.var(0.99, tail={"stock": 1})
    with pytest.raises(ValueError, match=r"^tail = 'bond': there is no such column"):
        mixed.var(0.99, tail={"bond": "lower"})
    answer = mixed.var(0.99, tail={"stock": "lower"})
    assert answer["column"].tolist() == ["-stock", "volume"]
    alone = mixed.var(0.99, "stock", tail="lower")
    assert answer["value"].iloc[0] == alone["value"].iloc[0]
