"""Rows of which not everything is known: their likelihood, and what the encoder sees of them."""

import math

import pytest
import torch

from phvae.decoders import PhaseTypeDecoder
from phvae.layout import Layout
from phvae.observation import log_likelihood, representative
from phvae.priors import StandardNormal
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

INF = math.inf
UNITS = {"origin": [0.0, 1.0, 0.0], "scale": [1.0, 5.0, 2.0]}


def model(layout, latent_dim=2, zero_share=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    encoder = GaussianEncoder(3, latent_dim, layout=layout, hidden=(8,), generator=generator, **UNITS)
    decoder = PhaseTypeDecoder(latent_dim, n_phases=4, hidden=(8,), zero_share=zero_share, generator=generator, **UNITS)
    return VAE(encoder, decoder, StandardNormal(latent_dim)).double()


def rows(*cells):
    """Rows from pairs of ends."""
    ends = torch.tensor(cells, dtype=torch.float64)
    return torch.cat((ends[..., 0], ends[..., 1]), -1)


VALUES = torch.tensor([[0.5, 3.0, 2.0], [4.0, 1.5, 0.1]], dtype=torch.float64)


def test_ends_that_are_equal_give_every_bit_of_the_plain_row():
    plain, wide = model(None), model(Layout(3, intervals=True))
    wide.load_state_dict(plain.state_dict())
    both = torch.cat((VALUES, VALUES), 1)
    for part in ("terms", "log_likelihood"):
        noise = [torch.Generator().manual_seed(1) for _ in range(2)]
        first = getattr(plain, part)(VALUES, generator=noise[0])
        second = getattr(wide, part)(both, generator=noise[1])
        assert all(map(torch.equal, first, second))


def test_the_likelihood_of_a_row_is_a_product_of_densities_and_masses():
    wide = model(Layout(3, intervals=True), zero_share=[0.0, 0.0, 0.3])
    z = torch.randn(4, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x = rows([(0.5, 0.5), (2.0, 7.0), (-INF, 1.0)], [(3.0, INF), (-INF, INF), (0.0, 0.0)])
    law = wide.decoder(z)
    base = law.base_dist
    at = {point: base.cdf(torch.tensor(point)) for point in (1.0, 2.0, 3.0, 7.0)}
    first = base.log_prob(torch.tensor(0.5))[:, 0, 0] + (at[7.0] - at[2.0])[:, 0, 1].log() + at[1.0][:, 0, 2].log()
    second = (1 - at[3.0])[:, 1, 0].log() + base.log_prob(torch.tensor(0.0))[:, 1, 2]
    torch.testing.assert_close(log_likelihood(law, x, wide.layout), torch.stack((first, second), 1), rtol=0, atol=1e-9)


def test_a_missing_cell_adds_nothing_and_moves_nothing():
    wide = model(Layout(3, intervals=True, flagged=True), zero_share=[0.2, 0.0, 0.0])
    nothing = rows([(-INF, INF)] * 3)
    z = torch.zeros(1, 2, dtype=torch.float64)
    outputs = wide.decoder.outputs(z)
    value = log_likelihood(wide.decoder.law(outputs), nothing, wide.layout)
    assert value.tolist() == [0.0]
    (slope,) = torch.autograd.grad(value.sum(), outputs)
    assert not slope.any()
    some = rows([(0.5, 0.5), (-INF, INF), (2.0, 2.0)])
    kept = wide.decoder(z).base_dist.log_prob(VALUES[:1])[:, [0, 2]].sum(-1)
    assert torch.equal(log_likelihood(wide.decoder(z), some, wide.layout), kept)


def test_the_encoder_sees_nothing_of_a_missing_cell_and_is_told_so():
    wide = model(Layout(3, intervals=True, flagged=True))
    x = rows([(-INF, INF), (4.0, INF), (1.0, 3.0)], [(1.0, 1.0), (-INF, 4.0), (2.0, 2.0)])
    wide.encoder.standardise(x)
    features = wide.encoder.features(x)
    assert not features[0, [0, 3]].any()
    assert features[:, 6:].tolist() == [[1, 0, 0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1, 0]]
    expected = torch.tensor([[0.0, 4.0, 2.0], [1.0, 2.5, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(representative(x, wide.layout, wide.encoder.origin), expected)


def test_slices_follow_each_other_and_those_that_are_not_there_take_no_place():
    full = Layout(2, intervals=True, entry=True, exit=True, n_covariates=1)
    row = torch.arange(9.0)[None]
    parts = (full.lower(row), full.upper(row), full.entries(row), full.exits(row), full.covariates(row))
    assert torch.equal(torch.cat(parts, -1), row)
    assert full.width == 9
    truncated = Layout(2, exit=True)
    assert truncated.exits(torch.arange(4.0)[None]).tolist() == [[2.0, 3.0]]
    assert truncated.entries(row) is None
    assert Layout(2).plain
    assert not full.plain


def test_only_ends_and_bounds_may_be_infinite_each_on_its_own_side():
    layout = Layout(1, intervals=True, entry=True, exit=True, n_covariates=1)
    good = torch.tensor([[-INF, INF, -INF, INF, 0.0], [1.0, 1.0, 0.5, 2.0, -1.0]])
    assert layout.usable(good).all()
    for place, entry in ((0, INF), (1, -INF), (1, 0.5), (2, INF), (3, -INF), (4, INF), (0, math.nan)):
        bad = good[1:].clone()
        bad[0, place] = entry
        assert not layout.usable(bad).all()
    assert Layout(1).usable(torch.tensor([[1.0]])).all()
    assert not Layout(1).usable(torch.tensor([[INF]])).any()


def test_training_takes_rows_of_the_width_of_the_layout_and_no_others():
    wide = model(Layout(3, intervals=True, flagged=True)).float()
    x = rows([(-INF, INF), (4.0, INF), (1.0, 3.0)], [(1.0, 1.0), (-INF, 4.0), (2.0, 2.0)])
    history = train(wide, x, epochs=2, validation=x, progress=False)
    assert all(math.isfinite(record.elbo) and math.isfinite(record.validation_elbo) for record in history)
    with pytest.raises(ValueError, match="6 columns"):
        train(wide, VALUES, epochs=1, progress=False)
