"""The only source of noise, and of the sampling that a guarantee relies on."""

from privet.privacy.noise.source import NoiseSource

__all__ = ["NoiseSource"]
