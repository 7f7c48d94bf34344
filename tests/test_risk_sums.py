"""Sums of columns: closed forms without latent variables, identities, draws, and both ways of summing compared."""

import copy
import math

import numpy as np
import pytest
import torch
from risk_models import inside, model, table
from scipy import stats

from phvae import PHVAE
from phvae.distributions import PhaseType
from phvae.kernels.sums import log_inverse, log_tail_parts
from phvae.risk.chain_sum import ChainSum, ChainSumLaw
from phvae.risk.column import ColumnLaw
from phvae.risk.drawn_sum import DrawnSumLaw
from phvae.risk.estimate import IntegrationWarning
from phvae.risk.moved import Moved
from phvae.risk.quadrature import Proposal
from phvae.risk.sources import Column
from phvae.risk.sum_source import Sum

LEVELS = np.array([0.3, 0.9, 0.999])


def one(x):
    return torch.zeros(len(x), dtype=torch.int64)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("columns", [1, 3, 8])
@pytest.mark.parametrize("phases", [1, 4, 16])
def test_equal_rates_sum_to_a_gamma_law_in_both_tails(columns, phases):
    count, rate = columns * phases, 2.0
    initial = torch.zeros(1, columns, phases, dtype=torch.float64)
    initial[..., 0] = 1.0
    law = initial, torch.full_like(initial, rate), torch.zeros(1, columns, dtype=torch.float64)
    gamma = stats.gamma(count, scale=1 / rate)
    upper = tensor([gamma.mean() * factor for factor in (1.0, 1.5, 4.0, 20.0)])
    lower = tensor([gamma.mean() * factor for factor in (0.02, 0.3, 0.7, 1.0)])
    for x in (upper, lower):
        density = log_inverse(0, 0, x, one(x), *law)
        assert density.numpy() == pytest.approx(gamma.logpdf(x.numpy()), abs=1e-7)
    survival, parts = log_tail_parts(upper, one(upper), *law)
    # fewer than so many Poisson events until then, which has all its digits however far out
    events = torch.arange(count, dtype=torch.float64)
    log_poisson = events * (rate * upper[:, None]).log() - rate * upper[:, None] - torch.lgamma(events + 1)
    torch.testing.assert_close(survival, torch.logsumexp(log_poisson, 1), rtol=0, atol=1e-7)
    assert log_inverse(0, 1, lower, one(lower), *law).numpy() == pytest.approx(gamma.logcdf(lower.numpy()), abs=1e-7)
    # all columns are alike, and together they are the mean of the tail
    excess = log_inverse(2, 0, upper, one(upper), *law)
    mean = upper + (excess - survival).exp()
    torch.testing.assert_close(parts, (mean / columns)[:, None].expand(-1, columns), rtol=1e-6, atol=0)


def test_stop_loss_moments_are_integrals_of_each_other():
    generator = torch.Generator().manual_seed(0)
    initial = torch.rand(1, 3, 5, dtype=torch.float64, generator=generator)
    initial /= initial.sum(-1, keepdim=True)
    rates = torch.exp(3 * torch.randn(1, 3, 5, dtype=torch.float64, generator=generator)).sort(-1).values
    law = initial, rates, tensor([[0.2, 0.0, 0.9]])
    x = torch.logspace(-1, 3, 9, dtype=torch.float64)
    step = 1e-4 * x
    for order, power in ((1, 0), (2, 0), (3, 0), (0, 2), (0, 3)):
        near = [log_inverse(order, power, x + k * step, one(x), *law).exp() for k in (-1, 1)]
        slope = (near[1] - near[0]) / (2 * step)
        inner = log_inverse(max(order - 1, 0), max(power - 1, 0), x, one(x), *law).exp()
        torch.testing.assert_close(slope, inner if power else -inner, rtol=1e-5, atol=1e-12)


def closed_sum(plain):
    """Column 0 plus twice column 1 plus column 2 of a model without latent variables, by Kronecker's means."""
    first, second, third = (plain.phase_type(j) for j in range(3))
    both = first + second.scaled(2.0)
    return both, both + third


