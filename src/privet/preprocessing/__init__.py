"""Preprocessing that is honest about privacy: free from public knowledge, or paid for and counted."""

from privet.preprocessing.private import PrivateScaler
from privet.preprocessing.public import PublicScaler
from privet.preprocessing.total import total_guarantee

__all__ = ["PrivateScaler", "PublicScaler", "total_guarantee"]
