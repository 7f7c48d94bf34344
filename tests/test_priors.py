"""Priors: densities that integrate to one, draws that follow them, divergences that agree with their definition."""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import Independent, Normal, kl_divergence

from phvae.priors import MixturePrior, StandardNormal, divergence_per_dimension


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def lopsided():
    """A mixture in one dimension with unequal weights, means and scales."""
    prior = MixturePrior(1, 3)
    with torch.no_grad():
        prior.means.copy_(torch.tensor([[-2.0], [0.5], [1.5]]))
        prior.log_scales.copy_(torch.tensor([[0.4], [0.2], [1.0]]).log())
        prior.logits.copy_(torch.tensor([0.2, 0.5, 0.3]).log())
    return prior.double()


def lopsided_cdf(z):
    return 0.2 * stats.norm.cdf(z, -2, 0.4) + 0.5 * stats.norm.cdf(z, 0.5, 0.2) + 0.3 * stats.norm.cdf(z, 1.5, 1.0)


def test_the_standard_normal_density_is_that_of_torch():
    z = torch.randn((4, 5, 3), dtype=torch.float64, generator=seeded())
    expected = Independent(Normal(torch.zeros(3).double(), 1.0), 1).log_prob(z)
    assert torch.allclose(StandardNormal(3).log_prob(z), expected, rtol=1e-14)


def test_the_mixture_density_is_the_derivative_of_its_cdf():
    edges = torch.linspace(-5, 6, 12, dtype=torch.float64)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None] * edges.diff() + edges[:-1]
    area = torch.trapezoid(lopsided().log_prob(grid[..., None]).exp(), grid, dim=0).detach()
    # the error of the trapezoid rule is h^2/12 times the change of slope, below 1e-5 with h = 5e-4
    assert area.numpy() == pytest.approx(lopsided_cdf(edges[1:].numpy()) - lopsided_cdf(edges[:-1].numpy()), abs=1e-5)


def test_draws_of_the_mixture_follow_it():
    n = 20_000
    draws = lopsided().sample(n, seeded())
    # Dvoretzky-Kiefer-Wolfowitz: exceeded once in a million
    assert stats.kstest(draws[:, 0].numpy(), lopsided_cdf).statistic < math.sqrt(math.log(2 / 1e-6) / (2 * n))


def test_the_mixture_starts_out_like_a_standard_normal_law():
    prior = MixturePrior(2, 500, generator=seeded())
    variance = prior.means.var(0, correction=0) + prior.log_scales.exp().square().mean(0)
    # 500 means: their sample variance has relative standard deviation sqrt(2/500) on its half of the whole
    assert variance.tolist() == pytest.approx([1.0, 1.0], abs=5 * 0.5 * math.sqrt(2 / 500))
    assert prior.means.mean(0).tolist() == pytest.approx([0.0, 0.0], abs=5 * math.sqrt(0.5 / 500))


@pytest.mark.parametrize(
    "prior", [StandardNormal(3), MixturePrior(3, 4, generator=seeded())], ids=["normal", "mixture"]
)
def test_the_generator_alone_decides_the_draws(prior):
    before = torch.get_rng_state()
    draws = prior.sample(10, seeded(5))
    assert draws.shape == (10, 3)
    assert draws.dtype == torch.float32
    assert not draws.requires_grad
    assert torch.equal(draws, prior.sample(10, seeded(5)))
    assert not torch.equal(draws, prior.sample(10, seeded(6)))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_closed_form_divergence_is_the_mean_of_log_ratios():
    posterior = Normal(
        torch.tensor([[0.3, -2.0], [1.0, 0.1]]).double(), torch.tensor([[0.5, 0.1], [2.0, 1.0]]).double()
    )
    n = 100_000
    noise = torch.randn((n, 2, 2), dtype=torch.float64, generator=seeded())
    z = posterior.loc + posterior.scale * noise
    exact = StandardNormal(2).divergence(posterior, z)
    assert torch.allclose(exact, kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1), rtol=1e-12)
    assert torch.allclose(divergence_per_dimension(posterior).sum(-1), exact)
    ratios = super(StandardNormal, StandardNormal(2)).divergence(posterior, z)
    assert ratios.shape == (n, 2)
    # five standard errors: exceeded less than once in a million per row
    assert bool(((ratios.mean(0) - exact).abs() < 5 * ratios.std(0) / math.sqrt(n)).all())


def test_the_mixture_divergence_of_itself_is_zero():
    prior = MixturePrior(2, 1).double()
    with torch.no_grad():
        prior.means.copy_(torch.tensor([[0.5, -1.0]]))
    posterior = Normal(prior.means, prior.log_scales.exp())
    z = posterior.mean + posterior.stddev * torch.randn((7, 1, 2), dtype=torch.float64, generator=seeded())
    # log densities of some tens are subtracted, each of which is right to 1e-15 of its size
    assert torch.allclose(prior.divergence(posterior, z), torch.zeros(7, 1, dtype=torch.float64), atol=1e-12)


def test_gradients_of_the_mixture_density_are_right():
    prior = MixturePrior(2, 3, generator=seeded()).double()
    z = torch.randn((4, 2), dtype=torch.float64, generator=seeded(1)).requires_grad_()
    names = [name for name, _ in prior.named_parameters()]

    def log_prob(point, *values):
        parameters = {f"prior.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(_Density(prior), parameters, (point,))

    values = tuple(value.detach().clone().requires_grad_() for value in prior.parameters())
    assert torch.autograd.gradcheck(log_prob, (z, *values))


class _Density(torch.nn.Module):
    def __init__(self, prior):
        super().__init__()
        self.prior = prior

    def forward(self, z):
        return self.prior.log_prob(z)


def test_an_empty_latent_vector_has_probability_one():
    for prior in (StandardNormal(0), MixturePrior(0, 2)):
        assert prior.sample(3, seeded()).shape == (3, 0)
        assert prior.log_prob(torch.empty(3, 0)).exp().tolist() == pytest.approx([1.0] * 3)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="n_components = 0; a mixture has at least one component"):
        MixturePrior(2, 0)
