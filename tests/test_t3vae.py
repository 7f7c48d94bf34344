"""The t3-VAE: its loss is a γ-power divergence, and its draws are those of the laws it names."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from phvae.baselines.t3vae import T3VAE, T3Divergence, T3Model
from phvae.networks import MLP
from phvae.vae import GaussianEncoder

CASES = [(3.0, 0.1), (9.0, 1.0), (15.0, 0.5)]


@pytest.mark.parametrize(("degrees", "spread"), CASES)
@pytest.mark.parametrize("latent_dim", [1, 3])
def test_the_regulariser_is_zero_at_its_minimum_and_positive_around_it(degrees, spread, latent_dim):
    divergence = T3Divergence(4, latent_dim, degrees, spread)
    size = divergence.degrees * divergence.variance
    best = torch.full((1, latent_dim), math.sqrt(divergence.variance), dtype=torch.float64)
    nothing = torch.zeros_like(best)
    # a sum of three terms of this size
    assert abs(float(divergence(nothing, best))) < 1e-13 * size
    for factor in (0.9, 1.1):
        assert float(divergence(nothing, factor * best)) > 1e-4 * size
    assert float(divergence(nothing + 0.1 * best, best)) > 1e-4 * size
    mean, deviation = nothing.requires_grad_(), best.clone().requires_grad_()
    gradients = torch.autograd.grad(divergence(mean, deviation).sum(), (mean, deviation))
    assert all(float(part.abs().max()) < 1e-12 * size for part in gradients)


@pytest.mark.parametrize(("degrees", "spread"), CASES)
def test_the_regulariser_is_a_gamma_power_divergence_from_the_named_law(degrees, spread):
    """With ``‖q‖ = (∫ q^(1 + γ))^(1 / (1 + γ))``: ``D(q, p) ∝ ∫ q (p / ‖p‖)^γ - ‖q‖`` for ``γ < 0``, by quadrature."""
    divergence = T3Divergence(1, 1, degrees, spread)
    gamma, total = -2 / (degrees + 2), degrees + 1
    near = stats.t(total, 0.0, math.sqrt(degrees * divergence.variance / total))

    def norm(law):
        integral, _ = integrate.quad(lambda z: law.pdf(z) ** (1 + gamma), -np.inf, np.inf, epsrel=1e-11)
        return integral ** (1 / (1 + gamma))

    def power(mean, deviation):
        law = stats.t(total, mean, math.sqrt(degrees / total) * deviation)
        bend = norm(near) ** -gamma
        cross, _ = integrate.quad(
            lambda z: law.pdf(z) * near.pdf(z) ** gamma * bend, -np.inf, np.inf, epsrel=1e-11, limit=200
        )
        return cross - norm(law)

    ratios = []
    for mean, factor in ((0.3, 1.0), (0.0, 0.5), (-1.5, 2.0), (0.7, 1.3)):
        deviation = factor * math.sqrt(divergence.variance)
        value = divergence(torch.full((1, 1), mean).double(), torch.full((1, 1), deviation).double())
        ratios.append(float(value) / power(mean, deviation))
    # quadrature to 1e-11 of terms up to 1e4 times their difference
    assert ratios == pytest.approx([ratios[0]] * 4, rel=1e-5)
    assert ratios[0] > 0


@pytest.mark.parametrize(("degrees", "spread"), CASES)
def test_the_loss_is_the_gamma_power_divergence_of_the_joint_law(degrees, spread):
    """One column, one latent dimension: ``∫ q(z | x) (p(x, z) / ‖p‖)^γ dz - ‖q(· | x)‖`` over its scale at the mode.

    That scale is ``(p / ‖p‖)^γ / ν`` at ``x = μ(z), z = 0``; the loss then differs by ``ν - ν T`` alone.
    """
    gamma = -2 / (degrees + 2)
    model = one_column(degrees, spread)
    slope = 0.7

    def joint(z, x):
        width = spread * math.sqrt((degrees + z * z) / (degrees + 1))
        return stats.t.pdf(z, degrees) * stats.t.pdf((x - slope * z) / width, degrees + 1) / width

    with torch.no_grad():
        # μ(z) = slope z
        model.decoder.head.weight.fill_(slope)
        model.decoder.head.bias.zero_()
    # ‖p‖ does not depend on μ: x - μ(z) is integrated for every z
    nodes, weights = np.polynomial.legendre.leggauss(300)
    angle, weight = nodes * math.pi / 2, weights * math.pi / 2
    z = np.tan(angle)[:, None]
    width = spread * np.sqrt((degrees + z * z) / (degrees + 1))
    e = np.tan(angle)[None]
    density = stats.t.pdf(z, degrees) * stats.t.pdf(e, degrees + 1) / width
    jacobian = weight[:, None] / np.cos(angle[:, None]) ** 2 * weight / np.cos(angle) ** 2
    assert float((density * width * jacobian).sum()) == pytest.approx(1, rel=1e-6)
    norm = float((density ** (1 + gamma) * width * jacobian).sum()) ** (1 / (1 + gamma))

    x, mean, deviation = 1.3, 0.4, 0.6
    posterior = stats.t(degrees + 1, mean, math.sqrt(degrees / (degrees + 1)) * deviation)
    quadrature = {"epsrel": 1e-10, "limit": 300}
    cross, _ = integrate.quad(lambda z: posterior.pdf(z) * joint(z, x) ** gamma, -np.inf, np.inf, **quadrature)
    own, _ = integrate.quad(lambda z: posterior.pdf(z) ** (1 + gamma), -np.inf, np.inf, **quadrature)
    value = cross * norm**-gamma - own ** (1 / (1 + gamma))
    scale = (joint(0.0, 0.0) / norm) ** gamma / degrees

    regulariser = float(model.divergence(torch.full((1, 1), mean).double(), torch.full((1, 1), deviation).double()))
    # E |x - slope z|² with the variance ν / (ν - 1) Σ of the posterior
    error = (x - slope * mean) ** 2 + slope**2 * degrees / (degrees - 1) * deviation**2
    loss = error / spread**2 + regulariser
    constant = degrees - degrees * model.divergence.variance
    assert value / scale == pytest.approx(loss + constant, rel=1e-5)


def one_column(degrees, spread, n_columns=1, latent_dim=1):
    generator = torch.Generator().manual_seed(0)
    encoder = GaussianEncoder(
        n_columns, latent_dim, origin=np.zeros(n_columns), scale=np.ones(n_columns), hidden=(4,), generator=generator
    )
    return T3Model(encoder, MLP(latent_dim, n_columns, hidden=(), generator=generator), degrees=degrees, spread=spread)


def test_the_terms_are_half_the_loss():
    model = one_column(5.0, 0.5, n_columns=2, latent_dim=3)
    x = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        terms = model.terms(x, n_samples=2, generator=torch.Generator().manual_seed(2))
        posterior = model.encoder(x)
        z = model.draw_posterior(posterior.loc, posterior.scale, 2, torch.Generator().manual_seed(2))
        error = (x - model.decoder(z)).square().sum(-1).mean(0) / 0.5**2
        regulariser = model.divergence(posterior.loc.double(), posterior.scale.double())
    assert torch.allclose(terms.kl - terms.log_likelihood, (error + regulariser) / 2)


@pytest.mark.parametrize("degrees", [3.0, 9.0])
def test_the_posterior_draws_one_student_vector_per_row(degrees):
    model = one_column(degrees, 1.0, n_columns=2, latent_dim=2)
    n = 20_000
    mean, deviation = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 3.0]])
    z = model.draw_posterior(mean, deviation, n, torch.Generator().manual_seed(3))[:, 0].double()
    standard = ((z - mean) / deviation * math.sqrt((degrees + 2) / degrees)).numpy()
    for j in range(2):
        assert stats.kstest(standard[:, j], stats.t(degrees + 2).cdf).pvalue > 1e-6
    # the squared length of a Student vector over its dimension follows an F law
    assert stats.kstest((standard**2).sum(1) / 2, stats.f(2, degrees + 2).cdf).pvalue > 1e-6


@pytest.mark.parametrize("degrees", [3.0, 9.0])
def test_generated_rows_are_the_student_vectors_of_the_joint_law(degrees):
    model = one_column(degrees, 0.3, n_columns=2, latent_dim=2)
    with torch.no_grad():
        model.decoder.head.weight.zero_()
    rows = model.generate(20_000, generator=torch.Generator().manual_seed(4)).numpy()
    standard = (rows - model.decoder.head.bias.detach().numpy()) / 0.3
    # z and the noise of the rows are one Student vector of all dimensions, so the rows alone are one as well
    for j in range(2):
        assert stats.kstest(standard[:, j], stats.t(degrees).cdf).pvalue > 1e-6
    assert stats.kstest((standard**2).sum(1) / 2, stats.f(2, degrees).cdf).pvalue > 1e-6
    if degrees > 8:
        # five deviations of the variance ν / (ν - 2)
        squares = standard[:, 0] ** 2
        assert abs(squares.mean() - degrees / (degrees - 2)) < 5 * squares.std() / math.sqrt(20_000)


def test_degrees_and_spread_are_checked_and_named():
    assert T3VAE(degrees=3, spread=0.1).name == "t3-VAE (nu=3, s=0.1)"
    for settings in ({"degrees": 2.0}, {"spread": 0.0}):
        with pytest.raises(ValueError, match="give more than 2 and more than 0"):
            T3VAE(**settings)