def test_without_latent_variables_a_sum_is_the_closed_form():
    plain = model(latent_dim=0)
    origin = plain.scaler_.origin_
    both, _ = closed_sum(plain)
    offset = origin[0] + 2 * origin[1]
    total = plain.sum([0, 1], [1, 2])
    x = np.array([2.0, 10.0, 300.0])
    excess = torch.from_numpy(x - offset)
    for answer, wanted in [
        (total.sf(x), both.sf(excess)),
        (total.cdf(x), both.cdf(excess)),
        (total.pdf(x), both.log_prob(excess).exp()),
        (total.log_sf(x), both.log_sf(excess)),
        (total.hazard(x), both.hazard(excess)),
        (total.mean_excess(x), both.mean_excess(excess)),
        (total.quantile(LEVELS), offset + both.icdf(torch.from_numpy(LEVELS))),
        (total.isf([0.1, 1e-12]), offset + both.isf(tensor([0.1, 1e-12]))),
        (total.cvar(LEVELS), offset + both.cvar(torch.from_numpy(LEVELS))),
        (total.mean(), offset + both.mean),
        (total.std(), both.stddev),
        (total.limited_expected_value(x), offset + both.mean - both.log_excess(excess).exp()),
    ]:
        assert answer["value"] == pytest.approx(np.atleast_1d(wanted.numpy()), rel=1e-7)
        assert answer["standard_error"].tolist() == [0.0] * len(answer["value"])
    assert total.sf(1.0)["column"][0] == "x0 + 2 x1"


def test_an_atom_with_an_origin_is_a_mixture_of_two_sums():
    plain = model(latent_dim=0)
    origin = plain.scaler_.origin_
    both, all_three = closed_sum(plain)
    zero = 1 - float(plain.sf(2, 0.0)["value"][0])
    x = np.array([1.0, 3.0, 40.0])
    shift = origin[0] + 2 * origin[1]
    wanted = zero * both.sf(torch.from_numpy(x - shift)) + (1 - zero) * all_three.sf(
        torch.from_numpy(x - shift - origin[2])
    )
    total = plain.sum(weights={"x1": 2})
    assert total.sf(x)["value"] == pytest.approx(wanted.numpy(), rel=1e-7)
    # what is zero is no loss: a sum of columns with atoms only has one too
    alone = plain.sum([2], [3])
    assert alone.sf([0.0, 3 * 2.0])["value"] == pytest.approx(plain.sf(2, [0.0, 2.0])["value"], rel=1e-9)
    assert alone.quantile(zero / 2)["value"].tolist() == [0.0]
    assert isinstance(all_three, PhaseType)


@pytest.mark.parametrize("position", [0, 2])
def test_a_sum_of_one_column_is_the_column_at_every_latent_point(position):
    fitted = inside(model())
    proposal = Proposal(fitted.prior, 0)
    own, summed = ColumnLaw(fitted.vae, position, proposal, 16), ChainSumLaw(fitted.vae, [position], [1], proposal, 16)
    x = tensor([1.0, 3.0, 30.0])
    for ask in (
        lambda law: law.log_pdf(x),
        lambda law: law.log_sf(x),
        lambda law: law.log_cdf(x),
        lambda law: law.log_excess(x),
        lambda law: law.log_excess(x, 2),
        lambda law: law.mean,
        lambda law: law.variance,
    ):
        torch.testing.assert_close(ask(summed), ask(own), rtol=1e-7, atol=1e-7)


def test_sums_are_those_of_many_rows():
    many, weights = model(), np.array([1.0, 2.0, 0.5])
    rows = many.sample(200_000, random_state=0) * weights
    x = rows.sum(1)
    total = many.sum(weights=weights, rtol=0.02)
    for answer in total.sf([1.0, 3.0, 10.0, 40.0]):
        share = (x > answer["x"]).mean()
        assert abs(share - answer["value"]) < 6 * math.sqrt(answer["value"] / len(x)) + 6 * answer["standard_error"]
    q = float(total.var(0.9)["value"][0])
    worst = rows[x > q]
    parts = total.allocation(0.9)
    assert parts["column"].tolist() == ["x0", "x1", "x2"]
    for part, drawn in zip(parts, worst.T, strict=True):
        error = math.hypot(drawn.std() / math.sqrt(len(worst)), part["standard_error"])
        # the rows beyond the quantile are a tenth, up to their sampling error
        assert abs(part["value"] - drawn.mean()) < 8 * error
    assert parts["value"].sum() == pytest.approx(total.cvar(0.9)["value"][0], rel=1e-6)


