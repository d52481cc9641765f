"""Private training of a PyTorch model: batches, clipped sums, noise and steps, by one plan.

private = make_private(
    model, optimizer, dataset, loss=loss, budget=Budget(3, 1e-5), epochs=20, batch_size=256, clip_norm=1.0
)
for batch in private.batches(progress=True):
    private.step(*batch)
private.guarantee
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.checks import count, positive, probability
from privet.deep import checkpoint, selfcheck
from privet.deep.clipping import BatchGradients, batch_gradients, layers_of
from privet.deep.clipping.rules import has_rule
from privet.deep.datasets import collated
from privet.deep.estimates import Estimate, Fresh, RecursiveMomentum, estimate_for
from privet.deep.processes import Processes
from privet.deep.watching import Fingerprint, Spent
from privet.denoise import Denoiser
from privet.networks import Loss, check_trainable, per_example, trained_parameters
from privet.plans import GradientPlan, PlanError, Poisson, RecursivePlan, Step
from privet.privacy import Assumption, Budget, Guarantee, NoiseSource, assumed
from privet.progress import telling_bar
from privet.run_files import RunFiles

_LARGE = 280
"""Examples whose gradients take as long to add up as noise does to draw, both a parameter, on one core of today."""


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
    momentum: RecursiveMomentum | None = None,
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
        Applied to each layer's noisy gradient: ``LaplacianSmoothing(sigma)`` makes DP-SGD DP-LSSGD, and DP-Adam
        DP-LSAdam.
    momentum : RecursiveMomentum or None
        DP-SRM in the place of DP-SGD; ``clip_norm`` is then its C1.
    max_batch : int or None
        Most examples that are in memory at once; larger batches are taken in parts.
    public_n : int or None
        A public guess of the number of examples, from which the sampling rate is made. None takes their number, and
        the guarantee then assumes that it is public.
    random_state : int or None
        As everywhere: an integer makes a run repeatable, and the guarantee then needs it secret.

    Notes
    -----
    Where ``torch.distributed`` is initialised (gloo), its processes train together: each gives this function the same
    arguments, draws a share of every batch, and ends with the same weights; noise is added once. Give the plain model:
    a wrapper of DistributedDataParallel is taken off, since it would add up gradients that are not clipped yet.
    """
    n = count("public_n", len(dataset) if public_n is None else public_n)
    rate = probability("batch_size / n", count("batch_size", batch_size) / n)
    steps = max(1, math.ceil(positive("epochs", epochs) / rate - 1e-9))
    model = _unwrapped(model)
    estimate = estimate_for(
        budget,
        momentum,
        list(trained_parameters(model).values()),
        rate=rate,
        steps=steps,
        clip_norm=clip_norm,
        public_n=n,
    )
    return PrivateTraining(
        model,
        optimizer,
        dataset,
        plan=estimate,
        loss=loss,
        delta=budget.delta,
        denoiser=denoiser,
        max_move=None if momentum is None else momentum.max_move,
        max_batch=max_batch,
        random_state=random_state,
        n_is_public=public_n is None,
    )


