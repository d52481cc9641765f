"""A relay: the state of a descent travels from owner to owner, and only the last state is published.

There is no server. Each owner takes noisy steps on its own rows and hands the state to the next one. After every turn,
all parties compare which of them are left, so that all know whose turn counts and who holds the newest state. If a
holder fails, the state before its turn is still with the owner who handed it over, and goes to the next one from
there. The relay goes on only while more than half of the parties are left, so at most one state is ever published.

Nobody sends a state before its own noise is in it: every message is packed from the result of a whole turn.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.multiparty.transport.errors import NetworkError
from privet.multiparty.transport.session import Session
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.hidden_steps import rounding_of
from privet.solvers.base.interface import Problem, Progress, Release, Run
from privet.solvers.projected_sgd import HiddenSteps, check_last_iterate

State = NDArray[np.float64]

_LOT = 32  # bytes of a lot
_REPORT = struct.Struct("<IIB")  # round, parties that are lost as bits, whether the sender has the state of this round
_STAMP = struct.Struct("<32sI")  # what the parties agreed on, and the round
_RADIUS_SLACK = 1 + 1e-12  # A projected state may be longer than the radius by rounding errors.
_READY = b"the relay is ready to begin"
_BOOKED = b"its budget is booked here"


class RelayError(NetworkError):
    """A relay ended without a published state."""


class Owner:
    """The steps of one owner on its own rows.

    Parameters
    ----------
    plan : RelayPlan
    index : int
        The owner's position among the parties.
    problem : Problem
        Its rows.
    source : NoiseSource
        Where the order of the rows and the noise come from. No other owner may have the same one.
    """

    def __init__(self, plan: RelayPlan, index: int, problem: Problem, source: NoiseSource) -> None:
        local = plan.local_plan(index)
        check_last_iterate(problem, local)
        self._rounding = rounding_of([problem], plan.plan, sum(plan.counts))
        run = Run(local, source, before_training=None)
        self._steps, self._length = HiddenSteps(problem, run, self._rounding), plan.steps(index)

    def turn(self, state: State) -> State:
        """Return the state after the steps of one turn."""
        return self._steps.take(state, self._length)

    def accepts(self, state: State) -> bool:
        """Whether a state is one from which rounding errors of steps are bounded."""
        return float(np.linalg.norm(state)) <= self._rounding.radius * _RADIUS_SLACK


async def draw_lots(session: Session, digest: str) -> tuple[int, ...]:
    """Return all parties in a uniformly random order that no party could choose.

    Each party commits to a random number before it sees those of the others, and then reveals it. The order is a
    function of all of them, so it is uniformly random if one of them is. A party may still stop the study when it has
    seen the order.
    """
    own = _sha256(NoiseSource(purpose="lot").permutation(64).tobytes())  # a permutation of 64 has 295 random bits
    commitments = await session.exchange(_commitment(digest, session.index, own))
    revealed = await session.exchange(own)
    for index, (commitment, secret) in enumerate(zip(commitments, revealed, strict=True)):
        if len(secret) != _LOT or _commitment(digest, index, secret) != commitment:
            cause = f"party {index} drew one lot and showed another. Nothing was released."
            await session.stop(cause)
            raise RelayError(cause)
    return order_of(revealed)


def order_of(lots: Sequence[bytes]) -> tuple[int, ...]:
    """Return the order of the parties that follows from all of their lots."""
    seed = _sha256(b"privet order by lot", *lots)
    return tuple(sorted(range(len(lots)), key=lambda index: _sha256(seed, index.to_bytes(4, "big"))))


def _commitment(digest: str, index: int, secret: bytes) -> bytes:
    return _sha256(f"privet lot {digest} {index} ".encode(), secret)


def _sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


async def run_relay(
    session: Session,
    plan: RelayPlan,
    owner: Owner | None,
    start: State,
    *,
    names: Sequence[str],
    agreed: bytes,
    before_release: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> Release:
    """Take part in a relay, and return the published state with the guarantee of what ran.

    Parameters
    ----------
    session : Session
        The connection with the other parties.
    plan : RelayPlan
        The same for all parties.
    owner : Owner or None
        This party's steps, or None if it brings no rows.
    start : array
        The first state.
    names : sequence of str
        The parties' names, for the guarantee.
    agreed : bytes
        The SHA-256 of what all parties agreed on. Every state carries it.
    before_release : callable or None
        Called after all parties are ready, and before any state is handed over. If it raises at any party, no state is
        handed over.
    progress : callable or None
        Called with the number of turns done and planned.
    """
    await session.exchange(_READY)
    if before_release is not None:
        before_release()
    await session.exchange(_BOOKED)
    if plan.can_skip:
        session.tolerate_losses()
    course = _Course(session, plan, owner, start, names, agreed)
    for done, index in enumerate(plan.turns, start=1):
        await course.take_turn(index)
        if progress is not None:
            progress(done, len(plan.turns))
    state = await course.publish()
    trace = {
        "steps": sum(plan.steps(index) for index in course.turns),
        "noise_std": plan.plan.noise_std / plan.batch,
        "order": list(plan.order),
        "skipped": [index for index in range(session.parties) if index not in course.left],
    }
    return Release(state, plan.guarantee(course.turns, names), trace)


class _Course:
    """The course of a relay, as one party sees it. All parties that are left see the same.

    Attributes
    ----------
    turns : list of int
        The owners whose steps are in the newest state, in order. The last one of them that is left holds this state.
    left : list of int
        The parties that are left, as all of them agreed last. What follows depends on this list only, because a party
        may notice earlier than another one that somebody is lost.
    """

    def __init__(
        self,
        session: Session,
        plan: RelayPlan,
        owner: Owner | None,
        start: State,
        names: Sequence[str],
        agreed: bytes,
    ) -> None:
        self._session, self._owner, self._start = session, owner, start
        self._names, self._agreed, self._can_skip = names, agreed, plan.can_skip
        self._own = start  # the state after this party's last turn
        self._round = 0
        self.turns: list[int] = []
        self.left = session.left

    async def take_turn(self, index: int) -> None:
        """Let an owner take its turn, if it is left. If the holder of the state is lost, an earlier one hands over."""
        me = self._session.index
        while index in self.left:
            holder = self._holder()
            self._round += 1
            if holder == me != index:
                self._session.send(index, self._packed())
            received = await self._received(holder) if index == me else None
            if received is not None and self._owner is not None:
                # In a thread, so that this party notices meanwhile if others stop.
                self._own = await self._session.wait(asyncio.to_thread(self._owner.turn, received))
            reports = await self._agree(has_state=received is not None)
            if reports.get(index):
                self.turns.append(index)
                return

    async def publish(self) -> State:
        """Let the holder of the newest state send it to all parties."""
        while (holder := self._holder()) is not None:
            self._round += 1
            mine = holder == self._session.index
            messages = await self._session.exchange(self._packed() if mine else b"")
            state = self._own if mine else await self._unpacked(holder, messages[holder] or None)
            if all((await self._agree(has_state=state is not None)).values()) and state is not None:
                return state
        raise RelayError("No owner of rows is left, so there is no state to publish.")

    def _holder(self) -> int | None:
        """Return who has the newest state. The turns of lost owners at the end are lost with them."""
        while self.turns and self.turns[-1] not in self.left:
            self.turns.pop()
        return self.turns[-1] if self.turns else None

    async def _received(self, holder: int | None) -> State | None:
        """Return the newest state for this party's turn, or None if its holder is lost."""
        if holder is None:
            return self._start
        if holder == self._session.index:
            return self._own
        return await self._unpacked(holder, await self._session.receive(holder))

    def _packed(self) -> bytes:
        return _STAMP.pack(self._agreed, self._round) + self._own.astype("<f8").tobytes()

    async def _unpacked(self, sender: int, message: bytes | None) -> State | None:
        """Return the state in a message. One that is damaged or not of this round counts as a failure of its sender."""
        if message is None:
            return None
        fault = self._fault(message)
        if fault:
            await self._fail(sender, f"sent a state that {fault}")
            return None
        return np.frombuffer(message, dtype="<f8", offset=_STAMP.size).reshape(self._start.shape).astype(np.float64)

    def _fault(self, message: bytes) -> str:
        """Return what is wrong with a message, without any number of the state."""
        expected = _STAMP.size + 8 * self._start.size
        if len(message) != expected:
            return f"has {len(message)} bytes instead of {expected}"
        agreed, number = _STAMP.unpack_from(message)
        if agreed != self._agreed:
            return "belongs to another study"
        if number != self._round:
            return f"belongs to round {number} instead of {self._round}"
        state = np.frombuffer(message, dtype="<f8", offset=_STAMP.size)
        if not np.isfinite(state).all() or (self._owner is not None and not self._owner.accepts(state)):
            return "has values that no turn can lead to"
        return ""

    async def _agree(self, has_state: bool) -> dict[int, bool]:
        """Wait until all that are left know who is left, and return for each whether it has the state of this round.

        A party that one of them has lost is left out by all. Otherwise two of them could hand over different states.
        All parties receive the same reports, so all of them find at the same time that these agree. (If a process ends
        between two of its reports, they do not. Then some parties are in other rounds than the rest, and fail.)
        """
        session = self._session
        while True:
            before = session.left
            lost = sum(1 << index for index in range(session.parties) if index not in before)
            messages = await session.exchange(_REPORT.pack(self._round, lost, has_state))
            reports = {index: self._report(messages[index]) for index in before}
            for index, report in reports.items():
                if report is None and index in session.left:
                    await self._fail(index, "is not in the same round as the others")
            known = [report for report in reports.values() if report is not None]
            for index in session.left:
                if any(bits >> index & 1 for bits, _ in known):
                    await self._fail(index, "is not connected with all others")
            self._check_majority()
            if len(known) == len(before) and all(bits == lost for bits, _ in known):
                self.left = before
                return {index: has for index, (_, has) in zip(before, known, strict=True)}

    def _report(self, message: bytes) -> tuple[int, bool] | None:
        """Return who is lost according to a report of this round, and whether its sender has the state."""
        if len(message) != _REPORT.size:
            return None
        number, lost, has_state = _REPORT.unpack(message)
        return (lost, bool(has_state)) if number == self._round else None

    async def _fail(self, index: int, what: str) -> None:
        """Go on without a party, or stop all if the study says so or if the party is this one."""
        cause = f"party {index} ({self._names[index]}) {what}"
        if self._can_skip and index != self._session.index:
            self._session.leave_out(index, cause)
            return
        await self._session.stop(cause)
        raise RelayError(cause)

    def _check_majority(self) -> None:
        lost = [index for index in range(self._session.parties) if index not in self._session.left]
        if 2 * len(lost) >= self._session.parties:
            causes = " ".join(self._session.loss(index) for index in lost)
            raise RelayError(
                f"{len(lost)} of {self._session.parties} parties are lost, and the relay goes on only with more than "
                f"half of them. Nothing was published. {causes}"
            )


def simulated_relay(
    plan: RelayPlan, problems: Sequence[Problem | None], sources: Sequence[NoiseSource]
) -> tuple[Release, list[State]]:
    """Run a relay in this process, for experiments and audits. Return the release and the state after every turn.

    ``sources`` has one source per party. The states are what the next owners would see, and must not be published.
    """
    owners: dict[int, Owner] = {}
    for index in plan.order:
        problem = problems[index]
        if problem is None:
            raise ValueError(f"The plan has a turn for party {index}, which has no rows here.")
        owners[index] = Owner(plan, index, problem, sources[index])
        state = problem.start()
    states: list[State] = []
    for index in plan.turns:
        state = owners[index].turn(state)
        states.append(state)
    return Release(state, plan.guarantee(plan.turns), {"steps": plan.plan.steps}), states