def test_an_allocation_adds_up_to_the_last_digits():
    total = model(latent_dim=0).sum()
    for level in LEVELS:
        parts = total.allocation(level)["value"]
        assert (parts > 0).all()
        assert parts.sum() == pytest.approx(total.cvar(level)["value"][0], rel=1e-12)


def law_of(many, weights=(1.0, 2.0, 0.5), n=32):
    fitted = inside(many)
    return ChainSumLaw(fitted.vae, [0, 1, 2], weights, Proposal(fitted.prior, 0), n)


def test_the_parts_of_the_columns_add_up_in_every_replicate():
    law = law_of(model())
    share = tensor([0.5, 0.01])
    quantile = law.isf(share)
    whole = quantile * share + law.log_excess(quantile).exp()
    torch.testing.assert_close(law.tail_parts(quantile).sum(-1), whole, rtol=1e-7, atol=0)
    torch.testing.assert_close(whole / share, law.tail_mean(share), rtol=1e-9, atol=0)


def test_the_shortfall_of_a_sum_is_the_integral_of_its_quantiles():
    law, share = law_of(model(0), n=1), tensor([0.05])
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(12))
    total = torch.zeros(law.replicates, dtype=torch.float64)
    for first in range(0, 32, 2):
        t, step = first + (1 + nodes), weights
        total += (law.isf(share * (-t).exp()) * (-t).exp() * step).sum(-1)
    torch.testing.assert_close(total, law.tail_mean(share)[:, 0], rtol=1e-6, atol=0)


def test_a_sum_scales_with_its_weights():
    small, large, share = law_of(model(), n=4), law_of(model(), (8.0, 16.0, 4.0), n=4), tensor([0.5, 0.001])
    for ask in (
        lambda law: law.tail_mean(share),
        lambda law: law.mean,
        lambda law: law.variance.sqrt(),
        lambda law: law.tail_parts(law.isf(share)),
    ):
        torch.testing.assert_close(ask(large), 8 * ask(small), rtol=1e-8, atol=0)


def test_summing_never_costs_expected_shortfall():
    many = model()
    total = many.sum([0, 1], [1, 3], rtol=0.03)
    saved = total.diversification([0.9])
    rows = {(row["measure"], row["level"]): row for row in saved}
    for level in (0.9,):
        alone = (many.cvar(level, [0, 1], rtol=0.01)["value"] * [1, 3]).sum()
        assert rows["standalone", level]["value"] == pytest.approx(alone, rel=0.15)
        assert rows["sum", level]["value"] == pytest.approx(total.cvar(level)["value"][0], rel=0.15)
        assert rows["benefit", level]["value"] > -6 * rows["benefit", level]["standard_error"]
        assert rows["ratio", level]["value"] == pytest.approx(
            rows["benefit", level]["value"] / rows["standalone", level]["value"], rel=1e-3
        )
        assert bool((total.cvar(level)["value"] >= total.var(level)["value"]).all())
    # one column alone has nothing to share its risk with
    alone = many.sum(1, 2, rtol=0.01).diversification(0.9)
    assert alone["value"][2] == pytest.approx(0.0, abs=8 * alone["standard_error"][2] + 0.01 * alone["value"][0])


def agree(first, second, sigmas=9):
    """Whether two replicated estimates agree within their errors (7 degrees of freedom each)."""
    error = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
    assert bool(((first.mean(0) - second.mean(0)).abs() <= sigmas * error).all())


def test_a_drawn_sum_that_may_be_zero_has_the_moments_of_its_columns():
    rows = table() * (np.random.default_rng(1).random(table().shape) > 0.4)
    fitted = inside(PHVAE(n_phases=3, latent_dim=0, epochs=0, random_state=0).fit(rows))
    weights, proposal = (0.1, 0.2, 0.05), Proposal(fitted.prior, 1)
    drawn = DrawnSumLaw(fitted.vae, [0, 1, 2], weights, [None] * 3, proposal, 256)
    columns = [ColumnLaw(fitted.vae, position, proposal, 1) for position in range(3)]
    # without a latent vector the columns are independent
    mean = sum(w * float(column.mean[0]) for w, column in zip(weights, columns, strict=True))
    variance = sum(w**2 * float(column.variance[0]) for w, column in zip(weights, columns, strict=True))
    # Student's t at one in ten million, of so many replicates
    reach = stats.t(drawn.replicates - 1).isf(5e-8) / math.sqrt(drawn.replicates)
    for estimate, exact in ((drawn.mean, mean), (drawn.variance, variance)):
        assert abs(float(estimate.mean()) - exact) < reach * float(estimate.std()) + 1e-9 * exact


