"""What every decoder is: a network whose value at a latent point is a law of the columns, in the user's units."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Independent

from phvae import defaults
from phvae.distributions.checks import Numbers, as_tensor
from phvae.distributions.tails import TailedLaw
from phvae.distributions.zero_atom import ZeroAtom
from phvae.networks import MLP

__all__ = ["Decoder"]

# The first weights of the head, relative to usual ones: at first every latent point decodes to nearly the same law.
HEAD_GAIN = 0.1


class Decoder(nn.Module, ABC):
    """Conditional law of ``D`` columns, independent given the latent point, each from its own outputs of one MLP.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        origin: Lower end (or location) of each column, shape ``(D,)``, in the user's units.
        scale: Positive typical size of each column beyond its origin, shape ``(D,)``.
        n_outputs: Outputs of the network per column, the log odds of a zero not counted.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction, at
            the cost of weights for each output of each column.
        generator: Source of the first weights; the global one of torch when omitted.
    """

    origin: Tensor
    scale: Tensor
    has_atom: Tensor

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        n_outputs: int,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        place, size = as_tensor("origin", origin).double(), as_tensor("scale", scale).double()
        share = torch.zeros_like(place) if zero_share is None else as_tensor("zero_share", zero_share).double()
        _check_columns(place, size, share)
        self.register_buffer("origin", place.clone())
        self.register_buffer("scale", size.clone())
        self.register_buffer("has_atom", share > 0)
        self.latent_dim, self.n_columns = latent_dim, len(place)
        self.n_outputs = n_outputs
        self.atoms = bool((share > 0).any())
        self.width = n_outputs + int(self.atoms)
        self.network = MLP(
            latent_dim,
            self.n_columns * self.width,
            hidden=hidden,
            head_gain=HEAD_GAIN,
            head_rank=head_rank,
            groups=self.n_columns,
            generator=generator,
        )
        if self.atoms:
            self.set_zero_share(share)

    def _bias(self) -> Tensor:
        """The bias of the head, one row per column."""
        return self.network.head.bias.view(self.n_columns, self.width)

    def set_zero_share(self, share: Tensor) -> None:
        """Make these the shares of exact zeros at zero head weights, shape ``(D,)``, below one.

        A column with an atom may have the share 0, and without an atom only that.
        """
        with torch.no_grad():
            # a column without atom has an output too, which is never read
            self._bias()[:, -1] = torch.where(self.has_atom, share, 0.5).logit()

    def move_zero_share(self, before: Tensor, after: Tensor) -> None:
        """Move the log odds of an exact zero, at every latent point, as these shares ``(D,)`` move."""
        with torch.no_grad():
            self._bias()[:, -1] += torch.where(self.has_atom, after.logit() - before.logit(), 0.0)

    def start_outputs(self, u: NDArray[np.float64]) -> Sequence[float] | None:
        """Outputs, ``n_outputs`` of them, at which a column of these scaled values starts; a family may say some.

        Args:
            u: Positive values ``(x - origin) / scale`` of the column.

        Returns:
            By default None: the column starts where the constructor has put it.
        """
        return None

    def start_from(self, columns: Sequence[NDArray[np.float64]]) -> None:
        """Make the `start_outputs` of each column's scaled values the outputs at zero head weights.

        >>> from phvae.decoders import LogNormalDecoder
        >>> decoder = LogNormalDecoder(0, origin=[0.0], scale=[1.0])
        >>> decoder.start_from([np.exp([-2.0, 4.0])])
        >>> law = decoder(torch.zeros(0)).base_dist.base
        >>> round(law.loc.item(), 6), round(law.scale.item(), 6)
        (1.0, 3.0)
        """
        starts = [self.start_outputs(u) for u in columns]
        with torch.no_grad():
            for bias, start in zip(self._bias(), starts, strict=True):
                if start is not None:
                    bias[: self.n_outputs] = torch.as_tensor(start, dtype=torch.float64)

    def _start_at(self, outputs: Tensor, first: int = 0) -> None:
        with torch.no_grad():
            self._bias()[:, first : first + outputs.shape[-1]] = outputs

    @abstractmethod
    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> TailedLaw:
        """Law of columns with these origins and scales from their ``n_outputs`` outputs on the last axis."""

    @property
    def lower(self) -> Tensor:
        """Least possible value of each column, shape ``(D,)``."""
        return torch.where(self.has_atom & (self.origin > 0), 0.0, self.origin)

    @property
    def capturable(self) -> bool:
        """Whether `log_prob` of the laws on a GPU looks at no number, so that a graph can be made of it."""
        return True

    def outputs(self, z: Tensor) -> Tensor:
        """What the network says, before it is made parameters: shape ``z.shape[:-1] + (D, outputs per column)``."""
        values = self.network.forward(z.to(self.network.head.weight.dtype))
        return values.view(*values.shape[:-1], self.n_columns, self.width)

    def column(self, z: Tensor, position: int) -> TailedLaw:
        """Law of one column at points ``(..., latent_dim)``, batch shape ``z.shape[:-1] + (1,)``, at the cost of one.

        >>> from phvae.decoders import PhaseTypeDecoder
        >>> decoder = PhaseTypeDecoder(2, origin=[0.0, 1.0], scale=[1.0, 100.0], n_phases=4)
        >>> z = torch.randn(5, 2)
        >>> torch.allclose(decoder.column(z, 1).mean[:, 0], decoder(z).mean[:, 1])
        True
        """
        head, own = self.network.head, slice(position * self.width, (position + 1) * self.width)
        values = head.part(self.network.hidden(z.to(head.weight.dtype)), own)
        return self._law(values[..., None, :], slice(position, position + 1))

    def law(self, outputs: Tensor) -> Independent[TailedLaw]:
        """The law that these `outputs` stand for."""
        return Independent(self._law(outputs, slice(None)), 1, validate_args=False)

    def _law(self, outputs: Tensor, columns: slice) -> TailedLaw:
        """Law of each of some columns."""
        origin, scale = self.origin[columns], self.scale[columns]
        if not self.atoms:
            return self._columns(outputs, origin, scale)
        continuous, zero = outputs.split((self.n_outputs, 1), -1)
        zero_logit = torch.where(self.has_atom[columns], zero[..., 0].double(), -torch.inf)
        return ZeroAtom(zero_logit, self._columns(continuous, origin, scale), validate_args=False)

    def forward(self, z: Tensor) -> Independent[TailedLaw]:
        """Law of the columns at points ``(..., latent_dim)``, with batch shape ``z.shape[:-1]`` and event ``(D,)``."""
        return self.law(self.outputs(z))

    def roughness(self, outputs: Tensor) -> Tensor:
        """How unevenly the phases run, a mean over latent points, shape ``(D,)``; 0 for a family without phases."""
        return torch.zeros_like(self.scale)


def _check_columns(origin: Tensor, scale: Tensor, share: Tensor) -> None:
    if origin.ndim != 1 or not len(origin) or origin.shape != scale.shape or origin.shape != share.shape:
        shapes = f"origin {tuple(origin.shape)}, scale {tuple(scale.shape)}, zero_share {tuple(share.shape)}"
        raise ValueError(f"shapes {shapes} differ or are empty; give one number per column to each")
    if not bool(origin.isfinite().all()):
        raise ValueError(f"origin = {origin.tolist()} is not finite; give the lower end of each column")
    require_positive("scale", scale, "give a positive typical size per column")
    bad = ~((share >= 0) & (share < 1))
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(f"zero_share[{at}] = {float(share[at])!r}; give a share in [0, 1), drop a column of zeros")


def require_positive(name: str, value: Tensor, remedy: str) -> None:
    """Refuse the first entry that is not positive and finite."""
    bad = ~((value > 0) & value.isfinite())
    if bool(bad.any()):
        position = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name}[{', '.join(map(str, position))}] = {float(value[position])!r}; {remedy}")
