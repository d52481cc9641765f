"""The clients, which reply with nothing but that they have handed in."""

from pathlib import Path

from privet.federated.flower import client_app


def trainer(context):
    from rounds import task

    return task.trainer()


def data(context):
    from rounds import task

    return task.clients()[context.node_config["partition-id"]]


def member(context):
    from privet.federated.committee import CommitteeClient
    from rounds import task

    settings = context.run_config
    keys = Path(settings["folder"]) / "keys"
    return CommitteeClient(task.study(settings["ports"]), context.node_config["partition-id"], keys=keys, timeout=300)


app = client_app(trainer, data, committee=member, random_state=5)
