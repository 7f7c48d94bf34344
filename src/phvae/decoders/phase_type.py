"""The decoder of phase-type laws: a softmax for the start vector, a running sum of softplus for the rates."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from phvae import defaults
from phvae.decoders.chain import DecodedChain
from phvae.decoders.decoder import Decoder, require_positive
from phvae.distributions.checks import Numbers, as_tensor
from phvae.distributions.located import Located
from phvae.distributions.tails import TailedLaw
from phvae.kernels import series
from phvae.kernels.heads import SOFTPLUS_LINEAR

__all__ = ["PhaseTypeDecoder"]


class PhaseTypeDecoder(Decoder):
    """Series phase-type law per column: softmax gives the start vector, softplus and a running sum the rates.

    With ``u = network(z)``: ``initial = softmax(u_1..u_m)`` and
    ``rates_i = (softplus(u_{m+1}) + ... + softplus(u_{m+i})) / scale``.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        origin: Lower end of each column, shape ``(D,)``, in the user's units.
        scale: Positive typical size of each column beyond its origin, shape ``(D,)``; folded into the rates.
        n_phases: Phases ``m`` per column.
        n_shapes: Further outputs per column, of a family that bends time.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction, at
            the cost of weights for each output of each column.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> decoder = PhaseTypeDecoder(2, origin=[0.0, 1.0], scale=[1.0, 100.0], n_phases=4)
    >>> law = decoder(torch.zeros(5, 2))
    >>> law.batch_shape, law.event_shape, law.base_dist.log_sf(-1.0).max().item()
    (torch.Size([5]), torch.Size([2]), 0.0)
    """

    differences: Tensor
    # The default start: these rates, in scaled units, spread evenly on a log scale.
    SLOWEST, FASTEST = 0.03, 20.0

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        n_phases: int = defaults.DECODER_PHASES,
        n_shapes: int = 0,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        if n_phases < 1:
            raise ValueError(f"n_phases = {n_phases!r}; a phase-type law has at least one phase")
        super().__init__(
            latent_dim,
            origin=origin,
            scale=scale,
            n_outputs=2 * n_phases + n_shapes,
            hidden=hidden,
            zero_share=zero_share,
            head_rank=head_rank,
            generator=generator,
        )
        self.n_phases = n_phases
        third = torch.eye(n_phases, dtype=torch.float64).diff(n=3, dim=0).T
        self.register_buffer("differences", torch.block_diag(third, third), persistent=False)
        slowest, fastest = (self.SLOWEST, self.FASTEST) if n_phases > 1 else (1.0, 1.0)
        logs = torch.linspace(math.log(slowest), math.log(fastest), n_phases)
        initial = torch.full((self.n_columns, n_phases), 1 / n_phases)
        self.set_start(initial, logs.exp().expand(self.n_columns, n_phases))

    @property
    def capturable(self) -> bool:
        """Whether the fused kernels answer: the ways for more phases, or without Triton, ask which rows are left."""
        return series.stays_on_device(self.n_phases)

    def set_start(self, initial: Numbers, rates: Numbers) -> None:
        """Make these the laws at zero head weights, to float32 precision.

        Args:
            initial: Start probabilities per column, shape ``(D, m)``, positive.
            rates: Rates per column in scaled units (times ``scale``), shape ``(D, m)``, strictly increasing.
        """
        start, speed = as_tensor("initial", initial).double(), as_tensor("rates", rates).double()
        self._start_at(self._chain_outputs(start, speed))

    def move_start(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> None:
        """Move the laws at every latent point, in the outputs of the network, as these laws move; as `set_start`."""
        with torch.no_grad():
            moved = self._chain_outputs(*(part.double() for part in after))
            self._bias()[:, : 2 * self.n_phases] += moved - self._chain_outputs(*(part.double() for part in before))

    def _chain_outputs(self, start: Tensor, speed: Tensor) -> Tensor:
        """Outputs that stand for start vectors and rates, both ``(D, m)``."""
        wanted = (self.n_columns, self.n_phases)
        for name, value in (("initial", start), ("rates", speed)):
            if value.shape != wanted:
                raise ValueError(f"{name} has shape {tuple(value.shape)}; give one row per column, shape {wanted}")
        steps = speed.diff(dim=-1, prepend=torch.zeros_like(speed[:, :1]))
        require_positive("initial", start, "a softmax reaches no zero; mix in a small positive probability")
        require_positive("step of rates", steps, "give positive, strictly increasing rates")
        # the inverse of softplus, with all digits for small and for large steps
        return torch.cat((start.log(), steps + torch.log(-torch.expm1(-steps))), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> TailedLaw:
        return Located(DecodedChain(outputs, scale), origin, validate_args=False)

    def roughness(self, outputs: Tensor) -> Tensor:
        """Roughness of the start logits and of the log rate steps across phases, as `phvae.start.roughness` has it.

        Args:
            outputs: Outputs at latent points, shape ``(..., D, outputs per column)``.

        Returns:
            Mean over the points, float64, shape ``(D,)``.
        """
        rows = outputs.reshape(-1, self.n_columns, self.width)
        start, steps, *_ = rows.split([self.n_phases, self.n_phases, self.width - 2 * self.n_phases], -1)
        log_steps = softplus(steps.double(), threshold=SOFTPLUS_LINEAR).log()
        # all third differences in one product: what costs time in a step is the number of operations
        bends = torch.cat((start.double(), log_steps), -1) @ self.differences
        return bends.square().sum((0, -1)) / len(rows)
