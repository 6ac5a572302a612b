"""Variational autoencoders: a small trainer, and how far one is from the truth.

Everything here needs PyTorch, ``pip install "skdgn[torch]"``; it is imported on first use.
"""

from skdgn.vae.trainer import GaussianEncoder, GaussianVAE, make_decoder

__all__ = ["GaussianEncoder", "GaussianVAE", "make_decoder"]
