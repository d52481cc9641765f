"""Accounting (the epsilon of a release), calibration (the noise that meets a budget), and the mathematics of both."""
