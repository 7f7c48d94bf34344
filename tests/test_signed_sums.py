"""Sums of signed columns: closed forms, mirror images, draws, and both ways of summing compared."""

import math

import numpy as np
import pytest
import torch
from risk_models import inside
from signed_models import fit, model, returns

from phvae.distributions import SeriesPhaseType
from phvae.kernels.sums import log_signed_inverse, log_signed_tail_parts
from phvae.risk.chain_sum import ChainSumLaw
from phvae.risk.column import ColumnLaw
from phvae.risk.drawn_sum import DrawnSumLaw
from phvae.risk.quadrature import Proposal
from phvae.risk.signed_sum import SignedSum
from phvae.risk.sources import Column
from phvae.risk.sum_source import Sum
from phvae.risk.two_drawn_tails import TwoDrawnTails

WEIGHTS = [1.0, 2.0]


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def values(answer):
    return answer["value"]


def laplace(columns, gain=1.0, loss=1.0, zero=0.0):
    """Sums of columns whose gains and losses are exponential with these rates, with equal density at zero."""
    ones = torch.ones(1, 2, columns, 1, dtype=torch.float64)
    rates = ones * tensor([gain, loss])[:, None, None]
    sides = tensor([loss, gain])[None, :, None] / (gain + loss) * torch.ones(1, 2, columns, dtype=torch.float64)
    return SignedSum(ones, rates, sides, torch.full((1, columns), zero, dtype=torch.float64), 0.0)


def two_sided_gamma(n, gain, loss, x):
    """Tail at ``x >= 0`` of ``n`` asymmetric Laplace columns, which is that of the difference of two gamma laws.

    ``1 / ((1 + s/g)(1 - s/l))^n`` has at ``-g`` the parts ``Σ_k c_k (g / (g + s))^k``, with ``r = l / (g + l)`` and
    ``c_k = C(2n-k-1, n-k) r^n (1-r)^(n-k)``: a gain of ``k`` phases.
    """
    r = loss / (gain + loss)
    total = torch.zeros_like(x)
    for k in range(1, n + 1):
        share = math.comb(2 * n - k - 1, n - k) * r**n * (1 - r) ** (n - k)
        phases = torch.arange(k, dtype=torch.float64)
        log_tail = torch.logsumexp(phases * (gain * x[:, None]).log() - torch.lgamma(phases + 1), 1) - gain * x
        total = total + share * log_tail.exp()
    return total


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize(("gain", "loss"), [(1.0, 1.0), (2.0, 0.3)])
def test_sums_of_asymmetric_laplace_laws_are_differences_of_gamma_laws(n, gain, loss):
    law, turned = laplace(n, gain, loss), laplace(n, loss, gain)
    x = tensor([1e-9, 1e-3, 0.4, 2.0, 9.0, 80.0, 300.0])
    tail, other = two_sided_gamma(n, gain, loss, x), two_sided_gamma(n, loss, gain, x)
    assert law.log_sf(x[:, None])[:, 0].exp().numpy() == pytest.approx(tail.numpy(), rel=1e-8)
    assert law.log_cdf(-x[:, None])[:, 0].exp().numpy() == pytest.approx(other.numpy(), rel=1e-8)
    assert turned.log_sf(x[:, None]).numpy() == pytest.approx(law.log_cdf(-x[:, None]).numpy(), abs=1e-8)
    # the tail's slope, with a step whose square is beyond the tolerance
    near = two_sided_gamma(n, gain, loss, x[2:5] * (1 + 1e-4)) - two_sided_gamma(n, gain, loss, x[2:5] * (1 - 1e-4))
    slope = (-near / (2e-4 * x[2:5])).numpy()
    assert law.log_pdf(x[2:5, None])[:, 0].exp().numpy() == pytest.approx(slope, rel=1e-5)
    assert float(law.mean) == pytest.approx(n * (1 / gain - 1 / loss), abs=1e-12)
    assert float(law.variance) == pytest.approx(n * (1 / gain**2 + 1 / loss**2), rel=1e-12)
    # columns alike have equal parts, which are the mean of the tail together
    points = torch.cat((-x[2:5], x))[:, None]
    log_survival, parts = law.tail_parts(points)
    mean = points + (law.log_excess(points) - log_survival).exp()
    torch.testing.assert_close(parts[:, 0], (mean / n).expand(-1, n), rtol=1e-5, atol=1e-9)


