"""The plan of a relay: whose turn it is when, with how much noise, and what each owner is promised towards whom.

"Privacy Amplification by Iteration" is about a model that travels from person to person. Each takes noisy steps on its
own records and passes the state on, and only the last state is published. docs/proofs.md, section 29, states what the
public learns about the records of an owner, and what those learn who hold the state on its way.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.checks import positive
from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.protocol.gradient import record_clip
from privet.plans import Descent, FixedOrder, GradientPlan
from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.privacy.budget import Budget
from privet.privacy.events import Event, GaussianRelease, LastIterate
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, assumed, enforced
from privet.privacy.iteration import last_iterate_mu
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import gradients_bounded_by

_RADIUS = 10.0  # weights of this norm should be within reach of the default step size


@dataclass(frozen=True)
class RelayPlan:
    """Everything that determines a relay: the owners and their order, their steps, and the noise of each step.

    Parameters
    ----------
    plan : GradientPlan
        The steps of all owners in all passes, of which only the last state is published.
    counts : tuple of int
        Number of rows of each party.
    order : tuple of int
        The parties with rows, in the order of their turns. It is the same in every pass.
    can_skip : bool
        Whether the relay goes on without an owner that fails. The promise then holds whoever is skipped.

    Formal guarantees
    -----------------
    :meth:`guarantee` for the public, who sees only the last state, and :meth:`next_holder_mu` for everybody else. Both
    rest on docs/proofs.md, section 29.
    """

    plan: GradientPlan
    counts: tuple[int, ...]
    order: tuple[int, ...]
    can_skip: bool = False

    @classmethod
    def for_budget(
        cls,
        problem: JointProblem,
        budget: Budget,
        *,
        order: Sequence[int],
        passes: int = 1,
        batch: int = 1,
        step_size: float | None = None,
        clip_norm: float | None = None,
        can_skip: bool = False,
    ) -> "RelayPlan":
        """Return the plan with the least noise for which the worst owner's promise is within ``budget``.

        The default step size is that of "Privacy Amplification by Iteration", Theorem 28, for weights within a ball of
        radius 10, but at most the size that contracts most. (The ball only determines the size: steps are not
        projected onto it.)
        """
        owners = tuple(index for index in order if problem.counts[index])
        for index in owners:
            if problem.counts[index] < batch:
                raise ValueError(
                    f"Party {index} has {problem.counts[index]} rows, but a step takes {batch}. Choose a smaller batch."
                )
        steps = {index: -(-problem.counts[index] // batch) for index in owners}
        whole = FixedOrder(sum(steps.values()) * batch, passes, batch, shuffled=True)
        # If all others are skipped, nothing but an owner's own steps hides its records.
        alone = FixedOrder(min(steps.values()) * batch, passes, batch, shuffled=True) if can_skip else whole
        clip = record_clip(problem, clip_norm)

        def calibrated(size: float, convexity: float) -> GradientPlan:
            descent = Descent(size, problem.smoothness, convexity)
            return GradientPlan.for_budget(budget, sampler=alone, clip_norm=clip, release="last", descent=descent)

        if step_size is None:
            # Steps that do not contract need the most noise, and the noise does not depend on their size.
            noise = calibrated(1 / problem.smoothness, 0.0).noise_std / batch
            length = whole.implied_steps * (clip**2 + problem.n_weights * noise**2)
            longest = 2 / (problem.smoothness + problem.regulariser.strong_convexity)
            step_size = min(2 * _RADIUS / math.sqrt(length), longest)
        plan = calibrated(positive("step_size", step_size), problem.regulariser.strong_convexity)
        return cls(replace(plan, sampler=whole, steps=whole.implied_steps), problem.counts, owners, can_skip)

    @property
    def passes(self) -> int:
        """Number of turns of each owner."""
        assert isinstance(self.plan.sampler, FixedOrder)
        return self.plan.sampler.passes

    @property
    def batch(self) -> int:
        """Number of rows per step."""
        assert isinstance(self.plan.sampler, FixedOrder)
        return self.plan.sampler.size

    @property
    def turns(self) -> tuple[int, ...]:
        """The owners in the order of all turns, if none is skipped."""
        return self.order * self.passes

    @property
    def delta(self) -> float:
        """The delta of all guarantees."""
        assert self.plan.delta is not None
        return self.plan.delta

    def steps(self, owner: int) -> int:
        """Return the number of steps of one turn of an owner."""
        return -(-self.counts[owner] // self.batch)

    def local_plan(self, owner: int) -> GradientPlan:
        """Return the plan of the steps of one owner, in all of its turns, in an order that it draws."""
        order = FixedOrder(self.counts[owner], self.passes, self.batch, shuffled=True)
        return replace(self.plan, sampler=order, steps=order.implied_steps)

    # -------------------------------------------------------------------------------------------------- who learns what

    def mu(self, owner: int, turns: Sequence[int], holders: Collection[int] = ()) -> float:
        """Return the mu of an owner's worst record, against some holders of the state together with the public.

        Parameters
        ----------
        owner : int
        turns : sequence of int
            The owners whose steps led to the published state, in order.
        holders : collection of int
            Other owners, who combine the states that they received and everything they know.

        Formal guarantees
        -----------------
        docs/proofs.md, section 29. Without ``holders`` this is the last iterate of all steps. Every state that a
        holder receives ends a part of the run, and the parts compose. Noise of steps between the owner's turn and the
        next holder hides the owner's record, earlier noise and that of the holders does not.
        """
        if not holders and tuple(turns) == self.turns:
            ends = np.cumsum([self.steps(each) for each in self.order])
            return float(self._event.place_mus()[ends[self.order.index(owner)] - 1])
        parts = [part for part in _parts(turns, set(holders)) if owner in part]
        return math.hypot(*(self._last_state_mu(owner, part) for part in parts)) * (1 + 1e-12)

    def worst_mu(self, owner: int) -> float:
        """Return the largest :meth:`mu` towards the public, whichever owners are skipped in whichever turns.

        It is that of an owner who is alone: steps of others only hide more.
        """
        if not self.can_skip:
            return self.mu(owner, self.turns)
        alone = replace(self._event, n=self.steps(owner) * self.batch)
        return alone.unsampled(self.plan.adjacency).mu

    @property
    def next_holder_mu(self) -> float:
        """The mu of the worst record of any owner, against all other owners together, whoever is skipped.

        "Privacy Amplification by Iteration", Lemma 27, once per pass: the last step of a turn is hidden by nothing.
        """
        visible = 2 / self.plan.noise_multiplier + self._event.rounding_mu()
        return visible * math.sqrt(self.passes) * (1 + 1e-9)  # as much as the analyses of hidden steps round up

    def _last_state_mu(self, owner: int, turns: Sequence[int]) -> float:
        """Return the mu of an owner's worst record if only the state after these turns is seen."""
        lengths = [self.steps(each) for each in turns]
        ends = np.cumsum(lengths)
        # The worst record is in the last step of a turn: all visits and payments for it may be moved to earlier steps.
        visits = np.array([end - 1 for end, each in zip(ends, turns, strict=True) if each == owner])
        shifts = np.zeros(ends[-1] - visits[0])  # Earlier steps hide nothing.
        shifts[visits - visits[0]] = 1.0
        noise = self.plan.noise_multiplier / 2  # A replaced record moves a step by twice the bound of its gradient.
        assert self.plan.descent is not None
        return last_iterate_mu(shifts, noise, self.plan.descent.contraction) + self._event.rounding_mu()

    @property
    def _event(self) -> LastIterate:
        event = self.plan.event
        assert isinstance(event, LastIterate)
        return event

    # --------------------------------------------------------------------------------------------------------- in words

    def guarantee(self, turns: Sequence[int] | None = None, names: Sequence[str] = ()) -> Guarantee:
        """Return the guarantee towards the public, which also says what holds towards the other owners.

        Parameters
        ----------
        turns : sequence of int or None
            The owners whose steps led to the published state, in order. None for what is promised before the run.
        names : sequence of str
            The parties' names. Without names, parties are shown as numbers.
        """
        if turns is None:
            mus = {owner: self.worst_mu(owner) for owner in self.order}
            nobody_is_skipped = not self.can_skip
        else:
            mus = {owner: self.mu(owner, turns) for owner in self.order if owner in turns}
            nobody_is_skipped = tuple(turns) == self.turns
        event: Event = self._event if nobody_is_skipped else GaussianRelease(max(mus.values()))
        return Guarantee.of(
            event,
            self.plan.adjacency,
            self.delta,
            released=self._released({owner: gdp_epsilon(mu, self.delta) for owner, mu in mus.items()}, names),
            assumptions=self._assumptions(),
        )

    def _released(self, epsilons: dict[int, float], names: Sequence[str]) -> str:
        shown = names or [f"party {index}" for index in range(len(self.counts))]
        each = ", ".join(f"{_upwards(epsilon)} for {shown[owner]}" for owner, epsilon in epsilons.items())
        handed = _upwards(gdp_epsilon(self.next_holder_mu, self.delta))
        return (
            f"the last state, to the public (epsilon of each owner's worst record: {each}). The state after each turn, "
            f"to the next owner only: epsilon {handed} for every record against all other owners together"
        )

    def _assumptions(self) -> tuple[Assumption, ...]:
        plan, descent = self.plan, self.plan.descent
        assert descent is not None
        visits = "once" if self.passes == 1 else f"{self.passes} times, in the same order,"
        conditions: tuple[Assumption, ...] = (
            gradients_bounded_by(plan.clip_norm),
            enforced(
                f"each owner visits its rows {visits} in a uniformly random order that it keeps secret, {self.batch} "
                f"per step, and adds Gaussian noise of standard deviation {plan.noise_std:.6g} to each sum (noise "
                f"multiplier {plan.noise_multiplier:.6g}), drawn exactly, on a public grid",
                detail=True,
            ),
            enforced(descent.in_words(), detail=True),
            assumed(
                "owners add the noise of their own steps and pass the state on to nobody but the next one. What holds "
                "against all other owners together does not need this. Each owner's number of rows is public"
            ),
        )
        if self.can_skip:
            conditions += (assumed("whether an owner fails and is skipped does not depend on anybody's rows"),)
        return (*conditions, NoiseSource().assumption())


def _parts(turns: Sequence[int], holders: set[int]) -> Iterator[list[int]]:
    """Yield consecutive turns between two states that are seen: those before a holder's turn, and the last one."""
    part: list[int] = []
    for owner in turns:
        if owner in holders and part:
            yield part
            part = []
        part.append(owner)
    if part:
        yield part


def _upwards(epsilon: float) -> str:
    """Return a positive number in four digits, rounded up."""
    digit = 10.0 ** (math.floor(math.log10(epsilon)) - 3) if epsilon > 0 else 1.0
    return f"{math.ceil(epsilon * (1 - 1e-12) / digit) * digit:.4g}"
