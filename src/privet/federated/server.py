"""The server of federated rounds: it samples clients, adds up their clipped updates with noise, and steps.

It knows nothing of how clients are reached, so that a simulation and a real deployment drive the same object:

    while not server.is_done:
        chosen = server.sample()
        server.aggregate((client, ask(client, server.weights)) for client in chosen)
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.denoise import Denoiser
from privet.federated import saving
from privet.federated.averaging import Average, AverageWeight
from privet.federated.parameters import check_order, clipped, denoised
from privet.federated.plan import check_plan
from privet.networks import ParameterShapes, UpdateError, Vector, Weights
from privet.plans import GradientPlan, PlanError, Step
from privet.privacy import Assumption, Guarantee, NoiseSource, Unit, assumed, enforced
from privet.run_files import RunFiles

Updates = Mapping[int, Any] | Iterable[tuple[int, Any]]
"""What clients answered: a dictionary of layers a client; None, or no word of the client, where there is no answer."""


class Server:
    """The global model and all that is done to it: Algorithm 1 of DP-Fed-LS, with a fixed divisor.

    Parameters
    ----------
    plan : GradientPlan
        Of clients: see :func:`~privet.federated.client_plan`.
    weights : dict of arrays
        The first global model, which owes nothing to the clients' data.
    n_clients : int
        How many clients there are to sample from; clients are called 0, ..., n_clients - 1.
    delta : float
        Of the guarantee.
    denoiser : Denoiser or None
        Applied to each layer of the noisy mean: ``LaplacianSmoothing(sigma)`` makes DP-Fed DP-Fed-LS.
    order : {"OIHW", "OIWH", "OHWI", "OWHI"}
        In which order the denoiser reads the weights of a convolution.
    step_size : float or callable
        The global step eta_g; a callable is given the number of rounds done.
    average : callable or None
        The weight a_t of the model after t rounds in :attr:`output`; None puts out the last model.
    weighting : {"equal"}
        Clients weigh the same, however much data they have.
    seed : int or None
        As everywhere: a number makes a run repeatable, and the guarantee then needs it secret.
    assumptions : sequence of Assumption
        What else the guarantee rests on.

    Formal guarantees
    -----------------
    A round sees the clients through one sum over those that the plan drew, each clipped here to ``plan.clip_norm``,
    with the plan's noise; it is divided by a constant that owes nothing to who took part (errata (k): the paper
    divides by the number of clients drawn, which its analysis does not cover). An update that is missing, not finite
    or of other shapes counts as zero, which is within the bound. Denoising, step and average are post-processing.
    :attr:`guarantee` covers all rounds spent, in whatever process.
    """

    def __init__(
        self,
        plan: GradientPlan,
        weights: Mapping[str, NDArray[Any]],
        n_clients: int,
        *,
        delta: float,
        denoiser: Denoiser | None = None,
        order: str = "OIHW",
        step_size: float | Callable[[int], float] = 1.0,
        average: AverageWeight | None = None,
        weighting: str = "equal",
        seed: int | None = None,
        assumptions: Sequence[Assumption] = (),
    ) -> None:
        check_plan(plan)
        _check_weighting(weighting)
        self.plan, self.n_clients = plan, count("n_clients", n_clients)
        plan.sampler.check_n(self.n_clients)
        self.rounds_done = self.rounds_spent = 0
        self._layers = ParameterShapes.of(weights)
        self._vector = self._layers.vector(weights)
        self._delta, self._denoiser, self._order = delta, denoiser, check_order(order)
        self._step_size = step_size if callable(step_size) else _constant(positive("step_size", step_size))
        self._average = None if average is None else Average(average)
        self._assumptions = tuple(assumptions)
        self._seed = seed
        self._process = os.getpid()
        self._files = RunFiles(f"{NoiseSource().below(1 << 32):08x}")
        self._step: Step | None = None
        self._begin("federated rounds")
        _ = self.guarantee  # raises before anything is spent, if the delta does not do
        if self._average is not None:
            self._average.add(self._vector, 0)

    def _begin(self, purpose: str) -> None:
        """Draw from a new stream the rounds that are left."""
        self._source = NoiseSource(self._seed, purpose=purpose)
        left = self.plan.steps - self.rounds_spent
        self._steps = replace(self.plan, steps=left).run(self.n_clients, self._source) if left else iter(())

    # ------------------------------------------------------------------------------------------------------- rounds

    @property
    def is_done(self) -> bool:
        """Whether all planned rounds are spent."""
        return self.rounds_spent >= self.plan.steps

    @property
    def weights(self) -> Weights:
        """The global model, a copy: what clients are sent."""
        return self._layers.split(self._vector.copy())

    @property
    def output(self) -> Weights:
        """The model to put out: the weighted average of all, or the last."""
        return self.weights if self._average is None else self._layers.split(self._average.output())

    def sample(self) -> NDArray[np.int64]:
        """Return the clients of the next round, maybe none. Who they are is not to be published."""
        if self._step is not None:
            raise PlanError("the clients of this round are drawn: aggregate their updates first, none if none came")
        self._step = next(self._steps, None)
        if self._step is None:
            raise PlanError(f"the plan accounts for {self.plan.steps} rounds, and they are spent: make a new plan")
        return np.arange(self.n_clients)[self._step.batch]

    def aggregate(self, updates: Updates) -> None:
        """End the round: add up what the sampled clients answered, with noise, and step.

        Updates are taken one at a time, so that an iterator of pairs needs the memory of one. The first answer of a
        sampled client counts, and nothing of anybody else. What is left out is told in a warning, which is for the
        server's operator.

        If the updates break off with an error, nothing is released or spent, and the round stays open to the clients
        that were drawn for it: if others could be drawn until a round succeeds, the clients of a round would be those
        with which it does, and not a sample of all.
        """
        step = self._step
        if step is None:
            raise PlanError("aggregate() ends a round that sample() began, once")
        if os.getpid() != self._process:
            raise PlanError("a server in a forked process would count a round once and make it twice")
        total = self._sum(np.arange(self.n_clients)[step.batch], updates)
        self._step = None
        self._book()  # whatever fails from here on: the noisy sum may have been seen
        divisor = self.plan.divisor(self.n_clients)
        mean = self._layers.split(step.noisy(total) / divisor)
        if self._denoiser is not None:
            mean = denoised(mean, self._denoiser, self.plan.noise_std / divisor, self._order)
        self._vector = self._vector + float(self._step_size(self.rounds_done)) * self._layers.vector(mean)
        self.rounds_done += 1
        if self._average is not None:
            self._average.add(self._vector, self.rounds_done)

    def _sum(self, chosen: NDArray[np.int64], updates: Updates) -> Vector:
        """Return the sum of clipped updates of the chosen clients, each at most once."""
        total, waiting = np.zeros(self._layers.size), {int(client) for client in chosen}
        faults: Counter[str] = Counter()
        for client, update in updates.items() if isinstance(updates, Mapping) else updates:
            if client not in waiting:
                faults["sent twice, or by a client that was not sampled"] += 1
                continue
            waiting.remove(client)
            try:
                total += self._bounded(update)
            except UpdateError as error:
                faults[str(error)] += 1
        faults["no answer"] += len(waiting)
        _tell(faults)
        return total

    def _bounded(self, update: Any) -> Vector:
        if update is None:
            raise UpdateError("no answer")
        return clipped(self._layers.vector(update), self.plan.clip_norm)

    # --------------------------------------------------------------------------------------------------- guarantees

    @property
    def guarantee(self) -> Guarantee:
        """What the rounds spent so far promise each client; before the first, what the whole run will."""
        made = replace(self.plan, steps=self.rounds_spent or self.plan.steps)
        promised = made.guarantee(
            self._delta,
            bound=enforced(
                f"the server clips each client's update to l2 norm {self.plan.clip_norm:.6g}, all layers together; one "
                "that is missing, not finite or of other shapes counts as zero"
            ),
            released="the global model of every round, and with it all averages of them",
            unit=Unit.CLIENT,
        )
        fixed = enforced(
            f"sums are divided by {self.plan.divisor(self.n_clients):.6g}, whoever took part or failed to answer"
        )
        return promised.assuming(fixed, self._source.assumption(), *self._assumptions)

    # --------------------------------------------------------------------------------------------- save and resume

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the server to one file, whole or not at all, from which :meth:`resume` goes on.

        From then on every round is booked in a journal beside the file before its noise is drawn. ``extra`` is
        whatever else the run needs, as JSON. The noise generator is not saved.
        """
        self._files.begin(path)
        self._files.count(self.rounds_spent)
        average = self._average
        state = {
            "plan": repr(self.plan),
            "n_clients": self.n_clients,
            "shapes": {name: list(shape) for name, shape in self._layers.shapes.items()},
            "rounds_done": self.rounds_done,
            "rounds_spent": self.rounds_spent,
            "average": None if average is None else average.total,
            "assumed": [each.text for each in self.guarantee.assumptions if not each.is_enforced],
            "guarantee": self.guarantee.to_dict(),
            "extra": extra,
        }
        arrays = {"model": self._vector}
        if average is not None and average.mean is not None:
            arrays["average"] = average.mean
        saving.write(path, self._files, state, arrays)

    def resume(self, path: str | os.PathLike[str]) -> Any:
        """Take up a run that :meth:`save` wrote, made with the same arguments; return its ``extra``.

        Rounds that a killed process made after the file was written are lost, and spent: the journal counts them, the
        guarantee includes them, and as many fewer are left, so that the budget holds.
        """
        if self.rounds_spent or self._step is not None:
            raise PlanError("resume a server before its first round")
        saved = saving.read(path)
        state = saved.state
        shapes = {name: tuple(shape) for name, shape in state["shapes"].items()}
        for what, there, here in (
            ("plan", state["plan"], repr(self.plan)),
            ("number of clients", state["n_clients"], self.n_clients),
            ("model", shapes, self._layers.shapes),
            ("output rule", state["average"] is not None, self._average is not None),
        ):
            if there != here:
                raise ValueError(f"the file's run has another {what}: {there}, and here {here}")
        if any(array.shape != self._vector.shape for array in saved.arrays.values()):
            raise ValueError(f"{path} is damaged: its model has another number of parameters than its layers")
        counted = self._files.take_over(path, saved.run, saved.journal, int(state["rounds_spent"]))
        self.rounds_spent = min(counted, self.plan.steps)
        self.rounds_done = state["rounds_done"]
        self._vector = saved.arrays["model"]
        if self._average is not None:
            self._average.total, self._average.mean = state["average"], saved.arrays["average"]
        self._begin(f"federated rounds, resumed after {self.rounds_spent}")
        known = {each.text for each in self.guarantee.assumptions}
        self._assumptions += tuple(assumed(text) for text in state["assumed"] if text not in known)
        return state["extra"]

    def close(self) -> None:
        """Let another process have the run's files."""
        self._files.close()

    def _book(self) -> None:
        """Count the round that is about to be released, on disk first if the run has files."""
        self._files.count(self.rounds_spent + 1)
        self.rounds_spent += 1


def _constant(value: float) -> Callable[[int], float]:
    return lambda rounds_done: value


def _check_weighting(weighting: str) -> None:
    if weighting != "equal":
        raise ValueError(
            f'weighting must be "equal", got {weighting!r}: weights by number of examples let a client with much data '
            "move the sum by more than the clip, and their total is itself private, so the noise would not cover it"
        )


def _tell(faults: Counter[str]) -> None:
    found = {cause: number for cause, number in faults.items() if number}
    if found:
        causes = "; ".join(f"{number} {cause}" for cause, number in found.items())
        warnings.warn(f"updates that count as zero in this round: {causes}", stacklevel=4)
