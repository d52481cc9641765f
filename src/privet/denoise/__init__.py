"""Denoisers: what may be done to a noisy vector after its privacy has been paid for.

Every denoiser is called with the noisy vector, or a list of its layers, and the known standard deviation of the noise
in each coordinate. It takes numpy arrays and torch tensors alike, and treats each layer on its own.

Formal guarantees
-----------------
All of this is post-processing: it sees nothing but the noisy vector and public constants, so it costs no privacy,
and it buys none either. Laplacian smoothing is invertible, so A^-1 (g + n) is exactly as private as g + n.
"""

from privet.denoise.denoisers import Denoiser, JamesStein, LaplacianSmoothing, SoftThreshold, laplacian_smoothing
from privet.denoise.spectrum import beta, effective_dimension, gamma

__all__ = [
    "Denoiser",
    "JamesStein",
    "LaplacianSmoothing",
    "SoftThreshold",
    "beta",
    "effective_dimension",
    "gamma",
    "laplacian_smoothing",
]
