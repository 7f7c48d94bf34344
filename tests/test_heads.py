"""The fused maps from outputs to a chain and to its density against their definitions, in values and in gradients."""

import pytest
import torch

from phvae.decoders.chain import DecodedChain
from phvae.kernels import series
from phvae.kernels.heads import chain_parameters, log_density


def plain(outputs, scale):
    start, steps = outputs.double().chunk(2, -1)
    return start.softmax(-1), torch.nn.functional.softplus(steps, threshold=40.0).cumsum(-1) / scale[:, None]


def draws(*shape, spread=3.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (spread * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("shape", [(4, 3, 10), (2, 5, 1, 2), (3, 64), (600, 4, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_those_of_the_definition(shape, dtype):
    outputs, scale = draws(*shape, dtype=dtype), torch.linspace(0.1, 1e6, shape[-2], dtype=torch.float64)
    for found, wanted in zip(chain_parameters(outputs, scale), plain(outputs, scale), strict=True):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, wanted, rtol=1e-13, atol=0)


def test_far_outputs_neither_overflow_nor_lose_the_order_of_the_rates():
    outputs = torch.tensor([[800.0, -800.0, 0.0, -745.0, 50.0, 900.0]])
    initial, rates = chain_parameters(outputs, torch.ones(1, dtype=torch.float64))
    assert initial.tolist() == [[1.0, 0.0, 0.0]]
    assert bool((rates.diff(dim=-1) >= 0).all())
    assert float(rates[0, -1]) == 950.0
    assert float(rates[0, 0]) > 0


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_are_those_of_the_definition(fused, monkeypatch):
    if not fused:
        monkeypatch.setattr("phvae.kernels.heads._fused", lambda outputs: None)
    outputs, scale = draws(3, 2, 12).requires_grad_(), torch.tensor([0.5, 40.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda u: chain_parameters(u, scale), outputs)
    weights = draws(2, 3, 2, 6, spread=1.0)
    slopes = [
        torch.autograd.grad(sum((w * p).sum() for w, p in zip(weights, way(outputs, scale), strict=True)), outputs)[0]
        for way in (chain_parameters, plain)
    ]
    torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-13)


def test_a_part_of_a_wider_output_may_be_given():
    wide = draws(4, 3, 9)
    scale = torch.ones(3, dtype=torch.float64)
    for part, whole in zip(chain_parameters(wide[..., :8], scale), plain(wide[..., :8], scale), strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", [(6, 3, 10), (4, 3, 24)])
def test_the_density_of_outputs_is_that_of_their_chain_with_the_same_slopes(shape):
    outputs, scale = draws(*shape, spread=1.0).requires_grad_(), torch.linspace(0.5, 4.0, 3, dtype=torch.float64)
    x = draws(*shape[:-1]).exp().requires_grad_()
    weights = draws(*shape[:-1], spread=1.0)
    values = log_density(x, outputs, scale), series.log_density(x, *plain(outputs, scale))
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)
    fused, separate = (torch.autograd.grad((weights * value).sum(), (x, outputs)) for value in values)
    for one, other in zip(fused, separate, strict=True):
        # both promise gradients to 1e-7 of the largest entry
        torch.testing.assert_close(one, other, rtol=0, atol=2e-7 * float(other.abs().max()))


def test_the_density_of_outputs_has_the_limits_of_its_chain_and_leaves_neighbours_alone():
    outputs, scale = draws(6, 1, 6).requires_grad_(), torch.ones(1, dtype=torch.float64)
    x = torch.tensor([[0.0], [torch.inf], [torch.nan], [-1.0], [1.0], [2.0]], dtype=torch.float64)
    value = log_density(x, outputs, scale)
    torch.testing.assert_close(value, series.log_density(x, *chain_parameters(outputs, scale)), equal_nan=True)
    (slopes,) = torch.autograd.grad(value[[0, 4, 5]].sum(), outputs)
    (alone,) = torch.autograd.grad(log_density(x[[0, 4, 5]], outputs[[0, 4, 5]], scale).sum(), outputs)
    torch.testing.assert_close(slopes, alone, rtol=0, atol=0)
    assert not slopes[1:4].any()


def test_parameters_of_a_decoded_chain_have_gradients_whoever_asks_first():
    outputs, scale = draws(5, 2, 8).requires_grad_(), torch.tensor([1.0, 3.0])
    law = DecodedChain(outputs, scale)
    with torch.no_grad():
        assert law.mean.shape == (5, 2)
    x = torch.ones(5, 2, dtype=torch.float64)
    tails = law.log_sf(x), series.log_survival(x, *plain(outputs, scale.double()))
    slopes = [torch.autograd.grad(tail.sum(), outputs)[0] for tail in tails]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-9)
    with torch.no_grad():
        assert not DecodedChain(outputs, scale).rates.requires_grad
