"""A committee of servers as processes, owners over real TLS connections, and what happens when some of them fail."""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")

from privet.multiparty import SimulatedAggregator, make_keys
from privet.multiparty.protocol.participation import sum_plan, trained
from privet.multiparty.protocol.results import verify_result
from privet.multiparty.study import Study
from privet.privacy import Ledger

sys.path.insert(0, str(Path(__file__).parents[1]))

from owners_process import hand_in, hand_in_to_some, hand_in_too_large, hand_in_wrong_degree, rows_of
from parties import HOST, Machine, command

STUDY = """
name = "committee"
epsilon = 4.0
delta = 1e-6
alpha = 0.05
rows_per_owner = 40
owners = {owners}
fewest_owners = {fewest}
trust = "{trust}"
method = "{method}"
steps = {steps}
check_norms = {check_norms}
{servers}
[table]
target = "y"
target_levels = ["no", "yes"]
[table.numeric]
a = [-1, 1]
b = [-1, 1]
"""


class Trial:
    """A study with servers on this machine."""

    def __init__(
        self, machine, folder, keys, *, trust, method, owners=6, fewest=1, servers=3, steps=3, check_norms="false"
    ):
        self.machine, self.folder, self.keys, self.n_servers = machine, folder, keys, servers
        entries = "".join(
            f'[[server]]\nname = "s{each}"\naddress = "{HOST}:{port}"\n'
            for each, port in enumerate(machine.ports[:servers])
        )
        self.path = folder / "study.toml"
        settings = {"trust": trust, "method": method, "owners": owners, "fewest": fewest, "steps": steps}
        settings["check_norms"] = check_norms
        self.path.write_text(STUDY.format(servers=entries, **settings))
        self.study = Study.read(self.path)

    def server(self, index, *options, timeout=60.0, again=0):
        folder = self.folder / f"server{index}_{again}"
        return self.machine.start(
            folder,
            command,
            *("party", str(self.path), "--server", str(index), "--keys", str(self.keys)),
            *("--timeout", str(timeout), "--connect-timeout", "60", "-o", "model.json", *options),
        )

    def servers(self, *options, **named):
        return [self.server(index, *options, **named) for index in range(self.n_servers)]

    def owners(self, owners, name="owners", **named):
        return self.machine.start(
            self.folder / name, hand_in, str(self.path), str(self.keys), list(owners), *named.values()
        )

    def model(self, index, again=0):
        return json.loads((self.folder / f"server{index}_{again}" / "model.json").read_text())


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(
        tmp_path_factory.mktemp("keys") / "keys", ["s0", "s1", "s2"], owners=[f"owner {i}" for i in range(8)]
    )


@pytest.fixture
def trial(tmp_path, keys):
    with Machine() as machine:
        machine.ports = machine.ports_of_servers(3)
        yield lambda **settings: Trial(machine, tmp_path, keys, **settings)


def said(process):
    return [json.loads(line) for line in process.out.splitlines()]


def centre(study, owners):
    """Return the weights that the servers would open without noise."""
    problem = study.problem([study.rows_per_owner] * len(owners))
    parties = [problem.local(*rows_of(study, owner)) for owner in owners]
    plan = sum_plan(study, problem)
    return asyncio.run(trained(study, problem, SimulatedAggregator(plan, parties, None))).weights


@pytest.mark.parametrize("trust", ["one", "majority"])
@pytest.mark.parametrize("method", ["gradient", "output"])
def test_servers_and_owners_compute_the_model_of_all_rows(trial, trust, method):
    here = trial(trust=trust, method=method)
    servers, owners = here.servers(), here.owners(range(6))
    assert owners.wait() == 0
    assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
    models = [here.model(index) for index in range(3)]
    assert models[0] == models[1] == models[2]
    guarantee = models[0]["model"]["guarantee"] if "guarantee" in models[0]["model"] else models[0]["model"]
    assert ("at least one of the 3 servers" in json.dumps(guarantee)) == (trust == "one")
    assert [each["party"] for each in models[0]["signatures"]] == ["s0", "s1", "s2"]
    weights = [each["weights"] for each in said(owners)]
    if method == "output":
        assert weights == [None] * 6
    else:
        expected = centre(here.study, range(6))
        assert all(each == weights[0] for each in weights)
        assert np.abs(np.array(weights[0]) - expected).max() < 2.0


