"""Which engine trains the clients of a simulation."""

from torch import nn

from privet.federated.engines.base import Engine
from privet.federated.engines.batched import Batched, softmax_layer
from privet.federated.engines.processes import Processes, is_picklable, processors
from privet.federated.local_training import ClientTrainer

ENGINES = ("auto", "batched", "processes", "sequential")

_SMALL = 50_000
"""Parameters up to which stacked clients train faster than single ones in two processes, on two cores of today."""


def engine_for(name: str, trainer: ClientTrainer, random_state: int | None, workers: int | None) -> Engine:
    """Return the engine of a name."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if name == "auto":
        name = chosen_engine(trainer, workers)
    if name == "batched":
        return Batched(trainer, random_state)
    return Processes(trainer, random_state, workers) if name == "processes" else Engine(trainer, random_state)


def chosen_engine(trainer: ClientTrainer, workers: int | None) -> str:
    """Return the name of the engine that suits a model; it is chosen by the model alone, never by the data."""
    size = sum(parameter.numel() for parameter in trainer.model.parameters())
    is_recurrent = any(isinstance(layer, nn.RNNBase) for layer in trainer.model.modules())  # slow or refused by vmap
    if softmax_layer(trainer) or (size <= _SMALL and not is_recurrent):
        return "batched"
    return "processes" if (workers or processors()) > 1 and is_picklable(trainer) else "sequential"
