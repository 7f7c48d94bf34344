"""The optimiser of training is that of torch, bit for bit."""

import copy

import pytest
import torch
from torch.optim import AdamW

from phvae.adam import FusedAdam
from phvae.launched import hold_back


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (4,), (2, 3), (2,))
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def groups(values):
    return [
        {"params": values[::2], "weight_decay": 0.1, "lr": 0.02},
        {"params": values[1::2], "weight_decay": 0.0, "lr": 0.03},
        {"params": [], "weight_decay": 0.5, "lr": 0.01},
    ]


def slopes(values, step, missing=None):
    generator = torch.Generator().manual_seed(step)
    for place, value in enumerate(values):
        value.grad = None if place == missing else torch.randn(value.shape, generator=generator).to(value.dtype)


def same(values, others):
    return all(torch.equal(one, other) for one, other in zip(values, others, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_is_that_of_torch_with_clipping_and_without(dtype):
    ours, theirs = parameters(dtype), parameters(dtype)
    adam, reference = FusedAdam(groups(ours), lr=0.1), AdamW(groups(theirs), lr=0.1, fused=True)
    for step in range(8):
        for values, optimiser in ((ours, adam), (theirs, reference)):
            slopes(values, step, missing=1 if step == 5 else None)
            optimiser.param_groups[0]["lr"] = 0.02 / (step + 1)
            if step > 3:
                hold_back(optimiser, 1.0)
        adam.advance()
        reference.step()
        assert same(ours, theirs)
    assert not same(ours, parameters(dtype))


def test_a_gradient_within_the_norm_is_left_as_it_is():
    ours, theirs = parameters(), parameters()
    adam, reference = FusedAdam(groups(ours), lr=0.1), AdamW(groups(theirs), lr=0.1, fused=True)
    for step in range(4):
        slopes(ours, step)
        slopes(theirs, step)
        # held back in one step only, and not by what is left of it in the next
        clip_norm = 1.0 if step == 1 else 1e3
        norm = hold_back(adam, clip_norm)
        assert float(norm) == float(torch.cat([value.grad.flatten() for value in theirs]).norm())
        if step == 1:
            for value in theirs:
                value.grad /= norm
        adam.advance()
        reference.step()
        assert same(ours, theirs)


def test_it_goes_on_from_a_saved_state():
    ours, theirs = parameters(), parameters()
    adam, reference = FusedAdam(groups(ours), lr=0.1), FusedAdam(groups(theirs), lr=0.1)
    for step in range(6):
        for values, optimiser in ((ours, adam), (theirs, reference)):
            slopes(values, step)
            optimiser.advance()
        if step == 2:
            # the moments of another history, which the saved ones must replace
            slopes(ours, 99)
            before = [value.detach().clone() for value in ours]
            adam.advance()
            with torch.no_grad():
                for value, old in zip(ours, before, strict=True):
                    value.copy_(old)
            adam.load_state_dict(copy.deepcopy(reference.state_dict()))
    assert same(ours, theirs)


def test_parameters_of_two_precisions_are_left_to_torch():
    ours = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2, dtype=torch.float64))]
    theirs = [torch.nn.Parameter(value.detach().clone()) for value in ours]
    adam, reference = FusedAdam([{"params": ours}], lr=0.1), AdamW(theirs, lr=0.1, fused=True)
    for step in range(3):
        slopes(ours, step)
        slopes(theirs, step)
        adam.advance()
        reference.step()
    assert same(ours, theirs)


def test_clearing_forgets_every_gradient():
    values = parameters()
    adam = FusedAdam(groups(values), lr=0.1)
    slopes(values, 0)
    adam.clear()
    assert all(value.grad is None for value in values)
