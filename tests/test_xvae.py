"""The extreme-value VAE: densities by change of variables, tilted stable draws, margins by simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from phvae.baselines.xvae import XVAE, TiltedStable, XModel, XVAEWithParetoMargins
from phvae.vae import GaussianEncoder


def tilted(log_tilts):
    prior = TiltedStable(len(log_tilts))
    with torch.no_grad():
        prior.log_tilt.copy_(torch.tensor(log_tilts))
    return prior


def model(n_columns=2, latent_dim=3, location=0.0):
    generator = torch.Generator().manual_seed(0)
    scale = np.arange(1.0, n_columns + 1)
    encoder = GaussianEncoder(
        n_columns, latent_dim, origin=np.zeros(n_columns), scale=scale, hidden=(4,), generator=generator
    )
    made = XModel(encoder, location=location, generator=generator)
    with torch.no_grad():
        made.prior.log_tilt.copy_(torch.linspace(-2.0, 1.0, latent_dim))
        made.log_scales.copy_(torch.linspace(-0.5, 0.5, n_columns))
    return made


@pytest.mark.parametrize("location", [0.0, -0.4, 0.5])
@pytest.mark.parametrize("y", [0.1, 3.0])
def test_the_density_given_y_is_that_of_frechet_noise_times_y(location, y):
    made = model(1, 1, location)
    log_y = torch.tensor([[math.log(y)]], dtype=torch.float64)
    scale = math.exp(float(made.log_scales.detach()[0]))

    def density(x):
        with torch.no_grad():
            return float(made.log_density(torch.tensor([[x]], dtype=torch.float64), log_y).exp())

    # shape 1 in scipy is the inverse Weibull law with c = 1
    noise = stats.invweibull(1.0, location, scale)
    for x in y * (location + np.array([0.05, 0.5, 2.0, 100.0])):
        assert density(float(x)) == pytest.approx(noise.pdf(x / y) / y, rel=1e-10)
    # over x = y (m + τ / w): dx = y τ / w² dw
    mass, _ = integrate.quad(lambda w: density(y * (location + scale / w)) * y * scale / w**2, 0, np.inf, epsrel=1e-10)
    assert mass == pytest.approx(1, rel=1e-8)
    assert density(y * location - 1e-3) == 0


@pytest.mark.parametrize("log_tilt", [-4.0, 0.0, 3.0])
def test_the_tilted_stable_law_is_inverse_gaussian_with_the_promised_transform(log_tilt):
    prior, tilt, n = tilted([log_tilt]), math.exp(log_tilt), 100_000
    mean = 1 / (2 * math.sqrt(tilt))
    # scipy takes the mean over the shape, and the shape as scale
    law = stats.invgauss(mean / 0.5, scale=0.5)
    u = torch.linspace(-3, 3, 7, dtype=torch.float64)
    expected = law.logpdf(u.exp().numpy()) + u.numpy()
    assert prior.log_prob(u[:, None]).detach().numpy() == pytest.approx(expected, rel=1e-9)
    z = prior.sample(n, torch.Generator().manual_seed(1))[:, 0].exp().numpy()
    assert stats.kstest(z, law.cdf).pvalue > 1e-6
    for s in (0.01, 1.0, 50.0):
        values = np.exp(-s * z)
        promised = math.exp(math.sqrt(tilt) - math.sqrt(tilt + s))
        # five deviations of a mean
        assert abs(values.mean() - promised) < 5 * values.std() / math.sqrt(n)


def test_the_divergence_is_an_unbiased_difference_of_log_densities():
    prior = tilted([0.0, 1.0])
    posterior = torch.distributions.Normal(torch.zeros(1, 2), torch.tensor([[0.5, 0.2]]))
    z = torch.tensor([[0.3, -0.1]])
    expected = posterior.log_prob(z).sum() - prior.log_prob(z)[0]
    assert prior.divergence(posterior, z).tolist() == pytest.approx([float(expected.detach())], rel=1e-6)


def test_margins_match_their_simulation():
    made, n = model(), 50_000
    rows = made.generate(n, generator=torch.Generator().manual_seed(2)).numpy()
    tilt = made.prior.log_tilt.detach().double().exp().numpy()
    weights = made.logits.detach().double().softmax(-1).numpy()
    scales = made.log_scales.detach().double().exp().numpy() * np.arange(1.0, 3.0)

    def cdf(x, j):
        rest = tilt + scales[j] * weights[j] ** 2 / x[:, None]
        return np.exp((np.sqrt(tilt) - np.sqrt(rest)).sum(1))

    for j in range(2):
        assert stats.kstest(rows[:, j], lambda x, j=j: cdf(x, j)).pvalue > 1e-6
    # and jointly, by the transform of both columns at once: E exp(-Σ_k Z_k Σ_j τ_j w_jk² / x_j)
    x = np.array([2.0, 3.0])
    both = tilt + (scales[:, None] * weights**2 / x[:, None]).sum(0)
    promised = math.exp((np.sqrt(tilt) - np.sqrt(both)).sum())
    hits = int((rows <= x).all(1).sum())
    assert stats.binomtest(hits, n, promised).pvalue > 1e-6


def test_the_bound_is_below_the_log_likelihood_and_close_for_the_right_posterior():
    # one latent variable, one column: log p(x) by quadrature over u = log z
    made = model(1, 1)
    x = torch.tensor([[0.7]], dtype=torch.float64)

    def joint(u):
        with torch.no_grad():
            log_z = torch.tensor([[u]], dtype=torch.float64)
            return math.exp(float(made.prior.log_prob(log_z)) + float(made.log_density(x, made.log_mixture(log_z))))

    evidence, _ = integrate.quad(joint, -30, 30, epsrel=1e-9, limit=200)
    with torch.no_grad():
        bounds = made.elbo(x, n_samples=20_000, generator=torch.Generator().manual_seed(3))
    assert float(bounds) < math.log(evidence)


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return stats.pareto(2.0).rvs(size=(n, 2), random_state=rng)


def test_margins_go_to_the_frechet_scale_and_back():
    made = XVAEWithParetoMargins(epochs=1, hidden=(8,), latent_dim=2).fit(rows())
    y = made._to_frechet(rows())
    assert (y > 0).all()
    # mid-ranks are uniform by construction up to a row, and beyond the threshold as far as the tail fits
    for j in range(2):
        assert stats.kstest(np.exp(-1 / y[:, j]), "uniform").statistic < 0.05
    back = np.stack([law.isf(-np.expm1(-1 / column)) for law, column in zip(made.margins_, y.T, strict=True)], 1)
    assert back == pytest.approx(rows(), rel=1e-6)
    assert (made.sample(1000, seed=0) >= rows().min(0)).all()


def test_steps_of_tilts_weights_and_scales_are_larger():
    assert all(
        any(name.startswith(key) for key in XVAE.rate_factors)
        for name, _ in model().named_parameters()
        if not name.startswith("encoder")
    )


def test_raw_rows_must_be_positive():
    with pytest.raises(ValueError, match="xVAE, raw: 1 values are not positive"):
        XVAE().fit(np.array([[1.0], [0.0], [2.0]]))