def test_drawn_sums_are_those_by_transform():
    many = model()
    fitted = inside(many)
    exact = law_of(many, n=64)
    drawn = DrawnSumLaw(fitted.vae, [0, 1, 2], (1.0, 2.0, 0.5), [None] * 3, Proposal(fitted.prior, 1), 256)
    x = tensor([3.0, 10.0, 60.0])
    for ask in (
        lambda law: law.log_sf(x).exp(),
        lambda law: law.log_excess(x).exp(),
        lambda law: law.mean[:, None],
        lambda law: law.tail_parts(x[1:2]).flatten(1),
    ):
        agree(ask(exact), ask(drawn))
    near = drawn.log_sf(x[1:] * (1 + 1e-6)).exp() - drawn.log_sf(x[1:] * (1 - 1e-6)).exp()
    torch.testing.assert_close(near / (-2e-6 * x[1:]), drawn.log_pdf(x[1:]).exp(), rtol=1e-4, atol=0)
    torch.testing.assert_close(drawn.log_sf(x).exp() + drawn.log_cdf(x).exp(), torch.ones(8, 3).double())


def test_sums_with_spliced_tails_are_those_of_spliced_rows():
    many = model()
    source = Sum(inside(many), [0, 2], [1.0, 1.0], "gpd")
    law = source.law(Proposal(source.fitted.prior, 0), 256)
    rows = many.sample(100_000, random_state=4, splice="gpd")[:, [0, 2]].sum(1)
    x = [2.0, 10.0, 60.0]
    for at, survival in zip(x, law.log_sf(tensor(x)).exp().T, strict=True):
        share = (rows > at).mean()
        error = math.hypot(math.sqrt(share / len(rows)), float(survival.std()) / math.sqrt(8))
        assert abs(share - float(survival.mean())) < 7 * error
    # far out the heaviest column is alone
    heavy = max(column.trust.fit.shape for column in source.columns)
    far = tensor([300.0, 3000.0])
    survival = source.at(points=far.tolist())(256).log_sf(far).exp().mean(0)
    assert math.log10(float(survival[0] / survival[1])) == pytest.approx(1 / heavy, rel=0.1)


def test_points_behind_a_spliced_tail_are_interpolated_well():
    spliced = Column(inside(model()), 0, "gpd").spliced()
    moved = Moved(spliced)
    x = spliced.threshold * tensor([0.5, 1.0, 1.3, 7.0, 3e3])
    own, slope = moved(x)
    torch.testing.assert_close(own, spliced.origin_of(x), rtol=1e-4, atol=0)
    near = moved(x * (1 + 1e-6))[0] - moved(x * (1 - 1e-6))[0]
    torch.testing.assert_close(near[[0, 2, 3, 4]] / (2e-6 * x[[0, 2, 3, 4]]), slope[[0, 2, 3, 4]], rtol=1e-4, atol=0)


@pytest.mark.filterwarnings("ignore::phvae.risk.estimate.IntegrationWarning")
def test_bent_clocks_are_summed_by_draws():
    bent = PHVAE(n_phases=3, latent_dim=0, epochs=0, tail="weibull", random_state=0).fit(table()[:, :2])
    total = bent.sum(rtol=0.01)
    assert not total.source.by_transform
    rows = bent.sample(200_000, random_state=0).sum(1)
    for answer in total.sf([3.0, 10.0]):
        share = (rows > answer["x"]).mean()
        assert abs(share - answer["value"]) < 6 * math.hypot(math.sqrt(share / len(rows)), answer["standard_error"])
    assert issubclass(IntegrationWarning, UserWarning)


def test_sums_with_named_columns_are_frames_with_names():
    named = copy.copy(model(latent_dim=0))
    named.table_kind_, named.columns_ = "pandas", ["fire", "water", "theft"]
    answer = named.sum(["fire", "theft"], {"theft": 0.5}).allocation([0.9, 0.99])
    assert list(answer.columns) == ["column", "level", "value", "standard_error", "low", "high", "extrapolated"]
    assert list(answer["column"]) == ["fire", "fire", "theft", "theft"]


