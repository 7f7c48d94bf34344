"""Laws against scipy and quadrature, dependence against its closed forms, draws against their law."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from phvae.datasets import (
    CLAIMS,
    INDEPENDENT_BLOCKS,
    PAPER_COPULA,
    PAPER_LAWS,
    BurrIII,
    BurrXII,
    Lognormal,
    Pareto,
    StudentCopula,
    Weibull,
    WithZeros,
    claims,
)

LAWS = {
    "Weibull": (Weibull(0.7, 3.0), stats.weibull_min(0.7, scale=3.0)),
    "Pareto": (Pareto(2.2, 3.0), stats.pareto(2.2, scale=3.0)),
    "Lognormal": (Lognormal(-0.5, 1.5), stats.lognorm(1.5, scale=math.exp(-0.5))),
    "Burr XII": (BurrXII(1.5, 0.8, 3.0), stats.burr12(1.5, 0.8, scale=3.0)),
    "Burr III": (BurrIII(1.5, 0.8, 3.0), stats.burr(1.5, 0.8, scale=3.0)),
}
INSIDE = np.geomspace(1e-6, 1e6, 200)
LEVELS = np.array([1e-12, 1e-6, 0.01, 0.3, 0.5, 0.99])
case = pytest.mark.parametrize(("law", "scipy_law"), LAWS.values(), ids=LAWS)


@case
def test_functions_agree_with_scipy(law, scipy_law):
    # scipy takes the survival function of Burr III from one minus its cdf
    np.testing.assert_allclose(law.sf(INSIDE), scipy_law.sf(INSIDE), rtol=1e-12, atol=2**-53)
    np.testing.assert_allclose(law.cdf(INSIDE), scipy_law.cdf(INSIDE), rtol=1e-12)
    np.testing.assert_allclose(law.quantile(LEVELS), scipy_law.ppf(LEVELS), rtol=1e-12)
    np.testing.assert_allclose(law.isf(LEVELS), scipy_law.isf(LEVELS), rtol=1e-12)
    positive = INSIDE[scipy_law.pdf(INSIDE) > 0]
    np.testing.assert_allclose(law.log_pdf(positive), scipy_law.logpdf(positive), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(law.pdf(positive), scipy_law.pdf(positive), rtol=1e-10)
    assert law.mean == pytest.approx(scipy_law.mean(), rel=1e-12)


@case
def test_nothing_lies_below_the_support_and_quantiles_reach_both_ends(law, scipy_law):
    below = np.array([-1.0, -1e-300])
    assert (law.sf(below) == 1).all()
    assert (law.cdf(below) == 0).all()
    assert (law.log_pdf(below) == -np.inf).all()
    lowest = 3.0 if isinstance(law, Pareto) else 0.0
    assert [law.quantile(0.0), law.isf(1.0)] == [lowest, lowest]
    assert [law.quantile(1.0), law.isf(0.0)] == [math.inf, math.inf]


@case
def test_tail_quantiles_invert_the_survival_function_far_beyond_double_precision_of_levels(law, scipy_law):
    p = np.array([1e-15, 1e-30, 1e-60])
    np.testing.assert_allclose(law.sf(law.isf(p)), p, rtol=1e-10)


@case
@pytest.mark.parametrize("level", [0.0, 0.5, 0.99, 0.9999])
def test_cvar_is_the_mean_of_the_quantiles_beyond(law, scipy_law, level):
    # in t = -log of the exceedance probability the integrand decays like exp(-t/6) at the slowest
    start = -math.log1p(-level)
    whole = integrate.quad(lambda t: float(law.isf(math.exp(-t))) * math.exp(-t), start, start + 250, limit=500)[0]
    assert law.cvar(level) == pytest.approx(whole / (1 - level), rel=1e-7)


@case
def test_draws_have_the_law(law, scipy_law):
    # five tests at 1e-7 each
    assert stats.kstest(law.sample(50_000, seed=0), law.cdf).pvalue > 1e-7


def test_moments_that_do_not_exist_are_infinite():
    assert [Pareto(1.0).mean, BurrXII(0.5, 2.0).mean, BurrIII(1.0, 3.0).mean] == [math.inf] * 3
    assert [Pareto(0.9).cvar(0.9), BurrXII(0.5, 1.0).cvar(0.9), BurrIII(0.7, 3.0).cvar(0.9)] == [math.inf] * 3


def test_the_reciprocal_of_a_burr_xii_draw_is_burr_iii():
    x = np.geomspace(1e-3, 1e3, 50)
    np.testing.assert_allclose(BurrIII(1.5, 0.8).cdf(x), BurrXII(1.5, 0.8).sf(1 / x), rtol=1e-13)


def test_an_atom_at_zero_scales_the_tail_and_leaves_the_rest():
    inner = Pareto(2.5)
    law = WithZeros(inner, 0.7)
    assert law.sf(-0.1) == 1
    assert law.cdf(0.0) == pytest.approx(0.7)
    np.testing.assert_allclose(law.sf(INSIDE) + law.cdf(INSIDE), 1, rtol=1e-12)
    np.testing.assert_allclose(law.quantile([0.2, 0.69, 0.85]), [0, 0, inner.quantile(0.5)], rtol=1e-12)
    np.testing.assert_allclose(law.isf([0.9, 0.31, 0.03]), [0, 0, inner.isf(0.1)], rtol=1e-12)
    assert law.mean == pytest.approx(0.3 * inner.mean)
    assert law.cvar(0.5) == pytest.approx(inner.mean)
    assert law.cvar(0.97) == pytest.approx(inner.cvar(0.9))
    share = (law.sample(100_000, seed=0) == 0).mean()
    assert abs(share - 0.7) < 5 * math.sqrt(0.21 / 100_000)


@pytest.mark.parametrize("copula", [PAPER_COPULA, INDEPENDENT_BLOCKS], ids=["shared", "blocks"])
def test_copula_draws_have_their_margins_and_their_ranks(copula):
    from phvae.metrics import kendall_tau

    n = 40_000
    x = copula.sample(n, seed=0)
    for j, law in enumerate(copula.margins):
        assert stats.kstest(x[:, j], law.cdf).pvalue > 1e-7
    # the variance of tau is at most 2 (1 - tau^2) / n for large n
    error = np.sqrt(2 * (1 - copula.kendall_tau() ** 2) / n)
    assert (np.abs(kendall_tau(x) - copula.kendall_tau()) <= 5.5 * error + 1e-12).all()


def test_extremes_come_together_within_a_block_alone():
    n, level = 400_000, 0.999
    expected = n * (1 - level)
    for copula in (PAPER_COPULA, INDEPENDENT_BLOCKS):
        x = copula.sample(n, seed=1)
        beyond = np.array([x[:, j] > copula.margins[j].isf(1 - level) for j in range(5)]).astype(float)
        together = beyond @ beyond.T / expected
        limit = copula.tail_dependence()
        # at this level the share is still above its limit, and never below it by more than chance
        assert (together - limit > -5 * np.sqrt((limit + 1 - level) / expected)).all()
        apart = together[0, 1] * expected
        if copula is INDEPENDENT_BLOCKS:
            assert apart < 10  # Poisson with mean 0.4
        else:
            assert apart > 0.05 * expected  # limit 0.076; 5% is 5 standard deviations below what is seen


def test_tail_dependence_is_that_of_the_student_copula():
    assert PAPER_COPULA.tail_dependence()[2, 3] == pytest.approx(2 * stats.t(5).sf(math.sqrt(5 * 0.3 / 1.7)))
    assert (PAPER_COPULA.tail_dependence().diagonal() == 1).all()


def test_a_draw_depends_on_its_seed_alone():
    assert (PAPER_COPULA.sample(50, seed=3) == PAPER_COPULA.sample(50, seed=3)).all()
    assert (PAPER_COPULA.sample(50, seed=3) != PAPER_COPULA.sample(50, seed=4)).any()
    rng = np.random.default_rng(3)
    assert (PAPER_COPULA.sample(50, seed=rng) != PAPER_COPULA.sample(50, seed=rng)).any()


def test_claims_are_draws_of_their_law_with_exact_zeros():
    data = claims(20_000, seed=2)
    assert data.names == ("building", "contents", "interruption")
    for j, law in enumerate(CLAIMS.margins[:2]):
        assert stats.kstest(data.values[:, j], law.cdf).pvalue > 1e-7
    zero = data.values[:, 2] == 0
    assert abs(zero.mean() - 0.7) < 5 * math.sqrt(0.21 / 20_000)
    assert stats.kstest(data.values[~zero, 2], CLAIMS.margins[2].law.cdf).pvalue > 1e-7
    with pytest.raises(ValueError, match="ties"):
        CLAIMS.kendall_tau()


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_data_set_becomes_any_table(kind):
    table = claims(5, seed=0).table(kind)
    assert list(getattr(table, "column_names", table.columns)) == ["building", "contents", "interruption"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weibull(-1.0), "shape=-1 of Weibull must be positive"),
        (lambda: Lognormal(math.nan, 1.0), "mu=nan"),
        (lambda: WithZeros(Pareto(2.0), 1.0), "between 0 and 1"),
        (lambda: Pareto(2.0).isf(99.0), "probabilities are asked for, not percent"),
        (lambda: Pareto(2.0).cvar(1.0), r"level=1 must lie in \[0, 1\)"),
        (lambda: StudentCopula((Pareto(2.0),), ((1.0, 0.0), (0.0, 1.0)), 4.0), "1 by 1"),
        (lambda: StudentCopula((Pareto(2.0),) * 2, ((1.0, 2.0), (2.0, 1.0)), 4.0), "negative eigenvalue"),
        (lambda: StudentCopula((Pareto(2.0),) * 2, ((1.0, 0.5), (0.5, 1.0)), 4.0, (0, 1)), "different blocks"),
        (lambda: StudentCopula((Pareto(2.0),) * 2, ((1.0, 0.5), (0.5, 1.0)), 4.0, (0,)), "blocks has 1 entries"),
        (lambda: StudentCopula((Pareto(2.0),) * 2, ((1.0, 0.5), (0.5, 1.0)), 0.0), "degrees=0"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_settings_of_the_paper():
    assert PAPER_LAWS["Weibull"] == Weibull(shape=0.8, scale=1.0)
    assert PAPER_LAWS["Pareto"] == Pareto(shape=2.4, scale=1.0)
    assert PAPER_LAWS["Lognormal"] == Lognormal(mu=0.0, sigma=1.5)
    assert [PAPER_LAWS["Burr XII"], PAPER_LAWS["Burr III"]] == [BurrXII(c=1.5, k=0.8), BurrIII(c=1.5, k=0.8)]


def test_importing_data_sets_and_metrics_loads_nothing_heavy():
    script = (
        "import sys, phvae.datasets, phvae.metrics;"
        "print(*{'torch', 'numba', 'scipy', 'sklearn', 'pandas', 'pooch', 'requests'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"
