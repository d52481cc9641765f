"""Imports everything that parties need once, before they are forked. See parties.py."""

from contextlib import suppress

import pytest  # noqa: F401  the program that a forked process finds as its main module

import privet.commands.committee
import privet.commands.party
from privet.multiparty.protocol import mpyc_runtime

mpyc_runtime.description()  # loads MPyC
with suppress(ImportError):  # The servers of federated rounds need torch.
    import privet.federated.committee.roles  # noqa: F401
