"""The fused map from outputs to a chain against its definition, in values and in gradients."""

import pytest
import torch

from phvae.kernels.heads import chain_parameters


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


@pytest.mark.parametrize("fused", [0, 10_000])
def test_gradients_are_those_of_the_definition(fused, monkeypatch):
    monkeypatch.setattr("phvae.kernels.heads.FUSED_ENTRIES", fused)
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
