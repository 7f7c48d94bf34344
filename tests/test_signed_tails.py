"""Power tails on both sides of zero: a law of a bent time for the gains, and one for the losses."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from signed_models import fit, returns

from phvae import PHVAE
from phvae.distributions import MatrixLogNormal, MatrixPareto, MatrixWeibull, SeriesPhaseType, TwoSided
from phvae.fitted import unconditional
from phvae.signed_decoders import SignedDecoder

FAMILIES = (MatrixWeibull, MatrixPareto, MatrixLogNormal)
QUIET = {"latent_dim": 0, "epochs": 0, "tail": "pareto", "n_phases": 1}
SIGMAS = 4.9
LOSS_INDEX, GAIN_INDEX, SHARE = 0.7, 0.35, 0.45
N = 3000


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def values(answer):
    return np.array(answer["value"])


def lomax(index, scale=0.01):
    return MatrixPareto(SeriesPhaseType([1.0], [1 / index]), 1.0, scale)


def truth():
    return TwoSided(math.log(SHARE / (1 - SHARE)), lomax(LOSS_INDEX), lomax(GAIN_INDEX))


def draws(n=N, seed=1):
    return truth().sample((n, 1), generator=torch.Generator().manual_seed(seed)).numpy()


@pytest.fixture(scope="module")
def model():
    return fit(draws(), **QUIET)


def test_the_index_of_either_tail_is_recovered_with_its_error(model):
    for tail, index in (("upper", GAIN_INDEX), ("lower", LOSS_INDEX)):
        found = model.tail_index(0, tail=tail)
        assert found.column == ("x0" if tail == "upper" else "-x0")
        error = math.log(found.high / found.low) / (2 * stats.norm.isf(0.025))
        assert abs(math.log(found.estimate / index)) < SIGMAS * error
        # no less than with scale and shape known
        assert error > 1 / math.sqrt(N * (SHARE if tail == "lower" else 1 - SHARE))
        assert found.given_latent == pytest.approx((found.estimate, found.estimate), rel=1e-5)
        deep = values(model.sf(0, [1e9, 1e11], tail=tail))
        assert math.log(deep[0] / deep[1]) == pytest.approx(math.log(100) / found.estimate, rel=1e-4)
    assert values(model.sf(0, [0.0], tail="lower"))[0] == pytest.approx((draws() < 0).mean(), rel=1e-5)


def test_either_index_is_recovered_under_censoring_across_zero():
    x = draws(seed=2)
    until = draws(seed=3) * 2
    found = fit(np.minimum(x, until), **QUIET, censored=x > until)
    for tail, index in (("upper", GAIN_INDEX), ("lower", LOSS_INDEX)):
        own = found.tail_index(0, tail=tail)
        error = math.log(own.high / own.low) / (2 * stats.norm.isf(0.025))
        assert abs(math.log(own.estimate / index)) < SIGMAS * error
    whole, part = fit(x, **QUIET).tail_index(0), found.tail_index(0)
    assert part.high / part.low > whole.high / whole.low, "less is known of gains that are cut"


def test_the_certificate_says_the_index_of_the_tail_that_is_asked_about(model):
    for tail in ("upper", "lower"):
        column = model.tail_certificate(tail=tail).columns[0]
        assert column.tail_index == model.tail_index(0, tail=tail)
        assert any(f"ail index of {column.name!r}" in note for note in column.notes)


def test_the_number_of_phases_is_that_of_the_neediest_side():
    p = (np.arange(600) + 0.5) / 600
    simple = (1 - p) ** -0.5 - 1
    two = np.concatenate([simple[::2] / 1000, 50 + simple[::2]])
    quiet = {**QUIET, "n_phases": None}
    assert fit(np.concatenate([simple, -simple])[:, None], **quiet).settings_["n_phases"] == 1
    assert fit(np.concatenate([simple, -two])[:, None], **quiet).settings_["n_phases"] > 1


@pytest.mark.parametrize("tail", ["pareto", "weibull", "lognormal"])
def test_a_fit_to_minus_the_rows_is_the_mirror_image(tail):
    x = returns()[:300]
    quiet = {**QUIET, "tail": tail, "n_phases": 2}
    one, other = fit(x, **quiet), fit(-x, **quiet)
    for side, turned in (("upper", "lower"), ("lower", "upper")):
        for j in range(2):
            assert values(one.quantile(j, [0.01, 0.3, 0.99], tail=side)) == pytest.approx(
                values(other.quantile(j, [0.01, 0.3, 0.99], tail=turned)), rel=1e-5
            )
    assert ("tail_index" in one.settings_) == (tail == "pareto")


def test_weights_count_rows():
    x, w = draws(120), np.arange(120) % 3
    settings = {**QUIET, "support": "real", "random_state": 0}
    weighted = PHVAE(**settings).fit(x, sample_weight=w)
    repeated = PHVAE(**settings).fit(np.repeat(x, w, axis=0))
    for tail in ("upper", "lower"):
        assert weighted.tail_index(0, tail=tail).estimate == pytest.approx(
            repeated.tail_index(0, tail=tail).estimate, rel=1e-6
        )


def test_every_zero_is_one_of_an_atom_where_there_is_no_density_at_zero():
    x = draws(300)
    x[7] = 0.0
    one = fit(x, **QUIET)
    assert one.scaler_.zero_share_.tolist() == [pytest.approx(1 / 300)]
    assert np.isfinite(one.score_samples(x)).all()


def test_a_signed_power_tail_stands_beside_a_non_negative_one_and_its_file_keeps_both(tmp_path):
    x = np.column_stack([draws(400)[:, 0], 1 + np.abs(draws(400, seed=9))[:, 0]])
    x[3, 0] = np.nan
    names = {"support": ["real", "non-negative"], "missing": "model", "n_phases": 2, "tail": "pareto"}
    one = fit(x, **names, latent_dim=1, epochs=2)
    assert one.tail_index(1).low > 0
    with pytest.raises(ValueError, match="column 'x1' has no losses and one tail, the upper"):
        one.tail_index(1, tail="lower")
    with pytest.raises(ValueError, match="tail = 'left'; give 'upper' or 'lower'"):
        one.tail_index(0, tail="left")
    assert one.tail_index(0, tail="lower").given_latent[0] > 0
    one.save(tmp_path / "m.phvae")
    again = PHVAE.load(tmp_path / "m.phvae")
    assert PHVAE.verify(tmp_path / "m.phvae").largest_difference == 0
    assert again.tail_index(0, tail="lower") == one.tail_index(0, tail="lower")
    assert again.sample(50, 0).tolist() == one.sample(50, 0).tolist()
    with pytest.raises(ValueError, match="time of their own"):
        one.phase_type(0, tail="lower")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_a_decoder_has_its_gradient(family):
    units = {"origin": [0.0, 1.0], "scale": [0.01, 100.0], "loss_share": [0.4, 0.0], "n_phases": 3}
    decoder = SignedDecoder(2, **units, family=family, generator=torch.Generator().manual_seed(0))
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    x = at([[-0.02, 3.0], [0.03, 9.0], [0.01, 1.5], [-0.1, 4.0]])
    assert torch.allclose(decoder.column(z, 0).log_prob(x[:, :1]), decoder(z).base_dist.log_prob(x)[:, :1], rtol=1e-9)
    decoder(z).log_prob(x).sum().backward()
    bias = decoder.network.head.bias.grad.view(2, decoder.width)
    assert bool((bias[0] != 0).all())
    assert bool((bias[1, : decoder.side] != 0).all())
    assert bool((bias[1, decoder.side :] == 0).all())
    law = decoder(z).base_dist
    decoder.mirror([0])
    mirrored = decoder(z).base_dist
    assert torch.equal(mirrored.log_sf(at([0.02, 3.0]))[:, 0], law.log_cdf(at([-0.02, 3.0]))[:, 0])


@pytest.mark.parametrize("u", [-5.0, -0.02, -1e-4])
@pytest.mark.parametrize("order", [1, 2])
def test_stop_loss_moments_below_zero_exist_whatever_the_losses_are(u, order):
    """``E[(X - u)_+^k]`` needs moments of the gains alone: the losses end at ``u``."""
    law = TwoSided(0.2, lomax(1.4), lomax(0.3))

    def beyond(low, high):
        tail, _ = integrate.quad(
            lambda x: order * (x - u) ** (order - 1) * float(law.sf(x)), low, high, epsabs=0, epsrel=1e-10, limit=400
        )
        return tail

    # in panels that follow the scale of the law
    cuts = [u, *(-(10.0**k) for k in range(1, -6, -1) if -(10.0**k) > u), 0.0, 1e-4, 1e-2, 1.0, 1e2, 1e5]
    total = sum(beyond(*ends) for ends in pairwise(cuts))
    # the power beyond: S(x) = (1 - q) (x / s)^(-1 / index), to the relative size of the scale over the point
    q, power = 1 / (1 + math.exp(-0.2)), 1 / 0.3
    total += (1 - q) * 0.01**power * order * 1e5 ** (order - power) / (power - order)
    assert float(law.log_excess(u, order).exp()) == pytest.approx(total, rel=1e-6)


def test_a_mean_is_infinite_or_none_where_tails_have_none():
    heavy, light = lomax(1.4), lomax(0.3)
    assert float(TwoSided(0.0, light, heavy).mean) == math.inf
    assert float(TwoSided(0.0, heavy, light).mean) == -math.inf
    assert math.isnan(float(TwoSided(0.0, heavy, heavy).mean))
    assert float(TwoSided(0.0, heavy, light).variance) == math.inf
    # losses that cannot happen add nothing
    alone = TwoSided(-math.inf, heavy, light)
    assert float(alone.mean) == pytest.approx(float(light.mean))
    assert float(alone.variance) == pytest.approx(float(light.variance))


@pytest.fixture
def without_mean():
    """A model whose tails both have the index 1.25."""
    model = fit(stats.cauchy(scale=0.01).rvs(size=(500, 1), random_state=np.random.default_rng(3)), **QUIET)
    decoder = model.vae_.decoder
    for set_chain in (decoder.set_start, decoder.set_losses):
        set_chain(torch.ones(1, 1), torch.tensor([[0.8]]))
    decoder.set_clocks(torch.zeros(1, 2), torch.zeros(1, 2))
    return model


def test_a_column_without_a_mean_says_so_and_has_quantiles(without_mean):
    for tail in ("upper", "lower"):
        for name in ("mean", "std"):
            with pytest.raises(
                ValueError, match=r"^the column has no mean, for both of its tails have an infinite one"
            ):
                getattr(without_mean, name)(0, tail=tail)
        assert values(without_mean.cvar(0.9, 0, tail=tail)).tolist() == [math.inf]
        assert np.isfinite(values(without_mean.quantile(0, [1e-6, 0.5, 1 - 1e-6], tail=tail))).all()


@pytest.mark.parametrize("attachment", [0.02, 0.0, -0.01, -0.3])
def test_layers_are_paid_where_there_are_no_moments(without_mean, attachment):
    law = unconditional(without_mean).decoder(torch.zeros(1, 0)).base_dist
    top = attachment + 0.1
    x = np.sort(np.concatenate([attachment + 0.1 * np.linspace(0, 1, 101), 1e-3 * np.geomspace(1e-9, 1, 60), [0.0]]))
    x = x[(x >= attachment) & (x <= top)]
    points, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(x)[:, None] / 2
    nodes = (x[:-1, None] + half * (1 + points)).ravel()
    paid = (half * weights).ravel() * law.sf(at(nodes)[:, None])[:, 0].detach().numpy()
    layer = without_mean.layer(0, limit=0.1, attachment=attachment)
    first, second = paid.sum(), 2 * (paid * (nodes - attachment)).sum()
    assert values(layer)[:2] == pytest.approx([first, math.sqrt(second - first**2)], rel=1e-4)