@pytest.mark.parametrize(("trust", "method"), [("one", "output"), ("majority", "gradient")])
def test_delta_0_gives_pure_epsilon(trial, trust, method):
    here = trial(trust=trust, method=method, owners=3, steps=2)
    here.path.write_text(here.path.read_text().replace("delta = 1e-6", "delta = 0"))
    here.study = Study.read(here.path)
    ledgers = [here.folder / f"{index}.jsonl" for index in range(3)]
    servers = [here.server(index, "--ledger", str(ledger)) for index, ledger in enumerate(ledgers)]
    assert here.owners(range(3)).wait() == 0
    assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
    assert all("(4, 0)-differential privacy" in server.out for server in servers), servers[0].out
    assert here.model(0) == here.model(1) == here.model(2)
    text = json.dumps(here.model(0))
    assert ("l2 K-norm noise" in text, "Laplace noise" in text) == (trust == "one", trust == "majority")
    assert [Ledger(ledger).total(0.0).epsilon for ledger in ledgers] == pytest.approx([4.0] * 3, rel=1e-3)


def test_an_owner_who_reaches_two_of_three_servers_is_left_out_by_all(trial):
    here = trial(trust="one", method="output", fewest=2)
    # Owners call until servers answer, so they are there when the servers begin to wait for them.
    partial = here.machine.start(here.folder / "partial", hand_in_to_some, str(here.path), str(here.keys), 5, [0, 2])
    owners = here.owners([0, 1, 2])
    servers = here.servers(timeout=6.0)
    assert (partial.wait(), owners.wait()) == (0, 0)
    assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
    assert all("3 of 6 owners took part" in server.out for server in servers)


def test_an_owner_whose_shares_do_not_belong_together_is_left_out(trial):
    here = trial(trust="majority", method="output", owners=4)
    servers = here.servers()
    wrong = here.machine.start(here.folder / "wrong", hand_in_wrong_degree, str(here.path), str(here.keys), 3)
    owners = here.owners([0, 1, 2])
    assert (wrong.wait(), owners.wait()) == (0, 0)
    assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
    assert all("3 of 4 owners took part" in server.out for server in servers)


def test_nothing_is_opened_if_too_few_owners_hand_in(trial):
    here = trial(trust="one", method="output", fewest=4)
    owners = here.owners([0, 1])
    servers = here.servers(timeout=3.0)
    assert owners.wait() == 0
    assert all(server.wait() != 0 for server in servers)
    assert all("but the study needs 4" in server.err for server in servers)
    folder = here.folder / "server0_0"
    assert not (folder / "model.json").exists()
    assert not list((folder / "model.json.state").glob("release_*"))


def test_after_a_kill_the_servers_continue_with_the_same_noise_and_the_same_owners(trial):
    here = trial(trust="one", method="gradient", steps=30)
    ledgers = [here.folder / f"ledger{index}.jsonl" for index in range(3)]

    def started(again):
        options = [
            ["--state", str(here.folder / f"state{index}"), "--ledger", str(ledgers[index]), "--limit", "5"]
            for index in range(3)
        ]
        return [here.server(index, *each, again=again) for index, each in enumerate(options)]

    servers, owners = started(0), here.owners(range(6))
    servers[1].until((here.folder / "state1" / "release_000003.sent").exists)
    servers[1].kill()
    assert all(server.wait() != 0 for server in (servers[0], servers[2]))
    assert "party 1" in servers[0].err
    kept = {
        path.name: path.read_bytes()
        for path in (here.folder / "state0").glob("*.npz")
        if path.with_suffix(".sent").exists()
    }
    servers = started(1)
    assert [server.wait() for server in servers] == [0, 0, 0], [each.err for each in (*servers, owners)] + [owners.out]
    assert owners.wait() == 0
    assert all("weights" in each for each in said(owners)), owners.out
    assert len(kept) >= 4
    assert all(f"keeps its state in {here.folder / 'state'}{index}" in each.out for index, each in enumerate(servers))
    assert all((here.folder / "state0" / name).read_bytes() == content for name, content in kept.items())
    assert [len(Ledger(ledger).entries()) for ledger in ledgers] == [1, 1, 1]
    assert here.model(0, 1) == here.model(1, 1) == here.model(2, 1)


