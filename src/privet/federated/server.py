"""The server of federated rounds: it samples clients, sums their clipped updates with noise, and updates the model.

The server does not know how clients are reached, so simulations and real deployments use the same object::

    while not server.is_done:
        chosen = server.sample()
        server.aggregate((client, ask(client, server.weights)) for client in chosen)
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.denoise import Denoiser
from privet.deprecation import renamed_argument
from privet.federated import saving
from privet.federated.averaging import Average, AverageWeight
from privet.federated.committee.plan import CommitteePlan, CommitteeStep
from privet.federated.plan import RoundsPlan, check_plan
from privet.federated.updates import Summation
from privet.networks import ParameterShapes, UpdateError, Vector, Weights, layer_denoiser
from privet.plans import PlanError, Step
from privet.privacy import Adjacency, Assumption, Guarantee, NoiseSource, Unit, enforced
from privet.privacy.ledger.spending import LedgerLike, RunBooking
from privet.run_files import RunFiles

Updates = Mapping[int, Any] | Iterable[tuple[int, Any]]
"""The answers of clients: a dictionary of parameters per client. A client without an answer has None, or no entry."""


class Server:
    """The global model and its rounds: Algorithm 1 of DP-Fed-LS, with a fixed divisor.

    Parameters
    ----------
    plan : GradientPlan or CommitteePlan
        A plan whose unit is a client, made by :func:`~privet.federated.client_plan`; or by
        :func:`~privet.federated.committee_plan`, if a committee of servers forms the sums.
    weights : dict of arrays
        The initial global model, which must not depend on the clients' data.
    n_clients : int
        The number of clients, which are numbered 0, ..., n_clients - 1.
    delta : float or None
        The delta of the guarantee; None uses that of the plan.
    denoiser : Denoiser or None
        Applied to each layer of the noisy mean. ``LaplacianSmoothing(sigma)`` turns DP-Fed into DP-Fed-LS.
    order : {"OIHW", "OIWH", "OHWI", "OWHI"}
        The order in which the denoiser reads the weights of a convolution.
    step_size : float or callable
        The global step size eta_g. A callable takes the number of completed rounds.
    average : callable or None
        Takes t and returns the weight a_t of the model after t rounds in :attr:`output`. None selects the last model.
    weighting : {"equal"}
        All clients have the same weight, however much data they have.
    random_state : int or None
        An integer makes the run repeatable. The guarantee then holds only while it is secret.
    assumptions : sequence of Assumption
        Further assumptions of the guarantee.
    ledger : path, Ledger or None
        Where all rounds are booked before the first one. They stay booked if the run stops early, and are not booked
        again when it is resumed.
    seed : int or None
        Deprecated name of ``random_state``.

    Formal guarantees
    -----------------
    Each round accesses the clients through one noisy sum over the clients that the plan sampled. Each update is
    clipped here to ``plan.clip_norm``. The sum is divided by a constant that does not depend on who took part. (The
    paper divides by the number of sampled clients, which its analysis does not cover: docs/errata.md (k).) An
    update that is missing, non-finite or of the wrong shape counts as zero, which is within the bound. Denoising, step
    and average are post-processing. :attr:`guarantee` covers all rounds spent, including those of earlier processes.
    """

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset({"n_clients", "_step", "_booking"})
    """Who is there, who was drawn, and the random name of the run."""

    def __init__(
        self,
        plan: RoundsPlan,
        weights: Mapping[str, NDArray[Any]],
        n_clients: int,
        *,
        delta: float | None = None,
        denoiser: Denoiser | None = None,
        order: str = "OIHW",
        step_size: float | Callable[[int], float] = 1.0,
        average: AverageWeight | None = None,
        weighting: str = "equal",
        random_state: int | None = None,
        assumptions: Sequence[Assumption] = (),
        ledger: LedgerLike | None = None,
        seed: int | None = None,
    ) -> None:
        check_plan(plan)
        _check_weighting(weighting)
        self.plan, self.n_clients = plan, count("n_clients", n_clients)
        plan.sampler.check_n(self.n_clients)
        self.rounds_done = self.rounds_spent = 0
        self._layers = ParameterShapes.of(weights)
        self._vector = self._layers.vector(weights)
        self._summation = plan if isinstance(plan, CommitteePlan) else Summation(plan.clip_norm)
        self._summation.start_sum(self._layers.size)  # raises if the plan is for another model
        self._delta, self._denoiser = delta, layer_denoiser(denoiser, order)
        self._step_size = step_size if callable(step_size) else _constant(positive("step_size", step_size))
        self._average = None if average is None else Average(average)
        self._assumptions = tuple(assumptions)
        self._random_state = renamed_argument("Server", "seed", seed, "random_state", random_state)
        self._process = os.getpid()
        self._files = RunFiles(NoiseSource().below, repr(self.plan))
        self._booking = RunBooking("federated rounds", ledger)
        self._step: Step | CommitteeStep | None = None
        self._is_booked = False  # the round that a committee is asked to open
        self._begin("federated rounds")
        _ = self.guarantee  # raises before anything is spent if delta is invalid
        if self._average is not None:
            self._average.add(self._vector, 0)

    def _begin(self, purpose: str) -> None:
        """Start the remaining rounds with a new stream of randomness."""
        self._source = NoiseSource(self._random_state, purpose=purpose)
        left = self.plan.steps - self.rounds_spent
        self._steps: Iterator[Step | CommitteeStep] = iter(())
        if left:
            self._steps = self.plan.truncated(left).run(self.n_clients, self._source)

    # ------------------------------------------------------------------------------------------------------- rounds

    @property
    def is_done(self) -> bool:
        """Whether all planned rounds are spent."""
        return self.rounds_spent >= self.plan.steps

    @property
    def weights(self) -> Weights:
        """A copy of the global model, which is sent to clients."""
        return self._layers.split(self._vector.copy())

    @property
    def output(self) -> Weights:
        """The model to release: the weighted average of all global models, or the last one."""
        return self.weights if self._average is None else self._layers.split(self._average.output())

    def sample(self) -> NDArray[np.int64]:
        """Return the clients of the next round, possibly none. Keep them confidential."""
        if self._step is not None:
            raise PlanError(
                "sample() was called twice in one round. Call aggregate() first, with no updates if none arrived."
            )
        if not self.is_done:
            self._booking.ensure(lambda: self._guaranteed(self.plan))
        self._step = next(self._steps, None)
        if self._step is None:
            raise PlanError(f"All {self.plan.steps} rounds of the plan are spent. Make a new plan to continue.")
        return np.arange(self.n_clients)[self._step.batch]

    def aggregate(self, updates: Updates) -> None:
        """Complete the round: sum the updates of the sampled clients, add noise, and update the model.

        Updates are processed one at a time, so an iterator of pairs needs the memory of one update. Only the first
        answer of each sampled client counts. A warning to the server's operator lists what was ignored.

        If iterating over the updates raises an error, nothing is released or spent, and the round remains open for the
        same clients. If new clients were sampled until a round succeeds, the clients that take part would be those with
        which a round succeeds, and not a random sample.
        """
        step = self._sampled()
        total = self._sum(np.arange(self.n_clients)[step.batch], updates)
        self._step = None
        self._book()  # from here on the noisy sum may have been seen, whatever fails
        self._advance(step.noisy(total))

    def aggregate_opened(self, opened: Callable[[int], NDArray[np.int64]]) -> None:
        """Complete the round with the noisy sum that a committee opened, on the lattice of the plan.

        Parameters
        ----------
        opened : callable
            Takes the number of completed rounds and returns the sum. Called after the round is counted. If it fails,
            call this method again. Newly sampled clients would join those whose shares the committee may hold.
        """
        step = self._sampled()
        if not isinstance(step, CommitteeStep):
            raise TypeError("Only the plan of a committee has sums that servers open. Make it with committee_plan().")
        if not self._is_booked:
            self._book()
            self._is_booked = True
        total = opened(self.rounds_done)
        self._step, self._is_booked = None, False
        self._advance(step.opened(total))

    def _sampled(self) -> Step | CommitteeStep:
        """Return the round whose clients were sampled."""
        if self._step is None:
            raise PlanError("aggregate() must be called once after each sample().")
        if os.getpid() != self._process:
            raise PlanError(
                "The server was copied into a forked process, where rounds could be released twice but counted once. "
                "Create the server in the process that uses it."
            )
        return self._step

    def _advance(self, noisy_sum: Vector) -> None:
        """Divide and denoise a noisy sum, and add the result to the model."""
        divisor = self.plan.divisor(self.n_clients)
        mean = self._layers.split(noisy_sum / divisor)
        if self._denoiser is not None:
            noise_std = self.plan.noise_std / divisor
            mean = {name: self._denoiser(layer, noise_std) for name, layer in mean.items()}
        self._vector = self._vector + float(self._step_size(self.rounds_done)) * self._layers.vector(mean)
        self.rounds_done += 1
        if self._average is not None:
            self._average.add(self._vector, self.rounds_done)

    def _sum(self, chosen: NDArray[np.int64], updates: Updates) -> NDArray[Any]:
        """Return the sum of the clipped updates of the chosen clients, counting each client at most once."""
        found, waiting = self._summation.start_sum(self._layers.size), {int(client) for client in chosen}
        faults: Counter[str] = Counter()
        for client, update in updates.items() if isinstance(updates, Mapping) else updates:
            if client not in waiting:
                faults["sent twice or by a client that was not sampled"] += 1
                continue
            waiting.remove(client)
            try:
                found.add(self._checked(update))
            except UpdateError as error:
                faults[str(error)] += 1
        faults["no answer"] += len(waiting)
        _warn_of(faults)
        return found.total()

    def _checked(self, update: Any) -> Vector:
        if update is None:
            raise UpdateError("no answer")
        return self._layers.vector(update)

    # --------------------------------------------------------------------------------------------------- guarantees

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for each client over the rounds spent so far; before the first round, over the whole run."""
        return self._guaranteed(self._planned)

    def _guaranteed(self, plan: RoundsPlan) -> Guarantee:
        how = self._summation
        return self._stated(plan.guarantee(self._delta, bound=how.bound, released=how.released, unit=Unit.CLIENT))

    @property
    def outsiders(self) -> Guarantee | None:
        """With a committee: the guarantee towards those who see only the global models. None without one."""
        planned = self._planned
        return self._stated(planned.for_outsiders(self._delta)) if isinstance(planned, CommitteePlan) else None

    @property
    def _planned(self) -> RoundsPlan:
        """The plan of the rounds spent so far; before the first round, of the whole run."""
        return self.plan.truncated(self.rounds_spent or self.plan.steps)

    def _stated(self, promised: Guarantee) -> Guarantee:
        divisor = self.plan.divisor(self.n_clients)
        fixed = enforced(f"sums are divided by the constant {divisor:.6g}, whoever takes part")
        return promised.assuming(fixed, self._source.assumption(), *self._assumptions)

    # --------------------------------------------------------------------------------------------- save and resume

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the server's state atomically to a file, from which :meth:`resume` continues.

        From then on, every round is recorded in a journal next to the file before its noise is drawn. ``extra`` is
        JSON data of the caller that is saved as well. The state of the noise generator is not saved.
        """
        saving.save(self, path, extra)

    def resume(self, path: str | os.PathLike[str]) -> Any:
        """Continue a run that :meth:`save` wrote, and return its ``extra``. The server must have the same arguments.

        Rounds that a killed process made after the file was written are lost but spent. The journal counts them, the
        guarantee includes them, and correspondingly fewer rounds remain, so the budget holds.
        """
        return saving.resume(self, path)

    def close(self) -> None:
        """Release the run's files, so that another process can continue the run."""
        self._files.close()

    @property
    def _public_n(self) -> int | None:
        """The number of clients, or None if it is private because a client may be added or removed."""
        return None if self.plan.adjacency is Adjacency.ADD_OR_REMOVE else self.n_clients

    def _book(self) -> None:
        """Count the round that is about to be released, first in the journal if the run has files."""
        self._files.count(self.rounds_spent + 1)
        self.rounds_spent += 1


def _constant(value: float) -> Callable[[int], float]:
    return lambda rounds_done: value


def _check_weighting(weighting: str) -> None:
    if weighting != "equal":
        raise ValueError(
            f'weighting must be "equal", got {weighting!r}. Weights by number of examples would let a client with much '
            "data change the sum by more than the clipping norm, and their total is private, so the noise would not "
            "cover them."
        )


def _warn_of(faults: Counter[str]) -> None:
    found = {cause: number for cause, number in faults.items() if number}
    if found:
        causes = "; ".join(f"{cause} ({number})" for cause, number in found.items())
        warnings.warn(f"Some updates count as zero in this round: {causes}.", stacklevel=4)
