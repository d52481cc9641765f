"""A SuperLink, SuperNodes and two servers of a committee as processes: no reply to the Flower server has an update.

It takes a minute, so it runs with ``PRIVET_AUDIT=long`` only. tests/federated/committee covers the same without the
processes of Flower.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.environ.get("PRIVET_AUDIT") != "long", reason="PRIVET_AUDIT=long runs it")
FLOWER = Path(__file__).parents[1] / "federated" / "flower"
APP = FLOWER / "committee_app"


def test_the_flower_server_gets_a_noisy_sum_and_no_update(tmp_path, monkeypatch):
    for needed in ("flwr", "mpyc", "grpc", "torch"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(str(FLOWER))
    monkeypatch.syspath_prepend(str(APP))
    import test_deployment as flower
    from rounds import task

    from privet.federated import order_source, trained_weights

    monkeypatch.setattr(flower, "APP", APP)
    monkeypatch.setattr(flower, "NODES", task.NODES)
    base = next(port for port in flower.free_ports(20) if port < 65000)
    ports = f"{base}-{base + 2}"
    task.study(ports).make_keys(tmp_path / "keys")
    work = "import sys; from rounds import task; task.server(sys.argv[1], int(sys.argv[2]), sys.argv[3])"
    environment = os.environ | {"PYTHONPATH": str(APP)}
    servers = [
        subprocess.Popen([sys.executable, "-c", work, ports, str(each), str(tmp_path)], env=environment)
        for each in range(2)
    ]
    deployment = None
    try:
        deployment = flower.Deployment(tmp_path)
        deployment.run(f'0 ports="{ports}"')
        deployment.until((tmp_path / "ended").exists)
        assert not (tmp_path / "error").exists(), deployment.logs()
        assert [each.wait(60) for each in servers] == [0, 0]
    finally:
        for each in servers:
            each.kill()
        if deployment is not None:
            deployment.end()
    received, clients = json.loads((tmp_path / "received.json").read_text())
    assert received == [[]] * (task.NODES * task.ROUNDS)  # replies without any record
    assert clients == [task.NODES] * task.ROUNDS
    weights = trained_weights(task.model())
    for done in range(task.ROUNDS):
        updates = [
            task.trainer().update(weights, task.clients()[each], done, order_source(5, done, each))
            for each in range(task.NODES)
        ]
        weights = {name: layer + sum(each[name] for each in updates) / task.NODES for name, layer in weights.items()}
    most = task.ROUNDS * 2 * task.LAW.reach / task.SCALE  # of the noise, and more than it can move an update
    with np.load(tmp_path / "result.npz") as found:
        assert all(np.abs(found[name] - layer).max() < most for name, layer in weights.items())
