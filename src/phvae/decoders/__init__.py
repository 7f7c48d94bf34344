"""Decoders: networks whose value at a latent point is a law of the columns, in the user's units."""

from phvae.decoders.classical import GammaDecoder, GaussianDecoder, LogNormalDecoder, StudentTDecoder
from phvae.decoders.decoder import Decoder
from phvae.decoders.phase_type import PhaseTypeDecoder

__all__ = ["Decoder", "GammaDecoder", "GaussianDecoder", "LogNormalDecoder", "PhaseTypeDecoder", "StudentTDecoder"]
