"""Replays of the real protocol: what a coalition receives must not depend on a record of the others."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")


sys.path.insert(0, str(Path(__file__).parents[1]))

import replayed_party
from parties import Machine


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run all cases in three processes, and return what the parties found."""
    folder = tmp_path_factory.mktemp("replay")
    with Machine() as machine:
        orders = {"ports": machine.ports}
        made = [machine.start(folder / str(i), replayed_party.main, {**orders, "index": i}) for i in range(3)]
        assert [party.wait() for party in made] == [0, 0, 0], [party.err for party in made]
    return [json.loads((party.folder / "found.json").read_text()) for party in made]


def problems(found, case):
    """Return what refutes the guarantee: a sum that moved too far, or a message that differs."""
    first, second = found[replayed_party.COALITION[0]][case]
    moved = [f"a sum moved by {each:.3g} times the bound" for each in first["distances"] if each > 1]
    assert len(first["received"]) == len(second["received"]) > 10
    pairs = zip(first["received"], second["received"], strict=True)
    differing = [f"a {one[1]} from party {one[0]} differs" for one, other in pairs if one != other]
    return moved + differing


@pytest.mark.parametrize("method", replayed_party.SHARING)
def test_a_coalition_receives_the_same_whatever_the_differing_record(found, method):
    assert problems(found, f"{method} None") == []
    first, second = found[0][f"{method} None"]
    assert first["opened"] == second["opened"]
    assert min(first["distances"]) > 0.1  # The record matters.


def test_what_honest_parties_receive_differs(found):
    """Otherwise the comparison would be of no use."""
    first, second = found[1]["gradient None"]
    assert first["received"] != second["received"]


@pytest.mark.parametrize("bug", replayed_party.BUGS)
def test_a_planted_bug_is_flagged(found, bug):
    assert problems(found, f"gradient {bug}")
