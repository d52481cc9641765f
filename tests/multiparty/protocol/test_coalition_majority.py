"""Replays of three servers as processes: what one of them receives must not depend on a record of an owner."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import coalition_server
from parties import Machine


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run all cases in three processes, and return what the servers found."""
    folder = tmp_path_factory.mktemp("coalition")
    with Machine() as machine:
        orders = {"ports": machine.ports_of_servers(3), "bugs": coalition_server.BUGS}
        made = [machine.start(folder / str(i), coalition_server.main, {**orders, "index": i}) for i in range(3)]
        assert [server.wait() for server in made] == [0, 0, 0], [server.err for server in made]
    return [json.loads((server.folder / "found.json").read_text()) for server in made]


def problems(found, case, server=coalition_server.SPY):
    """Return what refutes the guarantee: a vector that moved too far, or a message that differs."""
    first, second = found[server][case]
    moved = [f"a vector moved by {each:.3g} times the bound" for each in first["distances"] if each > 1]
    assert len(first["received"]) == len(second["received"]) > 10
    pairs = zip(first["received"], second["received"], strict=True)
    return moved + [f"{one[1]} from {one[0]} differs" for one, other in pairs if one != other]


def test_one_of_three_servers_and_all_other_owners_see_the_same_whatever_the_differing_record(found):
    assert problems(found, "None") == []
    first, second = found[0]["None"]
    assert first["opened"] == second["opened"]
    assert min(first["distances"]) > 0.1  # The record matters.


def test_what_another_server_receives_differs(found):
    """Otherwise the comparison would be of no use. Two servers together could see the vector."""
    assert problems(found, "None", server=1) != []


@pytest.mark.parametrize("bug", coalition_server.BUGS)
def test_a_planted_bug_is_flagged(found, bug):
    assert problems(found, bug)
