"""No owner's vector, no share and no sum without noise reaches a log, a file or a traceback of any process."""

import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")

from privet.multiparty import SimulatedAggregator, make_keys
from privet.multiparty.protocol.committee import sharing_of
from privet.multiparty.protocol.participation import sum_plan, trained
from privet.multiparty.study import Study
from privet.privacy import NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import verbose_party
from owners_process import rows_of
from parties import Machine
from test_committee import STUDY, Trial

OWNERS = 3
SERVERS = "".join(f'[[server]]\nname = "s{each}"\naddress = "127.0.0.1:{9100 + 2 * each}"\n' for each in range(3))
IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
long = pytest.mark.skipif(not IS_LONG, reason="make audit runs this")


def secrets_of(study):
    """Return the numbers of the first release that nobody may see: vectors, their sum, and all shares."""
    problem = study.problem([study.rows_per_owner] * OWNERS)
    plan = sum_plan(study, study.committee_problem())
    vectors = []

    class Kept(SimulatedAggregator):
        async def _opened(self, summand):
            if not vectors:
                vectors.extend(plan.on_lattice(summand(problem)) for problem in self._problems)
            return await super()._opened(summand)

    parties = [problem.local(*rows_of(study, owner)) for owner in range(OWNERS)]
    asyncio.run(trained(study, problem, Kept(plan, parties, None)))
    sharing = sharing_of(plan, study.trust, len(study.servers), study.n_owners)
    shares = [
        sharing.read(share)
        for owner, vector in enumerate(vectors)
        for share in sharing.split(vector, NoiseSource(owner), first=owner)
    ]
    sums = [np.sum(vectors, axis=0)]
    sums += [np.add.reduce(shares[server :: len(study.servers)]) for server in range(len(study.servers))]
    rows = np.concatenate([rows_of(study, owner)[0][:5].ravel() for owner in range(OWNERS)])
    return [each.astype(np.int64) for each in (*vectors, *shares, *sums)], rows


def leaks(folder, study):
    """Return where a secret vector or a secret row appears, as bytes or as text."""
    whole, real = secrets_of(study)
    forms = ("<i8", ">i8", "<i4", "<f8")
    binary = [each.astype(form).tobytes() for each in whole for form in forms] + [each.tobytes() for each in real]
    texts = {tuple(map(str, each.tolist())) for each in (*whole, *(each.astype(np.uint64) for each in whole))}
    texts |= {(f"{each:.6f}"[:-1],) for each in real}  # as far as numpy prints it
    found, files = [], [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        numbers = re.findall(r"-?\d+(?:\.\d{5})?", content.decode("latin-1"))
        for length in {len(each) for each in texts}:
            windows = set(zip(*(numbers[start:] for start in range(length)), strict=False))
            found += [f"{path.name}: {each}" for each in windows & texts]
        found += [f"{path.name}: bytes" for each in binary if each in content]
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    names = [f"owner {owner}" for owner in range(OWNERS)]
    return make_keys(tmp_path_factory.mktemp("keys") / "keys", ["s0", "s1", "s2"], owners=names)


def ran(folder, keys, trust, fault=None, owners_fault=None, kills=False):
    """Run a study in which server 2 has a fault, and return where its secrets appear."""
    with Machine() as machine:
        machine.ports = machine.ports_of_servers(3)
        trial = Trial(machine, folder, keys, trust=trust, method="gradient", owners=OWNERS, steps=3)
        servers = [
            machine.start(
                folder / f"server{index}",
                verbose_party.serve,
                fault if index == 2 else None,
                *("party", str(trial.path), "--server", str(index), "--keys", str(keys)),
                *("--timeout", "10", "--connect-timeout", "60", "-o", "model.json"),
            )
            for index in range(3)
        ]
        owners = machine.start(
            folder / "owners", verbose_party.hand_in, owners_fault, str(trial.path), str(keys), list(range(OWNERS))
        )
        if kills:
            servers[1].until((folder / "server1" / "model.json.state" / "release_000000.sent").exists)
            servers[1].kill()
        codes = [server.wait() for server in servers]
        owners.wait() if codes == [0, 0, 0] or IS_LONG else owners.kill()  # They would wait for the servers in vain.
        assert (codes == [0, 0, 0]) == (fault in (None, "logs shares") and not kills), [each.err for each in servers]
        assert "DEBUG:asyncio" in servers[0].err
        if fault == "raises":
            assert "planted" in servers[2].err
        return leaks(folder, trial.study)


def test_a_study_that_ends_well_leaks_nothing(tmp_path, keys):
    assert ran(tmp_path, keys, "majority") == []


def test_an_exception_with_all_numbers_at_hand_leaks_nothing(tmp_path, keys):
    assert ran(tmp_path, keys, "one", "raises") == []


@long
def test_a_study_with_a_killed_server_leaks_nothing(tmp_path, keys):
    assert ran(tmp_path, keys, "one", kills=True) == []


@long
def test_a_wrong_share_leaks_nothing(tmp_path, keys):
    assert ran(tmp_path, keys, "majority", "wrong share") == []


@long
@pytest.mark.parametrize("faults", [("logs shares", None), (None, "prints its vector")])
def test_a_leak_is_found(tmp_path, keys, faults):
    assert ran(tmp_path, keys, "one", *faults) != []


@pytest.mark.parametrize("form", ["text", "bytes", "row"])
def test_the_scan_finds_a_number_in_a_file(tmp_path, form):
    values = STUDY.format(
        owners=OWNERS, fewest=1, trust="one", method="gradient", steps=3, servers=SERVERS, check_norms="false"
    )
    study = Study.from_values(tomllib.loads(values))
    path, (whole, real) = tmp_path / "found", secrets_of(study)
    path.write_bytes(b"nothing")
    assert leaks(tmp_path, study) == []
    for secret in whole:
        told = {"text": f"share {secret} of", "bytes": b"-" + secret.tobytes(), "row": f"[[ {real[3]:.8f} 0.1"}[form]
        path.write_bytes(told if isinstance(told, bytes) else told.encode())
        assert leaks(tmp_path, study) != []