def random_law(seed, columns, phases, spread):
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    initial = uniform(1, 2, columns, phases) ** 4
    rates = torch.exp(spread * torch.randn(1, 2, columns, phases, dtype=torch.float64, generator=generator))
    gain, zero = uniform(1, columns), uniform(1, columns) / 3
    rates, sides = rates.sort(-1).values, torch.stack((gain, 1 - gain), 1)
    return SignedSum(initial / initial.sum(-1, keepdim=True), rates, sides, zero, 0.5)


@pytest.mark.parametrize(("columns", "phases", "spread"), [(1, 4, 1.0), (2, 5, 2.0), (6, 8, 1.0), (3, 20, 0.1)])
def test_tails_excesses_and_the_density_are_integrals_of_each_other(columns, phases, spread):
    law = random_law(columns, columns, phases, spread)
    size = float(law.variance.sqrt())
    x = law.offset + size * tensor([-6.0, -1.0, -0.1, 0.1, 1.0, 6.0])[:, None]
    both = law.log_sf(x).exp() + law.log_cdf(x).exp()
    torch.testing.assert_close(both, torch.ones_like(x), rtol=0, atol=1e-6)
    step = 1e-4 * size
    for inner, outer, factor in [
        (lambda x: law.log_pdf(x).exp(), lambda x: law.log_sf(x).exp(), 1),
        (lambda x: law.log_sf(x).exp(), lambda x: law.log_excess(x).exp(), 1),
        (lambda x: law.log_excess(x).exp(), lambda x: law.log_excess(x, 2).exp(), 2),
    ]:
        slope = (outer(x - step) - outer(x + step)) / (2 * step)
        # of values near one the difference of the tails has lost digits to the step
        torch.testing.assert_close(slope, factor * inner(x), rtol=2e-3, atol=2e-3 * float(inner(x).max()))


def test_a_sum_of_one_column_is_the_two_sided_law_and_jumps_are_those_of_its_density():
    initial, rates = tensor([[[[0.3, 0.7]], [[0.9, 0.1]]]]), tensor([[[[1.0, 5.0]], [[0.2, 3.0]]]])
    law = SignedSum(initial, rates, tensor([[[0.6], [0.4]]]), tensor([[0.25]]), 0.0)
    gain, loss = (SeriesPhaseType(initial[0, side, 0], rates[0, side, 0]) for side in (0, 1))
    x = tensor([0.0, 1e-6, 0.3, 4.0, 60.0])
    torch.testing.assert_close(law.log_sf(x[:, None])[:, 0], math.log(0.45) + gain.log_sf(x), rtol=0, atol=1e-8)
    torch.testing.assert_close(law.log_pdf(x[:, None])[:, 0], math.log(0.45) + gain.log_prob(x), rtol=0, atol=1e-7)
    below = -x[1:, None]
    torch.testing.assert_close(law.log_cdf(below)[:, 0], math.log(0.30) + loss.log_sf(x[1:]), rtol=0, atol=1e-8)
    assert float(law.log_cdf(tensor([[0.0]])).exp()) == pytest.approx(0.55, rel=1e-9)


def test_a_heavy_tail_beside_a_narrow_body_keeps_its_digits_far_out():
    # a jump of one row in a million, a thousand times the size of all else
    ones = torch.ones(1, 2, 2, 1, dtype=torch.float64)
    rates, sides = ones.clone(), torch.full((1, 2, 2), 0.5, dtype=torch.float64)
    rates[0, :, 1] = 1e-3
    law = SignedSum(ones, rates, sides, tensor([[0.0, 1 - 1e-6]]), 0.0)
    x = tensor([40.0, 1e3, 2e4])
    # by then the body has no mass left, and widens the jump by its transform at the jump's rate
    wanted = math.log(0.5e-6) - 1e-3 * x - math.log(1 - 1e-6)
    assert law.log_sf(x[:, None])[:, 0].numpy() == pytest.approx(wanted.numpy(), abs=1e-5)
    assert (
        log_signed_inverse(1, False, x, torch.zeros(3, dtype=torch.int64), law.initial, law.rates, law.share, law.zero)
        .isfinite()
        .all()
    )


