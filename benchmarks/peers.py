"""The textbook likelihoods that the fused kernels are compared with; those of torch go through autograd."""

import torch
from scipy import linalg
from torch import Tensor

from phvae.kernels import series


def matrix_exponential(x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """log(α exp(A x) a) by torch.linalg.matrix_exp: underflows beyond log f = -700."""
    generator = torch.diag_embed(-rates) + torch.diag_embed(rates[:, :-1], offset=1)
    reach = torch.linalg.matrix_exp(generator * x[:, None, None])[:, :, -1]
    return ((initial * reach).sum(-1) * rates[:, -1]).log()


def scipy_matrix_exponential(x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """log(α exp(A x) a) by scipy.linalg.expm, the value alone."""
    start, speed = initial.detach(), rates.detach()
    generator = torch.diag_embed(-speed) + torch.diag_embed(speed[:, :-1], offset=1)
    reach = torch.from_numpy(linalg.expm((generator * x.detach()[:, None, None]).numpy()))[:, :, -1]
    return ((start * reach).sum(-1) * speed[:, -1]).log()


def uniformization(x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """The log-scaled Poisson series, truncated adaptively at 1e-8."""
    return series.log_density(x, initial, rates, method="uniformization")


def plain_uniformization(x: Tensor, initial: Tensor, rates: Tensor, terms: int = 200) -> Tensor:
    """A fixed number of terms in plain float64, as a first implementation writes it; right only while Λx is small."""
    largest = rates[:, -1:]
    move = rates / largest
    vector, weight = initial, torch.exp(-largest[:, 0] * x)
    total = weight * vector[:, -1]
    for k in range(1, terms):
        passed = vector * move
        vector = vector - passed + torch.nn.functional.pad(passed[:, :-1], (1, 0))
        weight = weight * (largest[:, 0] * x / k)
        total = total + weight * vector[:, -1]
    return (total * largest[:, 0]).log()


def torch_contour(x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """The contour in plain torch with autograd."""
    return series.log_density(x, initial, rates, method="contour")


def fused(x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """What the package uses."""
    return series.log_density(x, initial, rates)
