"""Models with bent clocks: decoder, start, index of the tail, settings, model file."""

import numpy as np
import pytest
import torch

from phvae import PHVAE
from phvae.distributions import MatrixLogNormal, MatrixPareto, MatrixWeibull
from phvae.fitted import unconditional
from phvae.transformed_decoders import TransformedDecoder
from phvae.transformed_start import choose_transformed_phases, fit_transformed

FAMILIES = (MatrixWeibull, MatrixPareto, MatrixLogNormal)


def levels(n):
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_starts_at_the_laws_it_is_given(family):
    decoder = TransformedDecoder(
        3, family=family, origin=[1.0, 0.0], scale=[10.0, 0.5], n_phases=2, generator=torch.Generator().manual_seed(0)
    )
    decoder.set_start([[0.3, 0.7], [0.6, 0.4]], [[1.0, 2.0], [3.0, 8.0]])
    decoder.set_shapes([1.5, 2.5], [2.0, 4.0])
    with torch.no_grad():
        decoder.network.head.weight.zero_()
    law = decoder(torch.randn(5, 3, generator=torch.Generator().manual_seed(1))).base_dist.base
    unit = torch.tensor([10.0, 0.5]) * (torch.tensor([2.0, 4.0]) if family.scale_is_free else 1.0)
    # the head is single precision
    torch.testing.assert_close(law.shape, torch.tensor([1.5, 2.5]).double().expand(5, 2), rtol=1e-6, atol=0)
    torch.testing.assert_close(law.scale, unit.double().expand(5, 2), rtol=1e-6, atol=0)
    torch.testing.assert_close(law.base.rates[0, 1], torch.tensor([3.0, 8.0]).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_latent_vector_moves_shape_and_chain(family):
    decoder = TransformedDecoder(
        2, family=family, origin=[0.0], scale=[1.0], n_phases=2, generator=torch.Generator().manual_seed(0)
    )
    law = decoder(torch.tensor([[0.0, 0.0], [2.0, -2.0]])).base_dist.base
    assert not torch.equal(law.shape[0], law.shape[1])
    x = torch.tensor([[0.5]], dtype=torch.float64)
    decoder(torch.zeros(1, 2)).log_prob(x).sum().backward()
    assert all(bool((p.grad != 0).any()) for p in (decoder.network.head.bias, decoder.network.head.weight))


def test_maximum_likelihood_finds_the_law_of_even_levels():
    """Quantiles at even levels stand for infinitely many rows, up to 1/n of the information."""
    p = levels(20_000)
    u = 3 * (p ** (-1 / 1.8) - 1) ** (1 / 1.4)
    (fit,) = fit_transformed(u[:, None], MatrixPareto, 1)
    assert fit.shape == pytest.approx(1.4, rel=5e-3)
    assert fit.scale == pytest.approx(3.0, rel=1e-2)
    assert fit.tail_index == pytest.approx(1 / (1.4 * 1.8), rel=1e-2)


def test_the_standard_error_of_the_index_is_that_of_the_information_of_a_pareto_law():
    """With scale and shape free, the variance of the log index of Burr XII from quadrature of its scores."""
    n, c, d = 10_000, 1.5, 0.8
    p = levels(n)
    (fit,) = fit_transformed((p ** (-1 / d) - 1)[:, None] ** (1 / c), MatrixPareto, 1)
    # information of (c, scale, d) at the truth, from the outer products of the scores over the same even levels
    theta = torch.tensor([c, 1.0, d], dtype=torch.float64)
    x = (p ** (-1 / d) - 1) ** (1 / c)
    own = theta.expand(n, 3).clone().requires_grad_()
    t = own[:, 0] * (x / own[:, 1]).log()
    log_f = own[:, 2].log() + own[:, 0].log() + t - x.log() - (own[:, 2] + 1) * torch.logaddexp(t, torch.zeros_like(t))
    (score,) = torch.autograd.grad(log_f.sum(), own)
    covariance = torch.linalg.inv(score.T @ score)
    slope = torch.tensor([1 / c, 0.0, 1 / d], dtype=torch.float64)
    expected = float((slope @ covariance @ slope).sqrt())
    assert fit.tail_index_error == pytest.approx(expected, rel=0.05)


def test_the_criterion_takes_one_phase_where_one_is_true_and_more_where_not():
    p = levels(4000)
    weibull = (-p.log()) ** (1 / 0.7)
    assert choose_transformed_phases(weibull[:, None], MatrixWeibull)[0] == 1
    two_modes = torch.cat([weibull[::2] / 1000, 50 + weibull[::2]])
    assert choose_transformed_phases(two_modes[:, None], MatrixWeibull, (1, 2))[0] == 2


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return PHVAE(tail="pareto", random_state=0).fit(rng.pareto(2.0, size=(2000, 1)) + 1)


def test_one_column_has_a_power_tail_with_an_index(model):
    index = model.tail_index(0)
    # the error of log index is about 0.1 at 2,000 rows: six of them
    assert 0.5 * np.exp(-0.6) < index.estimate < 0.5 * np.exp(0.6)
    assert index.low < index.estimate < index.high
    assert index.given_latent == pytest.approx((index.estimate, index.estimate), rel=1e-5)
    assert model.tail_index("x0", confidence=0.5).high < index.high
    assert "tail index of 'x0'" in str(index)
    with torch.no_grad():
        law = unconditional(model).decoder(torch.zeros(1, 0)).base_dist
        fall = law.log_sf(1e9) - law.log_sf(1e8)
    # beyond 1e8 the power is exact to the power of the scale over the point
    assert float(fall) / np.log(10) == pytest.approx(-1 / index.estimate, rel=1e-6)


def test_the_model_file_keeps_the_tail(model, tmp_path):
    model.save(tmp_path / "m.phvae")
    again = PHVAE.load(tmp_path / "m.phvae")
    assert PHVAE.verify(tmp_path / "m.phvae").largest_difference == 0
    assert again.tail_index(0) == model.tail_index(0)
    assert again.tail == "pareto"
    np.testing.assert_array_equal(again.sample(5, random_state=0), model.sample(5, random_state=0))


def test_what_a_power_tail_cannot_answer_is_said(model):
    with pytest.raises(ValueError, match="time of their own"):
        model.phase_type(0)
    with pytest.raises(ValueError, match="no column 'b'"):
        model.tail_index("b")
    with pytest.raises(ValueError, match=r"confidence = 2"):
        model.tail_index(0, confidence=2)
    x = np.random.default_rng(1).exponential(size=(200, 1))
    with pytest.raises(ValueError, match="fit with tail='pareto'"):
        PHVAE(n_phases=2, random_state=0).fit(x).tail_index(0)
    with pytest.raises(ValueError, match="tail = 'cauchy'; give 'exponential' or 'weibull'"):
        PHVAE(tail="cauchy").fit(x)


@pytest.mark.parametrize("tail", ["weibull", "lognormal", "pareto"])
def test_several_dependent_columns_train_in_every_family(tail):
    rng = np.random.default_rng(2)
    common = rng.gamma(2.0, size=(600, 1))
    x = common * rng.exponential(size=(600, 2))
    x[:100, 1] = 0
    model = PHVAE(tail=tail, epochs=3, latent_dim=2, hidden=(16,), random_state=0).fit(x)
    assert np.isfinite(model.score(x))
    sample = model.sample(2000, random_state=0)
    assert np.isfinite(sample).all()
    assert abs((sample[:, 1] == 0).mean() - 1 / 6) < 0.1
    assert model.history_[-1].elbo > model.history_[0].elbo - 0.5


def test_the_geometric_start_needs_no_fit():
    x = np.random.default_rng(3).pareto(2.0, size=(300, 1))
    model = PHVAE(tail="pareto", start="geometric", n_phases=3, epochs=2, random_state=0).fit(x)
    assert np.isfinite(model.score(x))
    with pytest.raises(ValueError, match="start='fitted'"):
        model.tail_index(0)
