"""Three servers and fifty owners, each of them a process of its own, of which some are killed while they hand in."""

import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")
if os.environ.get("PRIVET_AUDIT") != "long":
    pytest.skip("fifty processes take half a minute: make audit starts them", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from parties import Machine
from test_committee import Trial

from privet.multiparty import make_keys

OWNERS, KILLED = 50, 5


@pytest.mark.parametrize("trust", ["one", "majority"])
def test_servers_agree_on_the_owners_although_some_are_killed(tmp_path, trust):
    keys = make_keys(tmp_path / "keys", ["s0", "s1", "s2"], owners=[f"owner {owner}" for owner in range(OWNERS)])
    with Machine() as machine:
        machine.ports = machine.ports_of_servers(3)
        here = Trial(machine, tmp_path, keys, trust=trust, method="output", owners=OWNERS, fewest=OWNERS - KILLED)
        owners = [here.owners([owner], f"owner{owner}") for owner in range(OWNERS)]
        for owner in owners[:KILLED]:
            owner.kill()
        servers = here.servers(timeout=20.0)
        assert [owner.wait() for owner in owners[KILLED:]] == [0] * (OWNERS - KILLED)
        assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
        (took_part,) = {re.search(r"(\d+) of 50 owners took part", server.out)[1] for server in servers}
        assert OWNERS - KILLED <= int(took_part) <= OWNERS
        assert here.model(0) == here.model(1) == here.model(2)