class PrivateTraining:
    """A model in private training: see :func:`make_private`.

    Attributes
    ----------
    plan : GradientPlan or RecursivePlan
        Sampling, bound, noise and steps.
    steps_done : int
        Steps that made the weights what they are.
    steps_spent : int
        Steps whose noise was drawn, or may have been: more than ``steps_done`` after a crash.
    guarantee : Guarantee
        Of all steps spent.

    Formal guarantees
    -----------------
    Each step sees the data through one noisy sum of gradients, each example's clipped over all parameters together,
    over a Poisson batch that the plan drew; it is divided by a public constant. What the optimizer, the denoiser and
    schedulers do with it is post-processing. :attr:`guarantee` covers the steps made so far, in whatever process.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        plan: GradientPlan | Estimate,
        loss: Loss,
        delta: float,
        denoiser: Denoiser | None = None,
        max_move: float | None = None,
        max_batch: int | None = None,
        random_state: int | None = None,
        n_is_public: bool = False,
    ) -> None:
        _tell_of_the_general_rule(layers_of(model))  # which refuses what mixes examples
        self.model, self.optimizer, self.dataset = _unwrapped(model), optimizer, dataset
        self.steps_done = self.steps_spent = 0
        self._estimate = Fresh(plan) if isinstance(plan, GradientPlan) else plan
        self._loss, self._delta, self._denoiser, self._max_move = per_example(loss), delta, denoiser, max_move
        self._max_batch = None if max_batch is None else count("max_batch", max_batch)
        self._n_is_public = n_is_public
        self._parameters = list(trained_parameters(model).values())
        self._check_optimizer()
        is_double = any(each.dtype is torch.float64 for each in self._parameters)
        self._kind = np.float64 if is_double else np.float32  # of sums and noise
        self._processes = _checked_processes(self._estimate.plan)
        self._processes.check_alike(self.plan, [each.shape for each in self._parameters])
        self._processes.begin_alike([*model.parameters(), *model.buffers()])
        self._seed = random_state
        self._source = self._new_source("make_private")
        self._files = RunFiles(f"{NoiseSource().below(1 << 32):08x}", ahead=math.ceil(self.plan.steps / 1000))
        self._layout: selfcheck.Layout | None = None
        self._step: Step | None = None
        self._drawn, self._process = 0, os.getpid()
        self._has_begun = False
        self._last_loss = math.nan
        self._assumptions: list[Assumption] = []
        self._fingerprint = Fingerprint.of(self._parameters)

    @property
    def plan(self) -> GradientPlan | RecursivePlan:
        """The plan of the whole training."""
        return self._estimate.plan

    def _check_optimizer(self) -> None:
        held = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        check_trainable(self.model)
        if not {id(parameter) for parameter in self._parameters} <= held:
            raise ValueError("the optimizer does not hold all parameters of the model that are trained")

    def _new_source(self, purpose: str) -> NoiseSource:
        return NoiseSource(self._seed, purpose=f"{purpose} in process {self._processes.rank}")

    # ---------------------------------------------------------------------------------------------------- training

    def batches(self, *, progress: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of all steps that are left, each a tuple of inputs and targets; some may be empty.

        With ``progress`` a bar shows the batch's mean loss, which is for the data's holder only, and what was spent.
        """
        if self._has_begun:
            raise PlanError("this training has begun: its batches were drawn already")
        self._has_begun = True
        share = self._processes.share(len(self.dataset))
        spent = Spent(self._estimate, self._delta)
        with telling_bar("training", self.plan.steps, progress and self._processes.is_first) as tell:
            for step in self._estimate.steps(len(share), self._source, self.steps_spent):
                self._step, chosen = step, share[step.batch]
                self._drawn = len(chosen)
                yield collated(self.dataset, chosen)
                if self._step is not None:
                    raise PlanError("each batch is for one step: call step(*batch) before the next is drawn")
                if progress:
                    tell(self.steps_spent, f"loss {self._last_loss:.3f}, epsilon {spent.bound(self.steps_spent):.3g}")
        self._files.settle(self.steps_spent)

    def step(self, *batch: Any) -> Tensor:
        """Take one private step on a batch of :meth:`batches`; return the losses of its examples, which are private.

        The losses are for the data's holder: publishing them would be a release of its own.
        """
        step, self._step = self._step, None
        if step is None:
            raise PlanError("step() takes a batch of batches(), once")
        if os.getpid() != self._process:
            raise PlanError("a training that was carried into a forked process would be counted once and made twice")
        if len(batch[-1]) != self._drawn:
            raise PlanError(f"the batch that was drawn has {self._drawn} examples, this one {len(batch[-1])}")
        plan = self._estimate.at(self.steps_spent)
        self._book()  # whatever fails from here on: noise and bounds of the next batch are those of the next step
        *inputs, targets = batch
        self._check_parameters()
        self._check_first_batch(tuple(inputs), targets)
        self.optimizer.zero_grad(set_to_none=True)  # the last step's gradients need not lie beside this one's
        # Large batches leave time for the noise while gradients are added up; earlier it would lie beside activations.
        if len(targets) < _LARGE:
            self._prepare(step)
        total, losses = self._total(tuple(inputs), targets, plan, while_summing=partial(self._prepare, step))
        self._note_losses(losses)
        divisor = plan.divisor(len(self.dataset))
        mean = self._noisy(step, total).div_(divisor)
        self._apply(self._estimate.gradient(mean), plan.noise_std / divisor)
        self.steps_done += 1
        return losses

    def _total(
        self,
        inputs: tuple[Any, ...],
        targets: Any,
        plan: GradientPlan | None = None,
        while_summing: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        """Return the sum over a batch of what its examples add, flat, and the losses; in parts if memory is bounded."""
        bound = (plan or self._estimate.at(self.steps_spent)).clip_norm
        size, part = len(targets), self._max_batch or max(len(targets), 1)
        # numpy's zeros take memory only as they are written to, when activations are gone
        total = torch.from_numpy(np.zeros(sum(each.numel() for each in self._parameters), self._kind))
        slots, losses = dict(zip(self._parameters, self._split(total), strict=True)), [torch.zeros(0)]
        for start in range(0, size, part):
            chosen = slice(start, start + part)
            in_part = (self._layout or selfcheck.as_given)(tuple(each[chosen] for each in inputs))

            def gradients(given: tuple[Any, ...] = in_part, chosen: slice = chosen) -> BatchGradients:
                found = batch_gradients(self.model, self._loss, given, targets[chosen])
                while_summing()
                return found

            with torch.no_grad():
                losses.append(self._estimate.add_sums(slots, gradients, bound).cpu())
        return total, torch.cat(losses)

    def _prepare(self, step: Step) -> None:
        """Have the noise drawn in another thread."""
        if self._processes.is_first:
            step.prepare(sum(each.numel() for each in self._parameters), self._kind)

    def _noisy(self, step: Step, total: Tensor) -> Tensor:
        """Return the sum over all processes with one noise for all."""
        total = self._processes.gathered(total)
        if self._processes.is_first:
            total = torch.from_numpy(step.noisy(total.numpy()))
        return self._processes.from_first(total)

    def _apply(self, gradient: Tensor, noise_std: float) -> None:
        """Hand a private gradient to the optimizer, layer by layer."""
        layers = self._split(gradient)
        if self._denoiser is not None:
            layers = self._denoiser(layers, noise_std)
        shrink = self._shrink(layers)
        for parameter, layer in zip(self._parameters, layers, strict=True):
            parameter.grad = (layer * shrink if shrink < 1 else layer).view_as(parameter).to(parameter)
        self.optimizer.step()
        self._fingerprint = Fingerprint.of(self._parameters)

    def _split(self, flat: Tensor) -> list[Tensor]:
        return list(flat.split([parameter.numel() for parameter in self._parameters]))

    def _shrink(self, layers: Sequence[Tensor]) -> float:
        """Return the factor of DP-SRM's adaptive step: min(1, max_move / (learning rate times norm))."""
        if self._max_move is None:
            return 1.0
        rate = max(float(group["lr"]) for group in self.optimizer.param_groups)
        move = rate * float(torch.stack([layer.norm() for layer in layers]).norm())
        return min(1.0, self._max_move / move) if move > 0 else 1.0

    # ------------------------------------------------------------------------------------------------------- checks

    def _check_first_batch(self, inputs: tuple[Any, ...], targets: Any) -> None:
        """Compare the first examples' gradients with torch's own, and settle in which memory format to compute."""
        if self._layout is not None or len(targets) == 0:
            return
        if len(targets) == 1 and len(self.dataset) > 1:  # one alone mixes with nobody: some other for company
            company = collated(self.dataset, np.arange(2))
            if _kinds((*inputs, targets)) != _kinds(company):
                return  # the caller made something else of the dataset's examples: a batch of two will come
            pairs = zip((*inputs, targets), company, strict=True)
            *joined, targets = (torch.cat([each, other]) for each, other in pairs)
            inputs = tuple(joined)
        few = slice(0, selfcheck.EXAMPLES)
        self._layout = selfcheck.chosen_layout(
            self.model, self._loss, tuple(each[few] for each in inputs), targets[few]
        )

    def _check_parameters(self) -> None:
        """Report parameters that somebody else changed since the last step: what they owe to the data is unknown."""
        if self._fingerprint == Fingerprint.of(self._parameters):
            return
        change = assumed("what the caller changed in the parameters between steps owes nothing to the data")
        if change not in self._assumptions:
            self._assumptions.append(change)
            warnings.warn(
                "the model's parameters were changed between two private steps: the guarantee now assumes that the "
                "change owes nothing to the private data (averages of weights do not; another optimizer's step does)",
                stacklevel=3,
            )

    def _note_losses(self, losses: Tensor) -> None:
        self._last_loss = float(losses.mean()) if len(losses) else self._last_loss
        lost = int((~torch.isfinite(losses)).sum()) if not math.isfinite(self._last_loss) else 0
        if lost and not all(bool(torch.isfinite(parameter).all()) for parameter in self._parameters):
            raise FloatingPointError(
                f"the parameters are not finite after {self.steps_done} steps: take a lower learning rate, or begin "
                "with smaller weights"
            )
        if lost:
            warnings.warn(
                f"{lost} of {len(losses)} examples have a loss that is not finite, and count as zero: look for "
                "missing values or a logarithm of zero",
                stacklevel=3,
            )

    # --------------------------------------------------------------------------------------------- save and resume

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the training to one file, whole or not at all, from which :meth:`resume` goes on.

        From then on each step is booked in a journal before its noise is drawn, so that a process that is killed leaves
        word of all that it may have released. A run has one journal, beside its first file; other files know the way
        there. Keep them together.

        Parameters
        ----------
        path : path
            The file.
        extra : state or None
            Whatever else the run needs, a scheduler's ``state_dict()`` for instance; :meth:`resume` returns it.

        Notes
        -----
        The noise generator is not saved: its state would let a reader of the file subtract the noise. A resumed run
        draws from a new stream.
        """
        if not self._processes.is_first:
            return
        self._files.begin(path)
        self._files.settle(self.steps_spent)
        state = {
            **self._files.references(path),
            "plan": repr(self.plan),
            "steps_done": self.steps_done,
            "steps_spent": self.steps_spent,
            "assumptions": [assumption.text for assumption in self._assumptions],
            "guarantee": self.guarantee.to_json(),
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "estimate": self._estimate.state(),
            "torch_generator": torch.get_rng_state(),
            "extra": extra,
        }
        checkpoint.write(path, state)

    def resume(self, path: str | os.PathLike[str]) -> Any:
        """Take up a training that :meth:`save` wrote, made with the same arguments; return its ``extra``.

        Steps that a killed process made after the file was written are lost, and spent: the journal counts them, the
        guarantee includes them, and as many fewer are left, so that the budget holds.
        """
        if self._has_begun:
            raise PlanError("resume a training before its first batch is drawn")
        state = checkpoint.read(path)
        if state["plan"] != repr(self.plan):
            raise ValueError(f"the file's training has another plan: {state['plan']}, and here {self.plan!r}")
        # what was spent comes first: whatever fails after that, no weights of the file are here without their price
        self.steps_spent = self._processes.agreed(self._spent(path, state))
        self.steps_done = state["steps_done"]
        self._assumptions = [assumed(text) for text in state["assumptions"]]
        self._source = self._new_source(f"make_private, resumed after {self.steps_spent} steps")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._estimate.load(state["estimate"])
        torch.set_rng_state(state["torch_generator"])
        self._fingerprint = Fingerprint.of(self._parameters)
        return state["extra"]

    def _spent(self, path: str | os.PathLike[str], state: dict[str, Any]) -> int:
        """Return the number of steps that a saved training has spent, and continue its journal."""
        spent: int = state["steps_spent"]
        if self._processes.is_first:
            spent = self._files.take_over(path, state["run"], state["journal"], spent)
        return min(spent, self.plan.steps)  # The journal may count steps ahead that were never made.

    def _book(self) -> None:
        """Count the step that is about to be released, on disk first if the run has files."""
        self._files.count(self.steps_spent + 1)
        self.steps_spent += 1

    # --------------------------------------------------------------------------------------------------- guarantees

    @property
    def guarantee(self) -> Guarantee:
        """What the steps made so far promise; before the first, what the whole training will."""
        guarantee = self._estimate.guarantee(self.steps_spent, self._delta)
        if self._n_is_public:
            guarantee = guarantee.assuming(assumed("the number of examples, from which the rate is made, is public"))
        return guarantee.assuming(self._source.assumption(), *self._assumptions)


def _tell_of_the_general_rule(layers: Sequence[nn.Module]) -> None:
    """Say in one line which layers have no rule of their own."""
    names = sorted({type(layer).__name__ for layer in layers if not has_rule(layer)})
    if names:
        warnings.warn(f"no rule for {', '.join(names)}: gradients by torch.func.vmap, right and slow", stacklevel=4)


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the model without its wrapper for several processes."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _checked_processes(plan: GradientPlan | RecursivePlan) -> Processes:
    """Return the processes that train together; only Poisson batches are those of their shares."""
    processes = Processes.joined()
    if processes.size > 1 and not isinstance(plan.sampler, Poisson):
        raise ValueError(f"several processes draw Poisson batches, each its share; {plan.sampler!r} cannot be shared")
    return processes


def _kinds(batch: Sequence[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """Return what examples have in common: shapes and types."""
    return [(each.shape[1:], each.dtype) for each in batch]
