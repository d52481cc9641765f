"""Scalers that use public bounds only, or that pay for what they estimate, and the guarantee of a whole pipeline."""

from privet.preprocessing.private import PrivateScaler
from privet.preprocessing.public import PublicScaler
from privet.preprocessing.total import total_guarantee

__all__ = ["PrivateScaler", "PublicScaler", "total_guarantee"]