def test_a_signed_column_and_one_of_losses_are_added_up_as_their_rows_are():
    rows = np.stack([np.random.default_rng(0).standard_t(4, 200), table()[:200, 0]], 1)
    mixed = PHVAE(n_phases=3, latent_dim=0, epochs=0, support={"x0": "real"}, random_state=0).fit(rows)
    drawn = mixed.sample(200_000, random_state=0).sum(1)
    total = mixed.sum()
    for answer in total.sf([-1.0, 0.5, 2.0, 10.0]):
        share = (drawn > answer["x"]).mean()
        assert abs(share - answer["value"]) < 6 * math.sqrt(share * (1 - share) / len(drawn))
    assert total.mean()["value"] == pytest.approx(mixed.mean()["value"].sum(), rel=1e-9)
    with pytest.raises(ValueError, match=r"^tail = 'lower': column 'x1' is never below"):
        mixed.sum(tail="lower")
    with pytest.raises(ValueError, match="has negative values; give columns of losses only"):
        mixed.aggregate(0, frequency=1.0)
    # columns of losses alone are summed as they are anywhere
    assert mixed.sum("x1" if mixed.columns_ else 1).sf(2.0)["value"] == pytest.approx(
        mixed.sf(1, 2.0)["value"], rel=1e-7
    )


def test_where_no_path_serves_a_density_the_slope_of_its_tail_does():
    # a column as good as fixed at 1 beside a slow one that hardly ever occurs
    initial, rates = torch.zeros(1, 2, 60, dtype=torch.float64), torch.full((1, 2, 60), 1e-4, dtype=torch.float64)
    initial[..., 0], rates[0, 0] = 1.0, 6e1
    rates[0, 1, 1:] = 1e7
    law = ChainSum(initial, rates, tensor([[0.0, 1 - 1e-9]]), 0.0)
    x = tensor([[30.0]])
    assert bool(log_inverse(0, 0, x[0], one(x), *law[:3]).isnan().all())
    assert float(law.log_sf(x)) == pytest.approx(math.log(1e-9) - 1e-4 * 29, rel=1e-7)
    assert float(law.log_pdf(x)) == pytest.approx(math.log(1e-9 * 1e-4) - 1e-4 * 29, abs=3e-3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.sum([0, 9]), r"columns\[1\] = 9: there is no such column"),
        (lambda m: m.sum([0, 1], [1, 2, 3]), "weights has 3 numbers for 2 columns; give one for each"),
        (lambda m: m.sum([0, 1], [1, -2]), r"weights\[1\] = -2; give finite numbers > 0"),
        (lambda m: m.sum([0, 1], {"x2": 1}), "weights has 'x2', which is not among the columns; leave it out"),
        (lambda m: m.sum([0, 1], "heavy"), "weights = 'heavy'; give finite numbers > 0"),
        (lambda m: m.sum(splice="pareto"), "splice = 'pareto'; give 'gpd'"),
        (lambda m: m.sum(rtol=2), "rtol = 2; give a relative tolerance"),
        (lambda m: m.sum().allocation(1.0), "level = 1; give probabilities"),
        (lambda m: m.sum().diversification(0.9, "std"), r"measure = 'std'; give one of \['cvar', 'var'\]"),
        (lambda m: m.sum().sf(-1.0), "x = -1; give finite thresholds >= 0"),
    ],
)
def test_a_bad_question_about_a_sum_is_one_clear_sentence(ask, message):
    with pytest.raises(ValueError, match=message) as error:
        ask(model(latent_dim=0))
    assert "\n" not in str(error.value)


def test_a_sum_beyond_all_that_its_columns_can_have_shown_is_extrapolated():
    fitted = model(latent_dim=0)
    largest = [record.largest for record in fitted.tail_record_.columns]
    total = fitted.sum([0, 1], [1, 2])
    # with so many rows that none of these answers is rare by their number
    fitted.settings_ = fitted.settings_ | {"n_rows": 10**30}
    bound = largest[0] + 2 * largest[1]
    flags = fitted.sum([0, 1], [1, 2]).sf([0.5 * bound, 0.999 * bound, 1.001 * bound])["extrapolated"]
    assert flags.tolist() == [False, False, True]
    assert repr(total) == "SumOfColumns(x0 + 2 x1)"
