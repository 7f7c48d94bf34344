"""The bounds of a variational autoencoder against quadrature over a latent variable of one dimension."""

import math

import pytest
import torch
from torch.distributions import LogNormal
from torch.func import functional_call

from phvae.decoders import Decoder, LogNormalDecoder, PhaseTypeDecoder
from phvae.distributions import SeriesPhaseType
from phvae.distributions.located import Located
from phvae.priors import MixturePrior, StandardNormal
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

UNITS = {"origin": [0.0, 1.0], "scale": [1.0, 0.25]}
ROWS = torch.tensor([[0.1, 1.3], [1.0, 1.1], [4.0, 2.0], [0.02, 9.0]], dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def built(latent_dim=1, *, decoder=PhaseTypeDecoder, prior=None, units=UNITS, head=1.0, **options):
    """A model whose decoder listens to the latent point and whose encoder is no good yet."""
    generator = seeded(7)
    n_columns = len(units["origin"])
    encoder = GaussianEncoder(n_columns, latent_dim, hidden=(8,), generator=generator, **units)
    decode = decoder(latent_dim, hidden=(8,), generator=generator, **units, **options)
    with torch.no_grad():
        decode.network.head.weight.normal_(0, head, generator=generator)
    return VAE(encoder, decode, StandardNormal(latent_dim) if prior is None else prior)


def log_marginal(model, x):
    """log p(x) by the trapezoid rule over z in [-9, 9]; the integrand is smooth, so the error is below 1e-9."""
    z = torch.linspace(-9, 9, 1201, dtype=torch.float64)[:, None]
    conditional = model.decoder(z[:, None]).log_prob(x)
    return torch.logsumexp(conditional + model.prior.log_prob(z)[:, None], 0) + math.log(18 / 1200)


@torch.no_grad()
@pytest.mark.parametrize("prior", [StandardNormal(1), MixturePrior(1, 3, generator=seeded(3))], ids=["one", "mixture"])
def test_elbo_below_importance_weighted_below_log_likelihood(prior):
    model = built(prior=prior)
    truth = log_marginal(model, ROWS)
    repeats = 3000
    x = ROWS.repeat(repeats, 1)
    estimates = [model.elbo(x, generator=seeded(1))]
    estimates += [model.log_likelihood(x, n_importance=k, generator=seeded(k)) for k in (1, 4, 16)]
    columns = [values.view(repeats, -1) for values in estimates]
    means = [values.mean(0) for values in columns]
    # six standard errors of the two means together: exceeded less than once in a million over all comparisons
    spread = [6 * values.std(0) / math.sqrt(repeats) for values in columns]
    for k in (0, 2, 3):
        assert bool((means[k] < truth + spread[k]).all())
    # with one draw the estimate is one draw of the ELBO
    assert bool(((means[1] - means[0]).abs() < spread[0] + spread[1]).all())
    assert bool((means[1] < means[2] + spread[1] + spread[2]).all())
    assert bool((means[2] < means[3] + spread[2] + spread[3]).all())
    assert float((truth - means[0]).max()) > 0.1, "the posterior of this encoder should leave a gap to see"


@torch.no_grad()
def test_many_importance_draws_reach_the_log_likelihood():
    model = built()
    draws = 20_000
    estimate = model.log_likelihood(ROWS, n_importance=draws, generator=seeded(1))
    posterior = model.posterior(ROWS)
    noise = torch.randn((draws, 4, 1), generator=seeded(2))
    z = posterior.loc + posterior.scale * noise
    log_ratio = model.prior.log_prob(z) - posterior.log_prob(z).sum(-1) + model.decoder(z).log_prob(ROWS)
    share = torch.softmax(log_ratio.double(), 0)
    # delta method: the variance of the log of a mean of K weights is Σ share² - 1 / K
    deviation = (share.square().sum(0) - 1 / draws).sqrt()
    assert float(deviation.max()) < 0.15, "too few draws for the comparison to say anything"
    assert bool(((estimate - log_marginal(model, ROWS)).abs() < 6 * deviation + 1e-5).all())


@torch.no_grad()
def test_importance_draws_in_chunks_are_one_estimate(monkeypatch):
    model = built()
    whole = model.log_likelihood(ROWS, n_importance=64, generator=seeded(1))
    monkeypatch.setattr("phvae.vae.CHUNK", 4 * 16)
    # the generator hands out its numbers in the same order when chunks hold a multiple of sixteen
    assert torch.allclose(model.log_likelihood(ROWS, n_importance=64, generator=seeded(1)), whole, rtol=1e-12)


def test_the_elbo_is_its_two_terms():
    model = built(3)
    log_likelihood, kl = model.elbo_terms(ROWS, generator=seeded(1))
    assert log_likelihood.shape == kl.shape == (4,)
    assert log_likelihood.dtype == kl.dtype == torch.float64
    assert torch.equal(model.elbo(ROWS, beta=0.3, generator=seeded(1)), log_likelihood - 0.3 * kl)
    posterior = model.posterior(ROWS)
    z = posterior.loc + posterior.scale * torch.randn((4, 3), generator=seeded(1))
    assert torch.allclose(log_likelihood, model.decoder(z).log_prob(ROWS))


@torch.no_grad()
@pytest.mark.parametrize("prior", [StandardNormal(2), MixturePrior(2, 3, generator=seeded(3))], ids=["one", "mixture"])
def test_more_draws_average_the_same_bound(prior):
    model = built(2, prior=prior)
    single = model.elbo(ROWS.repeat(4000, 1), generator=seeded(1)).view(4000, 4)
    many = model.elbo(ROWS, generator=seeded(2), n_samples=4000)
    assert many.shape == (4,)
    # six standard errors of both means
    assert bool(((many - single.mean(0)).abs() < 6 * math.sqrt(2) * single.std(0) / math.sqrt(4000)).all())


def test_gradients_of_the_elbo_are_right_for_every_parameter():
    prior = MixturePrior(2, 2, generator=seeded(3))
    model = built(2, prior=prior, head=0.5, n_phases=3, zero_share=[0.3, 0.0]).double()
    x = ROWS.clone()
    x[2, 0] = 0.0
    names = [name for name, _ in model.named_parameters()]

    def elbo(*values):
        parameters = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(_Elbo(model), parameters, (x,))

    values = tuple(value.detach().clone().requires_grad_() for value in model.parameters())
    assert torch.autograd.gradcheck(elbo, values, eps=1e-6, atol=1e-5)


class _Elbo(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model.elbo(x, beta=0.8, generator=seeded(1))


@torch.no_grad()
@pytest.mark.parametrize("decoder", [PhaseTypeDecoder, LogNormalDecoder])
def test_generated_rows_follow_the_decoder_integrated_over_the_prior(decoder):
    model = built(decoder=decoder)
    n = 4000
    draws = model.generate(n, generator=seeded(1))
    assert draws.shape == (n, 2)
    assert draws.dtype == torch.float64
    z = torch.linspace(-9, 9, 181, dtype=torch.float64)[:, None]
    density = model.prior.log_prob(z).exp() * 0.1
    ordered = draws.sort(0).values
    survival = sum(w * model.decoder(point).base_dist.sf(ordered) for w, point in zip(density, z, strict=True))
    steps = torch.arange(n, dtype=torch.float64)[:, None] / n
    distance = torch.maximum((1 - survival - steps).abs(), (1 - survival - steps - 1 / n).abs()).max()
    # Dvoretzky-Kiefer-Wolfowitz for two columns: exceeded once in a million
    assert float(distance) < math.sqrt(math.log(4 / 1e-6) / (2 * n))


@torch.no_grad()
def test_generated_rows_follow_a_mixture_prior_too():
    prior = MixturePrior(1, 2)
    prior.means.copy_(torch.tensor([[-2.0], [2.0]]))
    prior.log_scales.fill_(-3.0)
    model = built(prior=prior)
    lower, upper = (model.decoder(torch.tensor([z])).base_dist.sf(ROWS) for z in (-2.0, 2.0))
    draws = model.generate(20_000, generator=seeded(1))
    found = (draws[:, None] > ROWS).double().mean(0)
    # the components are narrow: what they add to the binomial error is their width times the slope in z
    assert torch.allclose(found, (lower + upper) / 2, atol=5 * 0.5 / math.sqrt(20_000) + 0.02)


@torch.no_grad()
def test_without_a_latent_variable_everything_is_the_closed_form():
    model = built(0, n_phases=3)
    bias = model.decoder.network.head.bias.double().view(2, 2, 3)
    rates = torch.log1p(bias[:, 1].exp()).cumsum(-1) / torch.tensor(UNITS["scale"])[:, None]
    columns = Located(SeriesPhaseType(bias[:, 0].softmax(-1), rates), UNITS["origin"])
    expected = columns.log_prob(ROWS).sum(-1)
    assert torch.allclose(model.elbo(ROWS), expected, rtol=1e-12)
    assert torch.allclose(model.log_likelihood(ROWS, n_importance=3), expected, rtol=1e-12)
    assert model.elbo_terms(ROWS)[1].tolist() == [0.0] * 4
    assert torch.allclose(model.reconstruct(ROWS), columns.mean.expand(4, 2))
    assert model.posterior(ROWS).mean.shape == (4, 0)
    assert model.kl_per_dimension(ROWS).shape == model.active_units(ROWS).shape == (0,)
    draws, n = model.generate(20_000, generator=seeded(1)), 20_000
    levels = columns.cdf(draws.sort(0).values) - torch.arange(n, dtype=torch.float64)[:, None] / n
    assert float(levels.abs().max()) < math.sqrt(math.log(4 / 1e-6) / (2 * n)) + 1 / n


@torch.no_grad()
def test_reconstruction_is_the_mean_over_the_posterior():
    model = built()
    draws = 20_000
    averaged = model.reconstruct(ROWS, n_samples=draws, generator=seeded(1))
    z = torch.linspace(-7, 7, 1401, dtype=torch.float64)[:, None, None]
    posterior = model.posterior(ROWS)
    points = posterior.loc.double() + posterior.scale.double() * z
    means = model.decoder(points).mean
    weight = (-z.square() / 2).exp() / math.sqrt(2 * math.pi) * 0.01
    expected = (weight * means).sum(0)
    deviation = ((weight * means.square()).sum(0) - expected.square()).sqrt()
    assert bool(((averaged - expected).abs() < 6 * deviation / math.sqrt(draws) + 1e-5 * expected).all())


@torch.no_grad()
def test_sampled_reconstruction_draws_from_the_law_of_each_row():
    model = built()
    draws = model.reconstruct(ROWS.repeat(4000, 1), sample=True, generator=seeded(1)).view(4000, 4, 2)
    z = torch.linspace(-7, 7, 281, dtype=torch.float64)[:, None, None]
    posterior = model.posterior(ROWS)
    law = model.decoder(posterior.loc.double() + posterior.scale.double() * z).base_dist
    weight = (-z.square() / 2).exp() / math.sqrt(2 * math.pi) * 0.05
    expected = (weight * law.sf(ROWS)).sum(0)
    # a share of 4000 draws: five standard deviations
    assert bool(((draws > ROWS).double().mean(0) - expected).abs().max() < 5 * 0.5 / math.sqrt(4000))


def test_the_posterior_is_bounded_as_the_model_says():
    model = built(2)
    with torch.no_grad():
        model.encoder.network.head.bias[2:] = torch.tensor([1e4, -1e4])
    scale = model.posterior(ROWS).scale.detach()
    assert torch.allclose(scale.log(), torch.tensor([10.0, -15.0]).expand(4, 2))


def test_the_encoder_is_finite_everywhere_and_blind_to_units():
    encoder = GaussianEncoder(2, 3, **UNITS, generator=seeded())
    x = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1e300, 1e-300], [-5.0, -1e10]], dtype=torch.float64)
    assert encoder(x).mean.isfinite().all()
    scaled = GaussianEncoder(2, 3, origin=[0.0, 2.0**20], scale=[2.0**20, 2.0**18], generator=seeded())
    assert torch.equal(scaled(x * 2.0**20).mean, encoder(x).mean)