def test_without_latent_variables_a_sum_of_one_column_is_the_column():
    plain = model(latent_dim=0)
    for tail in ("upper", "lower"):
        total, alone = plain.sum(1, 3.0, tail=tail), plain.losses(1, tail=tail)
        x, p = np.array([-0.03, -0.004, 0.0, 0.01, 0.2]), np.array([0.001, 0.3, 0.999])
        for name, ask, scale in [("sf", x, 1), ("log_cdf", x, 1), ("quantile", p, 3), ("cvar", p, 3)]:
            ours, own = getattr(total, name)(ask * 3 if scale == 1 else ask), getattr(alone, name)(ask)
            assert values(ours) == pytest.approx(scale * values(own), rel=1e-6, abs=1e-9)
        assert values(total.mean()) == pytest.approx(3 * values(alone.mean()), rel=1e-9)
        assert values(total.std()) == pytest.approx(3 * values(alone.std()), rel=1e-9)


def law_of(many, n=16):
    fitted = inside(many)
    return ChainSumLaw(fitted.vae, [0, 1], WEIGHTS, Proposal(fitted.prior, 0), n)


def test_the_lower_tail_of_a_sum_is_the_upper_one_of_minus_the_columns_and_of_minus_the_rows():
    plain, mirrored = model(latent_dim=0), fit(-returns())
    total, lower, other = (
        plain.sum(weights=WEIGHTS),
        plain.sum(weights=WEIGHTS, tail="lower"),
        mirrored.sum([0, 1], WEIGHTS),
    )
    x, p = np.array([-0.1, -0.01, 0.003, 0.2]), np.array([0.01, 0.7, 0.999])
    assert values(total.cdf(x)) == pytest.approx(values(lower.sf(-x)), rel=1e-6)
    assert values(total.isf(p)) == pytest.approx(-values(lower.quantile(p)), rel=1e-6)
    assert values(total.mean()) == pytest.approx(-values(lower.mean()), rel=1e-9)
    # the whole mean is made of the worst and of the best outcomes
    whole = (1 - p) * values(total.cvar(p)) - p * values(lower.cvar(1 - p))
    assert whole == pytest.approx(np.full(3, values(total.mean())[0]), rel=1e-5)
    for ask in (lambda s: s.var(p), lambda s: s.cvar(p), lambda s: s.allocation(p), lambda s: s.diversification(0.99)):
        assert values(ask(lower)) == pytest.approx(values(ask(other)), rel=1e-4, abs=1e-8)
    assert total.var(0.9)["column"][0] == "x0 + 2 x1"
    assert lower.var(0.9)["column"][0] == "-x0 - 2 x1"
    assert lower.allocation(0.9)["column"].tolist() == ["-x0", "-x1"]
    assert plain.sum(tail={"x1": "lower"}).sf(0.0)["column"][0] == "x0 - x1"


@pytest.mark.parametrize("splice", [None, "gpd"])
@pytest.mark.parametrize("tail", ["lower", {"x1": "lower"}])
def test_sums_are_those_of_many_rows(tail, splice):
    one, n = model(latent_dim=0), 200_000
    signs = np.array([-1.0, -1.0]) if tail == "lower" else np.array([1.0, -1.0])
    rows = one.sample(n, 3, splice=splice) * signs * WEIGHTS
    x = rows.sum(1)
    total = one.sum(weights=WEIGHTS, tail=tail, splice=splice, rtol=0.03)
    for answer in total.sf([-0.1, -0.01, 0.0, 0.02, 0.15]):
        share = (x > answer["x"]).mean()
        error = math.hypot(math.sqrt(share * (1 - share) / n), answer["standard_error"])
        assert abs(share - answer["value"]) < 6 * error
    q = float(values(total.var(0.9))[0])
    worst = rows[x > q]
    parts = total.allocation(0.9)
    for part, drawn in zip(parts, worst.T, strict=True):
        # the rows beyond the quantile are a tenth, up to their sampling error
        error = math.hypot(drawn.std() / math.sqrt(len(worst)), part["standard_error"])
        assert abs(part["value"] - drawn.mean()) < 8 * error
    assert values(parts).sum() == pytest.approx(values(total.cvar(0.9))[0], rel=1e-6)


