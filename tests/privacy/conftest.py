"""The folder of modules that several tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
