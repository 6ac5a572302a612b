"""Slow, obvious implementations that the package is compared with."""
