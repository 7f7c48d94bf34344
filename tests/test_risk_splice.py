"""A spliced law is one law: its functions agree with each other, with integrals and with draws moved into its tail."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from phvae.distributions import SeriesPhaseType
from phvae.risk.law import IntegratedLaw
from phvae.risk.splice import Spliced

U = 4.0


class Chains(IntegratedLaw):
    """Replicates that are slightly different phase-type laws beyond one origin."""

    def __init__(self, replicates=3, lower=0.5):
        spread = 1 + 0.02 * torch.arange(replicates, dtype=torch.float64)[:, None, None]
        self.inner = SeriesPhaseType([0.3, 0.4, 0.3], torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64) * spread)
        self.replicates, self.lower = replicates, lower

    def _at(self, function, x):
        x = x.double().expand(self.replicates, x.shape[-1])
        return function((x - self.lower).T[..., None])[..., 0].T

    def log_pdf(self, x):
        return self._at(self.inner.log_prob, x)

    def log_sf(self, x):
        return self._at(self.inner.log_sf, x)

    def log_cdf(self, x):
        return self._at(self.inner.log_cdf, x)

    def log_excess(self, x, order=1):
        return self._at(lambda x: self.inner.log_excess(x, order), x)

    @property
    def mean(self):
        return self.inner.mean[:, 0] + self.lower

    @property
    def variance(self):
        return self.inner.variance[:, 0]


@pytest.fixture(params=[-0.3, 0.0, 0.3, 0.45])
def law(request):
    return Spliced(Chains(), U, request.param)


def at(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_below_the_threshold_nothing_changes(law):
    x = at(0.6, 1.0, 3.9, U)
    for name in ("log_pdf", "log_sf", "log_cdf"):
        torch.testing.assert_close(getattr(law, name)(x), getattr(law.law, name)(x), rtol=0, atol=0)


def test_mass_density_and_slope_are_continuous(law):
    x = at(U, U * (1 + 1e-12))
    for function in (law.log_pdf, law.log_sf, law.log_cdf, law.log_excess, lambda x: law.log_excess(x, 2)):
        left, right = function(x).T
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def test_beyond_the_threshold_the_tail_is_generalised_pareto_in_every_replicate(law):
    x = at(5.0, 6.0, 7.0)
    mass = law.law.log_sf(at(U)).exp()[:, 0].numpy()
    scale = mass / law.law.log_pdf(at(U)).exp()[:, 0].numpy()
    for r in range(3):
        tail = stats.genpareto(law.shape, scale=scale[r])
        assert law.log_sf(x)[r].exp().numpy() == pytest.approx(mass[r] * tail.sf(x.numpy() - U), rel=1e-9)
        assert law.log_pdf(x)[r].exp().numpy() == pytest.approx(mass[r] * tail.pdf(x.numpy() - U), rel=1e-9)


def test_survival_and_distribution_function_sum_to_one_and_invert(law):
    levels = at(1e-9, 1e-4, 0.03, 0.3, 0.9)
    x = law.isf(levels)
    torch.testing.assert_close(law.log_sf(x).exp(), levels.expand(3, 5), rtol=1e-7, atol=0)
    torch.testing.assert_close(law.log_sf(x).exp() + law.log_cdf(x).exp(), torch.ones(3, 5, dtype=torch.float64))
    torch.testing.assert_close(law.icdf(1 - levels[1:]), x[:, 1:], rtol=1e-9, atol=1e-9)
    # per replicate probabilities, on both sides of the threshold at once
    mixed = law.log_sf(at(U)).exp() * torch.tensor([[0.5], [1.0], [1.5]], dtype=torch.float64)
    torch.testing.assert_close(law.log_sf(law.isf(mixed)).exp(), mixed, rtol=1e-9, atol=0)


@pytest.mark.parametrize("order", [1, 2])
def test_stop_loss_moments_are_integrals_of_the_survival_function(law, order):
    end = float(law.isf(at(1e-16)).max()) if law.shape < 0 else math.inf
    for threshold in (0.5, 2.0, U, 6.0):

        def integrand(t, threshold=threshold):
            x = math.exp(t)
            return float(order * (x - threshold) ** (order - 1) * law.log_sf(at(x)).exp()[1, 0]) * x

        first = integrate.quad(integrand, math.log(threshold), math.log(6.1), points=[math.log(U)], limit=200)[0]
        last = min(math.log(end), 200.0) if end < math.inf else 200.0
        middle = min(last, 30.0)
        area = first + integrate.quad(integrand, math.log(6.1), middle, limit=400)[0]
        area += integrate.quad(integrand, middle, last, limit=400)[0] if last > middle else 0.0
        assert float(law.log_excess(at(threshold), order)[1, 0].exp()) == pytest.approx(area, rel=2e-6)


def test_mean_and_variance_follow_from_the_stop_loss_moments(law):
    first, second = (law.log_excess(at(law.lower), order).exp()[:, 0] for order in (1, 2))
    torch.testing.assert_close(law.mean, law.lower + first)
    torch.testing.assert_close(law.variance, second - first.square())


def test_infinite_moments_are_infinite_and_say_why():
    heavy = Spliced(Chains(), U, 0.6)
    assert bool(heavy.mean.isfinite().all())
    assert heavy.variance.tolist() == [math.inf] * 3
    assert heavy.log_excess(at(1.0), 2).tolist() == [[math.inf]] * 3
    assert heavy.moments == "the variance is infinite: the tail beyond 4 has shape 0.6"
    heaviest = Spliced(Chains(), U, 1.2)
    assert heaviest.mean.tolist() == [math.inf] * 3
    assert heaviest.tail_mean(at(0.01)).tolist() == [[math.inf]] * 3
    assert heaviest.moments == "the mean and variance are infinite: the tail beyond 4 has shape 1.2"
    # quantiles and probabilities never need a moment
    x = heaviest.isf(at(0.5, 1e-6))
    torch.testing.assert_close(heaviest.log_sf(x).exp(), at(0.5, 1e-6).expand(3, 2))
    assert Spliced(Chains(), U, 0.2).moments is None


def test_the_tail_mean_exceeds_the_quantile_and_grows_with_the_shape():
    levels = at(0.1, 1e-3, 1e-6)
    means = [Spliced(Chains(), U, shape).tail_mean(levels) for shape in (-0.2, 0.0, 0.3, 0.6)]
    assert bool((means[0] > Spliced(Chains(), U, -0.2).isf(levels)).all())
    for lighter, heavier in pairwise(means):
        assert bool((lighter < heavier).all())


def test_an_exponential_law_continued_at_shape_zero_is_itself():
    law = Chains(1)
    law.inner = SeriesPhaseType([[[1.0]]], [[[0.7]]])
    spliced = Spliced(law, U, 0.0)
    x = at(0.6, 3.0, 5.0, 500.0)
    for name in ("log_pdf", "log_sf", "log_excess"):
        torch.testing.assert_close(getattr(spliced, name)(x), getattr(law, name)(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(spliced.mean, law.mean)
    torch.testing.assert_close(spliced.variance, law.variance)


@pytest.mark.parametrize("count", [300, 20_000])
def test_moved_draws_follow_the_spliced_law_and_keep_their_order(count):
    law = Spliced(Chains(), U, 0.4)
    generator = torch.Generator().manual_seed(1)
    draws = torch.cat([law.law.inner.sample((count,), generator)[:, r, 0] for r in range(3)]) + law.lower
    moved = law.move(draws)
    inside = draws <= U
    assert torch.equal(moved[inside], draws[inside])
    order = draws.argsort()
    assert bool((moved[order].diff() >= 0).all())

    # the draws are of the mean of the replicates, and so is the tail they are moved to
    def cdf(x):
        return law.log_cdf(torch.as_tensor(x)).exp().mean(0).numpy()

    # the tail of the mean law and the mean of the tails differ by far less than the draws can show
    assert stats.kstest(moved.numpy(), cdf).pvalue > 1e-6
    exact = torch.logsumexp(law.law.log_sf(draws[~inside][:200]), 0) - math.log(3)
    pooled = law.log_sf(at(U)).exp().mean().log()
    scale = float((law._log_mass.exp().mean()) / law.law.log_pdf(at(U)).exp().mean())
    wanted = U + stats.genpareto(0.4, scale=scale).isf((exact - pooled).exp().numpy())
    assert moved[~inside][:200].numpy() == pytest.approx(wanted, rel=1e-7)


def test_draws_that_are_far_out_are_moved_without_rounding_to_infinity():
    law = Spliced(Chains(), U, 0.5)
    moved = law.move(at(2.0, 2000.0))
    assert moved[0] == 2.0
    # S(2000) is about exp(-1000), far below the smallest number
    assert float(moved[1].log()) == pytest.approx(0.5 * 0.5 * 2000, rel=0.02)


@pytest.mark.parametrize(
    ("threshold", "shape", "message"),
    [
        (0.5, 0.1, r"threshold = 0\.5; give a finite one above the lower end 0\.5"),
        (math.inf, 0.1, "threshold = inf"),
        (U, math.nan, "shape = nan; give a tail index above -1"),
        (1e9, 0.1, None),
    ],
)
def test_bad_splices_are_one_clear_error(threshold, shape, message):
    if message is None:
        assert np.isfinite(Spliced(Chains(), threshold, shape).tail.scale.numpy()).all()
        return
    with pytest.raises(ValueError, match=message):
        Spliced(Chains(), threshold, shape)
