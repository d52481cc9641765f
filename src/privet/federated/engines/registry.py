"""Selection of the engine that trains the clients of a simulation."""

from torch import nn

from privet.federated.engines.base import Engine
from privet.federated.engines.batched import Batched
from privet.federated.engines.forked import Forked, can_fork
from privet.federated.engines.known_models import known_graph
from privet.federated.engines.processes import Processes, is_picklable, processors
from privet.federated.engines.softmax_regression import softmax_layer
from privet.federated.engines.stacked_layers import is_costly
from privet.federated.local_training import ClientTrainer
from privet.networks import underlying

ENGINES = ("auto", "batched", "batched_processes", "processes", "sequential")

_SMALL = 50_000
"""Number of parameters up to which batched training was faster than two worker processes, measured on two cores."""


def engine_for(name: str, trainer: ClientTrainer, random_state: int | None, workers: int | None) -> Engine:
    """Return the engine with the given name."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}.")
    if name == "auto":
        name = chosen_engine(trainer, workers)
    if name == "batched":
        return Batched(trainer, random_state, workers)
    if name == "batched_processes":
        return Forked(trainer, random_state, workers)
    return Processes(trainer, random_state, workers) if name == "processes" else Engine(trainer, random_state)


def chosen_engine(trainer: ClientTrainer, workers: int | None) -> str:
    """Return the name of the fastest engine for a model. The choice depends on the model only, never on the data."""
    size = sum(parameter.numel() for parameter in trainer.model.parameters())
    is_recurrent = any(isinstance(layer, nn.RNNBase) for layer in trainer.model.modules())
    is_known = known_graph(trainer.model, underlying(trainer.loss)) is not None
    has_workers = (workers or processors()) > 1
    is_slow = is_recurrent and not is_known  # vmap is slow or fails
    if softmax_layer(trainer) or (size <= _SMALL and not is_slow):
        is_parallel = has_workers and trainer.local.denoiser is None and can_fork()
        return "batched_processes" if is_known and is_costly(trainer.model) and is_parallel else "batched"
    return "processes" if has_workers and is_picklable(trainer) else "sequential"
