"""Denoisers: post-processing of a noisy vector after its release.

A denoiser is called with the noisy vector, or a list of its layers, and the known standard deviation of the noise in
each coordinate. It accepts numpy arrays and torch tensors, and denoises each layer separately.

Formal guarantees
-----------------
All denoisers are post-processing: they use only the noisy vector and public constants, so they cost no privacy. They do
not improve privacy either. Laplacian smoothing is invertible, so A^-1 (g + n) is exactly as private as g + n.

References
----------
Wang, Gu, Boedihardjo, Barekat, Osher, "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in
Privacy-Preserving ERM", 2019, for Laplacian smoothing. Balle and Wang, "Improving the Gaussian Mechanism for
Differential Privacy: Analytical Calibration and Optimal Denoising", 2018, for James-Stein and soft thresholds.
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
