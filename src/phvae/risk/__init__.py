"""Tail answers: the exact tails of the decoder, integrated over latent space with a known error."""
