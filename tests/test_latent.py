"""Latent points and divergences in one pass: against their definition, torch's divergence and finite differences."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from phvae.encoders import LOG_VARIANCE_BOUNDS, posterior
from phvae.kernels import latent
from phvae.priors import Prior, StandardNormal


def draws(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def draw(outputs, noise):
    return latent.draw(outputs, noise, LOG_VARIANCE_BOUNDS)


def slopes(way, outputs, noise):
    """Of a number that weighs points and divergences."""
    z, divergence = way(outputs, noise)
    by_z, by_divergence = draws(*z.shape, dtype=z.dtype, seed=2), draws(*divergence.shape, seed=3)
    return torch.autograd.grad((z, divergence), outputs, (by_z, by_divergence))[0]


@pytest.mark.parametrize("shape", [(300, 3), (7, 2, 1), (2, 3, 600, 20)])
# exact up to rounding: some tens of entries are added, of which none is above some hundreds
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_points_divergences_and_slopes_are_those_of_the_definition(shape, dtype, digits):
    *_, n, latent_dim = shape
    outputs = draws(n, 2 * latent_dim, dtype=dtype).requires_grad_()
    noise, prior = draws(*shape, dtype=dtype, seed=1), StandardNormal(latent_dim)
    law = posterior(outputs)
    z, divergence = draw(outputs, noise)
    assert (z.dtype, divergence.dtype) == (dtype, torch.float64)
    torch.testing.assert_close(z, law.loc + law.scale * noise)
    exact = kl_divergence(posterior(outputs.double()), Normal(0.0, 1.0)).sum(-1)
    torch.testing.assert_close(divergence, exact, rtol=1e-12, atol=1e-12)
    general = Prior.draw(prior, outputs, noise)
    torch.testing.assert_close(general, (z, divergence), rtol=digits, atol=digits)
    found, wanted = (slopes(way, outputs, noise) for way in (draw, lambda *both: Prior.draw(prior, *both)))
    torch.testing.assert_close(found, wanted, rtol=digits, atol=digits)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3)])
def test_slopes_are_those_of_finite_differences(shape):
    outputs, noise = draws(4, 6).requires_grad_(), draws(*shape, seed=1)
    assert torch.autograd.gradcheck(lambda u: draw(u, noise), outputs)


def test_beyond_its_bounds_a_log_variance_moves_nothing():
    lower, upper = LOG_VARIANCE_BOUNDS
    outputs = torch.tensor([[0.5, v] for v in (lower - 1, lower, 0.0, upper, upper + 1)]).double().requires_grad_()
    noise = torch.ones(5, 1, dtype=torch.float64)
    z, divergence = draw(outputs, noise)
    assert torch.equal(z[[0, 4]], z[[1, 3]])
    assert torch.equal(divergence[[0, 4]], divergence[[1, 3]])
    found = slopes(draw, outputs, noise)
    assert (found[:, 1] != 0).tolist() == [False, True, True, True, False]
    torch.testing.assert_close(found, slopes(lambda *both: Prior.draw(StandardNormal(1), *both), outputs, noise))


def test_a_row_is_the_same_whatever_stands_beside_it():
    outputs, noise = draws(5, 4, dtype=torch.float32), draws(5, 2, dtype=torch.float32, seed=1)
    spoiled = outputs.clone()
    spoiled[2] = torch.nan
    z, divergence = draw(outputs, noise)
    z_beside, divergence_beside = draw(spoiled, noise)
    assert z_beside.isnan().any(-1).tolist() == divergence_beside.isnan().tolist() == [False, False, True, False, False]
    others = [0, 1, 3, 4]
    assert torch.equal(z[others], z_beside[others])
    assert torch.equal(divergence[others], divergence_beside[others])
    alone = draw(outputs[3:], noise[3:])
    assert torch.equal(alone[0], z[3:])
    assert torch.equal(alone[1], divergence[3:])


def test_slopes_of_one_result_alone_and_of_shared_memory_are_right():
    outputs, noise = draws(6, 4).requires_grad_(), draws(6, 2, seed=1)
    (by_divergence,) = torch.autograd.grad(draw(outputs, noise)[1].sum(), outputs)
    (by_points,) = torch.autograd.grad(draw(outputs, noise)[0].sum(), outputs)
    mean, log_variance = outputs.detach().chunk(2, -1)
    deviation = (log_variance / 2).exp()
    torch.testing.assert_close(by_divergence, torch.cat((mean, (log_variance.exp() - 1) / 2), -1))
    torch.testing.assert_close(by_points, torch.cat((torch.ones_like(mean), deviation * noise / 2), -1))


def test_a_second_derivative_is_refused():
    outputs, noise = draws(2, 2).requires_grad_(), draws(2, 1, seed=1)
    (slope,) = torch.autograd.grad(draw(outputs, noise)[1].sum(), outputs, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()


def test_the_standard_normal_prior_needs_no_kernel(monkeypatch):
    outputs, noise = draws(6, 4), draws(6, 2, seed=1)
    fused = StandardNormal(2).draw(outputs, noise)
    monkeypatch.setattr(latent, "fused", lambda outputs: None)
    torch.testing.assert_close(StandardNormal(2).draw(outputs, noise), fused, rtol=1e-12, atol=1e-12)
