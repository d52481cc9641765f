"""What all but one server and one owner of a committee see of a release: the best statistic of their view.

Two servers run the real protocol with ``trust = "one"``; their messages are passed on in this process. The coalition
consists of one server and one owner. It takes everything that it knows out of the other server's message, its own
noise included: what is left is the vector of the honest owner with the noise of the honest server. Servers treat every
coordinate alike, so each coordinate of a long vector is a run of the release of one number.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from multiparty_scenarios import as_gaussian
from numpy.typing import NDArray

from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.protocol.sharing import Additive
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Reception
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy import Budget, Guarantee, NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1] / "multiparty"))
from coalition import Linked

HONEST, OTHER = 0, 1  # the servers, and the owners: owner 1 is honest
DIGEST, ROWS = bytes(32), 5


@dataclass
class Seen:
    """What the coalition sees: the honest server's messages, and its own shares of the honest owner's vectors."""

    sent: list[NDArray[Any]] = field(default_factory=list)
    shares: list[NDArray[Any]] = field(default_factory=list)
    known: list[NDArray[Any]] = field(default_factory=list)  # what its own owner sent to the honest server
    others: list[NDArray[Any]] = field(default_factory=list)  # what it computes from further messages
    hidden: list[bytes] = field(default_factory=list)  # the honest owner's shares for the honest server, for bugs

    def statistics(self, is_repeated: bool = False) -> NDArray[Any]:
        """Return the honest owner's vectors with the honest server's noise, and whatever else could tell them apart."""
        noisy: list[NDArray[Any]] = []
        for place, message in enumerate(self.sent):
            if not any((message == earlier).all() for earlier in self.sent[:place]):  # else it says nothing new
                noisy.append((message + self.shares[place] - self.known[place]).astype(np.int64))
        if is_repeated:  # Both are about the same vector.
            return np.mean(noisy, axis=0)[:, None]
        columns = [noisy[0], *(each.astype(np.int64) for each in self.others)]
        if len(noisy) > 1:
            apart = (self.shares[0] - self.shares[1]).astype(np.int64)
            columns += [noisy[0] - noisy[1], np.where(np.abs(apart) < 1 << 31, apart, 0)]
        return np.stack(columns, axis=1).astype(float)


def plan_of(budget: Budget, releases: int = 1) -> AggregationPlan:
    """Return the plan of one number per release."""
    return AggregationPlan.for_budget(budget, dimension=1, steps=releases, sensitivity=1.0, largest=100.0)


def claimed(plan: AggregationPlan) -> Guarantee:
    """Return the claim of a plan in the form that audits compare with."""
    return as_gaussian(plan.guarantee())


def released(
    plan: AggregationPlan,
    value: int,
    source: NoiseSource,
    runs: int,
    *,
    restarts: bool = False,
    prepared: Callable[[ServerAggregator, Seen], None] = lambda server, seen: None,
) -> Seen:
    """Return what the coalition sees if every number of the honest owner is ``value`` in the first release, else 0.

    With ``restarts``, both servers run the first release again with the folders that they have.
    """
    plan, sharing = replace(plan, dimension=runs), Additive(2, runs)
    seen = Seen()
    sources = [NoiseSource(source.below(10**15)) for _ in range(4)]
    states = [ServerState(None, "study") for _ in range(2)]

    async def life(number_of_releases: int) -> None:
        rounds: dict[int, Any] = {}
        servers, receptions = [], []
        for index in range(2):
            reception = Reception(DIGEST, 2, None)
            server = ServerAggregator(
                plan,
                Committee("one", 2),
                sharing,
                Linked(index, 2, rounds),  # type: ignore[arg-type]
                reception,
                states[index],
                sources[index],
                rows_limit=ROWS,
            )
            prepared(server, seen)
            servers.append(server)
            receptions.append(reception)

        for number in range(number_of_releases):
            calls = []
            for owner in range(2):
                vector = np.full(runs, value if owner == OTHER and not number else 0)
                shares = sharing.split(vector, sources[2 + owner], first=owner)
                attempt = int.from_bytes(sources[2 + owner].key()[:8], "little")
                (seen.shares if owner else seen.known).append(sharing.read(shares[1 if owner else 0]))
                if owner:
                    seen.hidden.append(shares[0])
                handed = [Contribution(DIGEST, number, ROWS, False, share, attempt) for share in shares]
                calls += [
                    asyncio.create_task(each.receive(owner, given))
                    for each, given in zip(receptions, handed, strict=True)
                ]
            await asyncio.gather(*(server.noisy_sum(None) for server in servers))  # type: ignore[arg-type]
            for call in calls:
                call.cancel()  # After a restart, nobody asks for the shares again.
        messages = [rounds[number][HONEST].result() for number in sorted(rounds)]
        seen.sent += [sharing.read(each) for each in messages if len(each) == sharing.longest]

    for _ in range(1 + restarts):
        asyncio.run(life(1 if restarts else plan.steps))
    return seen


def outputs(plan: AggregationPlan, source: NoiseSource, runs: int, *, differs: bool, **options: Any) -> NDArray[Any]:
    """Return the statistics of the coalition, one row per run, in one of two worlds."""
    seen = released(plan, int(plan.shift) if differs else 0, source, runs, **options)
    return seen.statistics(options.get("restarts", False))
