"""The example app, server and clients, over a grid without a network."""

import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
from flwr.app import Context, RecordDict

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flower"


@pytest.fixture
def settings():
    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert settings["components"] == {"serverapp": "digits.server_app:app", "clientapp": "digits.client_app:app"}
    return settings["config"]


def test_the_example_learns_digits_and_prints_its_guarantee(settings, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    from digits import client_app, server_app
    from loopback import Loopback

    run_config = {**settings, "save": str(tmp_path / "run.npz")}
    grid = Loopback({50 + client: client for client in range(settings["clients"])}, client_app.app)
    grid.context = lambda node: Context(1, node, {"partition-id": grid.nodes[node]}, RecordDict(), run_config)
    for _ in range(2):  # the second resumes from the file, where all rounds are complete
        server_app.app(grid, Context(1, 1, {}, RecordDict(), run_config))
        said = capsys.readouterr().out
        assert float(said.split("public images: ")[1].split()[0]) > 0.5
        assert "(50, 0.001)-differential privacy for each client" in said
    assert len(grid.trained()) == settings["rounds"]
