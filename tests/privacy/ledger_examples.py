"""Guarantees for the tests of the ledger, and ledgers as earlier versions wrote them."""

import json
import resource
from contextlib import contextmanager

from privet.privacy import Adjacency, Guarantee, Unit, assumed
from privet.privacy.events import GaussianRelease, PureRelease

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE


def spent(event, delta=1e-6, adjacency=REPLACE, unit=Unit.RECORD):
    return Guarantee.of(event, adjacency, delta, released="a model", assumptions=[assumed("good faith")], unit=unit)


PURE = spent(PureRelease(0.1), 0.0)
GAUSS = spent(GaussianRelease(0.3))


def text_ledger(path, *entries):
    """Write a ledger as text, as earlier versions did, from guarantees or pairs of guarantee and label."""
    lines = []
    for number, entry in enumerate(entries):
        guarantee, label = entry if isinstance(entry, tuple) else (entry, f"entry {number}")
        time = f"2024-05-01T12:00:{number:02d}+00:00"
        lines.append(json.dumps({"label": label, "time": time, "guarantee": guarantee.to_dict()}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@contextmanager
def disk_full_after(size):
    """Make the operating system refuse to let any file of this process grow beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