def test_features_are_standardised_by_the_rows_given():
    encoder = GaussianEncoder(2, 3, **UNITS)
    x = torch.rand((500, 2), dtype=torch.float64, generator=seeded()) ** -2
    x[:, 1] = 3.0
    encoder.standardise(x)
    features = encoder.features(x)
    assert torch.allclose(features.mean(0), torch.zeros(4).double(), atol=1e-12)
    assert torch.allclose(features.std(0, correction=0), torch.tensor([1.0, 0.0, 1.0, 0.0]).double())


def test_diagnostics_tell_used_from_unused_entries():
    model = built(2)
    with torch.no_grad():
        # the second entry is the prior whatever the row
        model.encoder.network.head.weight[[1, 3]] = 0.0
        model.encoder.network.head.bias[[1, 3]] = 0.0
        model.encoder.network.head.weight[0] *= 5
    posterior = model.posterior(ROWS)
    kl = (posterior.loc**2 + posterior.scale**2 - 1).detach() / 2 - posterior.scale.detach().log()
    assert torch.allclose(model.kl_per_dimension(ROWS), kl.mean(0).double(), rtol=1e-5)
    assert float(model.kl_per_dimension(ROWS)[1]) == 0.0
    assert model.active_units(ROWS).tolist() == [True, False]
    assert model.active_units(ROWS, threshold=1e6).tolist() == [False, False]


