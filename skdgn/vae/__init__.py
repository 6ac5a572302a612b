"""Variational autoencoders: a small trainer, and an audit by the exact posterior.

Everything here needs PyTorch, ``pip install "skdgn[torch]"``; it is imported on first use.
"""

from skdgn.vae.auditing import Audit, audit
from skdgn.vae.display import AuditDisplay
from skdgn.vae.trainer import Epoch, GaussianEncoder, GaussianVAE, make_decoder

__all__ = [
    "Audit",
    "AuditDisplay",
    "Epoch",
    "GaussianEncoder",
    "GaussianVAE",
    "audit",
    "make_decoder",
]
