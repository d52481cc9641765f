"""Clients in real worker processes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.engines.base import Engine
from privet.federated.engines.processes import Processes, is_picklable
from privet.networks import trained_weights

LOCAL = LocalTraining(0.3, batch_size=5, epochs=2)


def trainer():
    torch.manual_seed(2)
    return ClientTrainer(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), nn.CrossEntropyLoss(), LOCAL, 0.4)


def points(sizes=(30, 0, 7, 1, 12)):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator)) for n in sizes]


def answers(engine, datas):
    weights = trained_weights(engine.trainer.model)
    return dict(engine.answers(weights, 1, range(len(datas)), lambda client: datas[client]))


@pytest.fixture(scope="module")
def workers():
    engine = Processes(trainer(), random_state=3, workers=1)
    yield engine
    engine.close()


def test_updates_from_workers_equal_those_from_one_process(workers):
    found, alone = answers(workers, points()), answers(Engine(workers.trainer, random_state=3), points())
    assert found.keys() == alone.keys()
    for client, update in found.items():
        assert all(np.allclose(update[name], alone[client][name], atol=1e-6) for name in update)


def test_an_error_in_a_worker_is_the_answer_of_its_client(workers):
    datas = points([4, 4])
    datas[0] = (torch.randn(4, 9), datas[0][1])
    found = answers(workers, datas)
    assert isinstance(found[0], RuntimeError)
    assert isinstance(found[1], dict)


def test_a_client_that_dropped_out_has_no_update(workers):
    datas = [None, *points([4]), KeyError("lost")]
    found = answers(workers, datas)
    assert found[0] is None
    assert isinstance(found[2], KeyError)


def test_the_error_of_a_killed_worker_names_the_remedies():
    engine = Processes(trainer(), random_state=3, workers=1)
    try:
        answers(engine, points([4]))
        (worker,) = engine._pool._processes
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"fewer workers.*__main__"):
            answers(engine, points([4]))
    finally:
        engine.close()


def test_the_error_of_a_program_without_a_main_guard_names_the_remedy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from privet.federated import LocalTraining, simulate\n"
        "from privet.plans import FullBatch, GradientPlan\n"
        "data = [(torch.randn(4, 2), torch.zeros(4, dtype=torch.long))]\n"
        "simulate(nn.Linear(2, 2), data, loss=nn.CrossEntropyLoss(), local=LocalTraining(0.1, 2, epochs=1),\n"
        "         plan=GradientPlan(FullBatch(), 1, 1.0, 1.0), delta=1e-5, engine='processes', workers=1)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert 'under `if __name__ == "__main__":`' in done.stderr


def test_is_picklable_detects_trainers_that_cannot_be_sent():
    assert is_picklable(trainer())
    assert not is_picklable(ClientTrainer(nn.Linear(2, 2), lambda a, b: (a - b).square().mean(1), LOCAL, 1.0))
