"""Averages of the weights during training, which are post-processing and cost no privacy."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from privet.checks import probability


class WeightAverage:
    """An exponential moving average of the trained parameters, in single or double precision.

    In the first steps, recent weights count more: step t keeps min(decay, t / (t + 9)) of the average before, so that
    the start is forgotten.

    Parameters
    ----------
    decay : float
        The share of the average that a step keeps, in [0, 1).
    parameters : sequence of nn.Parameter
        The trained parameters.
    """

    def __init__(self, decay: float, parameters: Sequence[nn.Parameter]) -> None:
        if probability("average", decay) == 1:
            raise ValueError("average=1 would keep the first weights forever. Choose a decay below 1, such as 0.999.")
        self._decay = float(decay)
        self._parameters, self._steps = list(parameters), 0
        self._values = [_wide(each) for each in parameters]

    def update(self) -> None:
        """Take in the weights after a step."""
        keep = min(self._decay, self._steps / (self._steps + 9))
        self._steps += 1
        with torch.no_grad():
            for value, parameter in zip(self._values, self._parameters, strict=True):
                value.lerp_(parameter.to(value), 1 - keep)

    def write(self, parameters: Sequence[nn.Parameter]) -> None:
        """Write the average into the same parameters of another model."""
        with torch.no_grad():
            for value, parameter in zip(self._values, parameters, strict=True):
                parameter.copy_(value)

    def state(self) -> dict[str, Tensor | int]:
        """Return the state, for saving."""
        return {"steps": self._steps, **{f"value.{place}": each for place, each in enumerate(self._values)}}

    def load(self, state: dict[str, Tensor | int] | None) -> None:
        """Restore a saved state."""
        if not state:
            raise ValueError("The file was saved without an average of the weights. Leave out average= to resume it.")
        self._steps = int(state["steps"])
        for place, value in enumerate(self._values):
            value.copy_(torch.as_tensor(state[f"value.{place}"]))


def _wide(parameter: nn.Parameter) -> Tensor:
    values = parameter.detach().clone()
    return values.float() if values.dtype.itemsize < 4 else values