def test_owners_whose_contribution_is_too_large_are_left_out_by_all_and_after_a_restart(trial):
    """The first owner is honest, and as close to the bound as rows can be. Every server is started twice."""
    here = trial(trust="majority", method="gradient", owners=7, steps=6, check_norms="true")
    kinds = {3: "coordinate", 4: "wrapped", 5: "step", 6: "digit"}

    def started(again):
        return [here.server(index, "--state", str(here.folder / f"state{index}"), again=again) for index in range(3)]

    servers, owners = started(0), here.owners(range(3))
    wrong = here.machine.start(here.folder / "wrong", hand_in_too_large, str(here.path), str(here.keys), kinds)
    servers[1].until((here.folder / "state1" / "release_000001.sent").exists)
    assert wrong.wait() == 0
    assert {each["owner"]: "contribution exceeds the bound" in each["error"] for each in said(wrong)} == dict.fromkeys(
        kinds, True
    )
    servers[1].kill()
    assert all(server.wait() != 0 for server in (servers[0], servers[2]))
    servers = started(1)
    assert [server.wait() for server in servers] == [0, 0, 0], [each.err for each in (*servers, owners)] + [owners.out]
    assert owners.wait() == 0
    assert here.model(0, 1) == here.model(1, 1) == here.model(2, 1)
    assert here.model(0, 1)["left_out"] == [f"owner {index}" for index in kinds]
    named = "exceeded its bound: owner 3, owner 4, owner 5, owner 6"
    assert all(named in server.out and "3 of 7 owners took part" in server.out for server in servers)
    assert verify_result(here.model(0, 1), (here.keys / "ca.crt").read_bytes()) == here.study
    weights = [each["weights"] for each in said(owners)]
    assert weights[0] == weights[1] == weights[2]
    assert np.abs(np.array(weights[0]) - centre(here.study, range(3))).max() < 2.0


@pytest.mark.parametrize("method", ["gradient", "output"])
def test_norms_are_checked_before_noise_of_pure_epsilon_is_added(trial, method):
    """Noise that may be any element of the field is added in the field in which norms are checked."""
    here = trial(trust="majority", method=method, owners=4, steps=1, check_norms="true")
    here.path.write_text(here.path.read_text().replace("delta = 1e-6", "delta = 0"))
    here.study = Study.read(here.path)
    servers, owners = here.servers(), here.owners(range(3))
    wrong = here.machine.start(here.folder / "wrong", hand_in_too_large, str(here.path), str(here.keys), {3: "wrapped"})
    assert (owners.wait(), wrong.wait()) == (0, 0)
    assert [server.wait() for server in servers] == [0, 0, 0], [server.err for server in servers]
    assert ["contribution exceeds the bound" in each["error"] for each in said(wrong)] == [True]
    assert here.model(0) == here.model(1) == here.model(2)
    assert here.model(0)["left_out"] == ["owner 3"]
    assert all("3 of 4 owners took part" in server.out for server in servers)
    assert all("(4, 0)-differential privacy" in server.out for server in servers), servers[0].out
    if method == "gradient":
        weights = [each["weights"] for each in said(owners)]
        assert weights[0] == weights[1] == weights[2]
        assert np.abs(np.array(weights[0]) - centre(here.study, range(3))).max() < 2.0
