"""Private training of a PyTorch model: batches, clipped sums, noise and steps, by one plan.

private = make_private(model, optimizer, dataset, loss=loss, budget=Budget(3, 1e-5), epochs=20, batch_size=256,
clip_norm=1.0)
for batch in private.batches():
private.step(*batch)
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from privet.checks import count, positive, probability
from privet.deep.clipping import batch_gradients, layers_of
from privet.denoise import Denoiser
from privet.plans import GradientPlan, PlanError, Poisson, Step
from privet.privacy import Budget, Guarantee, NoiseSource, assumed, enforced

Loss = Callable[[Any, Any], Tensor]


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    *,
    loss: Loss,
    budget: Budget,
    epochs: float,
    batch_size: int,
    clip_norm: float,
    denoiser: Denoiser | None = None,
    max_batch: int | None = None,
    public_n: int | None = None,
    random_state: int | None = None,
) -> "PrivateTraining":
    """Prepare the private training of a model.

    Parameters
    ----------
    model : nn.Module
        Layers that mix examples (batch norms) are refused.
    optimizer : torch.optim.Optimizer
        Any: it is given private gradients, so that its state, schedules and momentum are post-processing.
    dataset : map-style dataset
        ``dataset[i]`` is a tuple of inputs and, last, a target. A ``TensorDataset`` is read in one go.
    loss : callable
        ``loss(outputs, targets)`` with one number an example; a ``torch.nn`` loss is told to make no average.
    budget : Budget
        For the whole training, under add-or-remove adjacency.
    epochs, batch_size : float, int
        Expected passes over the data, and expected size of a batch: batches are Poisson.
    clip_norm : float
        Bound on the norm of one example's gradient.
    denoiser : Denoiser or None
        Applied to each layer's noisy gradient: ``LaplacianSmoothing(sigma)`` makes DP-SGD DP-LSSGD.
    max_batch : int or None
        Most examples that are in memory at once; larger batches are taken in parts.
    public_n : int or None
        A public guess of the number of examples, from which the sampling rate is made. None takes their number, and
        the guarantee then assumes that it is public.
    random_state : int or None
        As everywhere: an integer makes a run repeatable, and the guarantee then needs it secret.
    """
    n = count("public_n", len(dataset) if public_n is None else public_n)
    rate = probability("batch_size / n", count("batch_size", batch_size) / n)
    steps = max(1, math.ceil(positive("epochs", epochs) / rate - 1e-9))
    plan = GradientPlan.for_budget(budget, sampler=Poisson(rate), steps=steps, clip_norm=clip_norm, public_n=n)
    return PrivateTraining(
        model,
        optimizer,
        dataset,
        plan=plan,
        loss=loss,
        delta=budget.delta,
        denoiser=denoiser,
        max_batch=max_batch,
        source=NoiseSource(random_state, purpose="make_private"),
        n_is_public=public_n is None,
    )


class PrivateTraining:
    """A model in private training: see :func:`make_private`.

    Formal guarantees
    -----------------
    Each step sees the data through one noisy sum of gradients, each example's clipped over all parameters together,
    over a Poisson batch that the plan drew; it is divided by a public constant. What the optimizer, the denoiser and
    schedulers do with it is post-processing. :attr:`guarantee` covers the steps made so far.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        plan: GradientPlan,
        loss: Loss,
        delta: float,
        denoiser: Denoiser | None = None,
        max_batch: int | None = None,
        source: NoiseSource | None = None,
        n_is_public: bool = False,
    ) -> None:
        layers_of(model)  # refuses what mixes examples
        self.model, self.optimizer, self.dataset, self.plan = model, optimizer, dataset, plan
        self._loss, self._delta, self._denoiser = _per_example(loss), delta, denoiser
        self._max_batch = None if max_batch is None else count("max_batch", max_batch)
        self._source = source or NoiseSource()
        self._n_is_public = n_is_public
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._check_optimizer()
        self._step: Step | None = None
        self.steps_done = 0

    def _check_optimizer(self) -> None:
        held = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        if not self._parameters:
            raise ValueError("the model has no parameters to train: set requires_grad on some")
        if not {id(parameter) for parameter in self._parameters} <= held:
            raise ValueError("the optimizer does not hold all parameters of the model that are trained")

    # ---------------------------------------------------------------------------------------------------- training

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of the whole training, each a tuple of inputs and targets; some may be empty."""
        if self.steps_done:
            raise PlanError("this training has begun: its batches were drawn already")
        for step in self.plan.run(len(self.dataset), self._source):
            self._step = step
            yield _collated(self.dataset, step.batch)
            if self._step is not None:
                raise PlanError("each batch is for one step: call step(*batch) before the next is drawn")

    def step(self, *batch: Any) -> Tensor:
        """Take one private step on a batch of :meth:`batches`; return the losses of its examples, which are private.

        The losses are for the data's holder: publishing them would be a release of its own.
        """
        step, self._step = self._step, None
        if step is None:
            raise PlanError("step() takes a batch of batches(), once")
        *inputs, targets = batch
        total, losses = self._clipped_sum(tuple(inputs), targets)
        noisy = torch.from_numpy(step.noisy(total.cpu().numpy())).to(total.device)
        self._apply(noisy / self.plan.divisor(len(self.dataset)))
        self.steps_done += 1
        return losses

    def _clipped_sum(self, inputs: tuple[Any, ...], targets: Any) -> tuple[Tensor, Tensor]:
        """Return the clipped sum over a batch, flat, and the losses, part by part if memory is bounded."""
        size, part = len(targets), self._max_batch or max(len(targets), 1)
        total = torch.zeros(sum(parameter.numel() for parameter in self._parameters))
        losses = []
        for start in range(0, size, part):
            chosen = slice(start, start + part)
            found = batch_gradients(self.model, self._loss, tuple(x[chosen] for x in inputs), targets[chosen])
            sums = found.clipped_sum(self.plan.clip_norm)
            total += torch.cat([sums.get(p, torch.zeros_like(p)).flatten().cpu() for p in self._parameters])
            losses.append(found.losses)
        return total, torch.cat(losses) if losses else torch.zeros(0)

    def _apply(self, gradient: Tensor) -> None:
        """Hand a private gradient to the optimizer, layer by layer."""
        layers = list(gradient.split([parameter.numel() for parameter in self._parameters]))
        if self._denoiser is not None:
            layers = self._denoiser(layers, self.plan.noise_std / self.plan.divisor(len(self.dataset)))
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, layer in zip(self._parameters, layers, strict=True):
            parameter.grad = layer.view_as(parameter).to(parameter)
        self.optimizer.step()

    # --------------------------------------------------------------------------------------------------- guarantees

    @property
    def guarantee(self) -> Guarantee:
        """What the steps made so far promise; before the first, what the whole training will."""
        plan = replace(self.plan, steps=self.steps_done or self.plan.steps)
        bound = enforced(f"each example's gradient is clipped to l2 norm {plan.clip_norm:.6g}, all parameters together")
        guarantee = plan.guarantee(self._delta, bound=bound, released="every noisy gradient and all weights")
        if self._n_is_public:
            guarantee = guarantee.assuming(assumed("the number of examples, from which the rate is made, is public"))
        return guarantee.assuming(self._source.assumption())


def _per_example(loss: Loss) -> Loss:
    """Return the loss without its average: of a torch.nn loss a copy that reduces nothing."""
    if not isinstance(loss, nn.Module) or not hasattr(loss, "reduction"):
        return loss
    reducing: Any = copy.copy(loss)
    reducing.reduction = "none"
    unreduced: Loss = reducing
    return unreduced


def _collated(dataset: Any, indices: Any) -> tuple[Any, ...]:
    """Return the examples of a batch as tensors; of an empty one tensors of no examples."""
    if isinstance(dataset, torch.utils.data.TensorDataset):
        chosen = torch.as_tensor(indices)
        return tuple(tensor[chosen] for tensor in dataset.tensors)
    if len(indices) == 0:
        return tuple(part[:0] for part in default_collate([dataset[0]]))
    examples: Sequence[Any] = [dataset[int(index)] for index in indices]
    return tuple(default_collate(examples))