def test_with_a_latent_vector_the_columns_of_a_sum_come_together():
    one = model()
    law = law_of(one)
    share = tensor([0.9, 0.5, 0.01])
    quantile = law.isf(share)
    whole = quantile * share + law.log_excess(quantile).exp()
    torch.testing.assert_close(law.tail_parts(quantile).sum(-1), whole, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(law.log_sf(quantile).exp(), share.expand(8, -1), rtol=1e-6, atol=0)
    own = ColumnLaw(inside(one).vae, 0, Proposal(inside(one).prior, 0), 16)
    alone = ChainSumLaw(inside(one).vae, [0], [1.0], Proposal(inside(one).prior, 0), 16)
    x = tensor([-0.2, -0.01, 0.001, 0.1])
    for ask in (lambda law: law.log_sf(x), lambda law: law.log_cdf(x), lambda law: law.log_excess(x, 2)):
        torch.testing.assert_close(ask(alone), ask(own), rtol=1e-6, atol=1e-6)


def agree(first, second, sigmas=9):
    """Whether two replicated estimates agree within their errors (7 degrees of freedom each)."""
    error = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
    assert bool(((first.mean(0) - second.mean(0)).abs() <= sigmas * error).all())


def test_drawn_sums_are_those_by_transform_in_both_tails():
    fitted = inside(model())
    exact = law_of(model(), 64)
    drawn = TwoDrawnTails(DrawnSumLaw(fitted.vae, [0, 1], WEIGHTS, [None] * 2, Proposal(fitted.prior, 1), 256))
    x = tensor([-0.1, -0.01, 0.0, 0.02, 0.2])
    for ask in (
        lambda law: law.log_sf(x).exp(),
        lambda law: law.log_excess(x).exp(),
        lambda law: law.log_excess(x, 2).exp(),
        lambda law: law.mean[:, None],
        lambda law: law.variance[:, None],
        lambda law: law.tail_parts(x).flatten(1),
    ):
        agree(ask(exact), ask(drawn))
    torch.testing.assert_close(drawn.log_sf(x).exp() + drawn.log_cdf(x).exp(), torch.ones(8, 5).double())
    parts = drawn.tail_parts(x).sum(-1)
    whole = drawn.log_excess(x).exp() + x * drawn.log_sf(x).exp()
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-9)


def test_far_out_a_spliced_sum_has_the_tail_of_its_heaviest_column():
    source = Sum(inside(model(0)), [0, 1], WEIGHTS, "gpd")
    heavy = max(column.trust.fit.shape for column in source.columns)
    far = tensor([1e3, 1e4])
    survival = source.at(points=far.tolist())(256).log_sf(far).exp().mean(0)
    assert math.log10(float(survival[0] / survival[1])) == pytest.approx(1 / heavy, rel=0.1)
    assert isinstance(Column(source.fitted, 0, "gpd").trust_below.point, float)


def test_summing_returns_never_costs_expected_shortfall():
    total = model(0).sum(tail="lower")
    saved = {row["measure"]: row["value"] for row in total.diversification(0.95)}
    alone = values(model(0).cvar(0.95, tail="lower")).sum()
    assert saved["standalone"] == pytest.approx(alone, rel=1e-6)
    assert saved["sum"] == pytest.approx(values(total.cvar(0.95))[0], rel=1e-9)
    assert saved["benefit"] > 0
    flags = total.sf([-10.0, 0.01, 10.0])["extrapolated"]
    assert flags.tolist() == [True, False, True]


def test_what_columns_have_in_a_tail_needs_no_latent_vector():
    law = laplace(2)
    x = tensor([0.0, 1.0, 50.0])
    found = log_signed_tail_parts(x, torch.zeros(3, dtype=torch.int64), law.initial, law.rates, law.share, law.zero)
    assert found[0].numpy() == pytest.approx((-x + (0.5 + x / 4).log()).numpy(), abs=1e-9)