def test_no_global_generator_is_touched():
    before = torch.get_rng_state()
    model = built(2, prior=MixturePrior(2, 2, generator=seeded()))
    model.elbo(ROWS, generator=seeded())
    model.log_likelihood(ROWS, n_importance=3, generator=seeded())
    model.generate(5, generator=seeded())
    model.reconstruct(ROWS, generator=seeded())
    model.reconstruct(ROWS, sample=True, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_parts_that_do_not_fit_are_named():
    encoder = GaussianEncoder(2, 1, **UNITS)
    with pytest.raises(ValueError, match=r"latent_dim differs: \{'encoder': 1, 'decoder': 2, 'prior': 1\}"):
        VAE(encoder, PhaseTypeDecoder(2, **UNITS), StandardNormal(1))
    with pytest.raises(ValueError, match="the encoder has 2 columns and the decoder 1"):
        VAE(encoder, PhaseTypeDecoder(1, origin=[0.0], scale=[1.0]), StandardNormal(1))
    with pytest.raises(ValueError, match="give one number for each of the 3 columns"):
        GaussianEncoder(3, 1, **UNITS)
    with pytest.raises(ValueError, match="n_importance = 0; give at least one draw"):
        built().log_likelihood(ROWS, n_importance=0)
    with pytest.raises(ValueError, match="n_samples = 0; give at least one draw"):
        built().reconstruct(ROWS, n_samples=0)


class PlainDecoder(Decoder):
    """A law of torch as it comes, whose draws take no generator."""

    def __init__(self, latent_dim, *, located=False, **options):
        super().__init__(latent_dim, n_outputs=2, **options)
        self.located = located

    def _columns(self, outputs, origin, scale):
        place, log_size = outputs.double().unbind(-1)
        law = LogNormal(place, log_size.exp())
        return Located(law, origin, validate_args=False) if self.located else law


@pytest.mark.parametrize(
    "options", [{}, {"zero_share": [0.0, 0.4]}, {"located": True}], ids=["plain", "zeros", "moved"]
)
def test_a_law_of_torch_in_a_decoder_of_ones_own_is_trained_and_drawn_from_the_generator(options):
    model = built(decoder=PlainDecoder, **options)
    rows = ROWS.clone()
    rows[0, 1] = 0.0 if "zero_share" in options else rows[0, 1]
    train(model, rows, epochs=2, batch_size=2, seed=0, progress=False)
    before = torch.get_rng_state()
    first, same, other = (model.generate(2000, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(model.reconstruct(rows, sample=True, generator=seeded()).isfinite(), torch.ones(4, 2).bool())
    assert torch.equal(torch.get_rng_state(), before)
    # the law is that of the outputs: at six deviations of a share of 2,000 rows
    outputs = model.decoder.outputs(model.prior.sample(20_000, seeded(3))).double()
    place, log_size = outputs[..., 0], outputs[..., 1]
    start = model.decoder.origin if options.get("located") else torch.zeros(2).double()
    below = LogNormal(place, log_size.exp()).cdf(3 - start)
    if "zero_share" in options:
        zero = torch.where(model.decoder.has_atom, outputs[..., 2].sigmoid(), 0.0)
        below = zero + (1 - zero) * below
    share = (first <= 3).double().mean(0)
    assert share.tolist() == pytest.approx(below.mean(0).tolist(), abs=6 * math.sqrt(0.25 / 2000 + 0.25 / 20_000))
