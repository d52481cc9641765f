"""Owners hand in shares to a committee of servers, which opens nothing but the noisy sum.

Two kinds of trust (docs/proofs.md, "A committee of servers"):

- ``majority``: Shamir shares. All servers follow the protocol, and fewer than half of them pool what they see. They
  draw the noise jointly, so its size is that of one central mechanism.
- ``one``: additive shares. Every server adds the noise of the whole plan to its own share. As long as one server is
  honest, everything that all others see is a sum with that server's noise, whatever they do.

A release has two phases. First every server stores its share of the noisy sum, then all send these shares to each
other. A server that restarts sends the bytes that it stored: new noise on the same sum would be a second release.
"""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Aggregator, JointProblem, Summand, joint_noise, prime_above
from privet.multiparty.protocol.server_state import Masked, ServerState
from privet.multiparty.protocol.sharing import CHECKS, Additive, Shamir, Share, ShareError, Sharing
from privet.multiparty.study import StudyError
from privet.multiparty.transport.hand_in import Contribution, HandInError, Reception, Servers
from privet.multiparty.transport.network import Session
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy.guarantees.guarantee import Assumption
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem

_STORED, _BOOKED = b"stored", b"booked"


def sharing_of(plan: AggregationPlan, trust: str, servers: int, owners: int) -> Sharing:
    """Return how the owners of a study split their vectors."""
    if trust == "one":
        return Additive(servers, plan.dimension)
    farthest = math.ceil(plan.largest * plan.scale) + owners + plan.law.reach  # 1 more per owner for rounding
    return Shamir(servers, plan.dimension, prime_above(2 * farthest + 1))


class CommitteeAggregator(Aggregator):
    """A sum over owners that a committee of servers forms. Both roles follow the same descent."""

    def __init__(self, plan: AggregationPlan, committee: Committee) -> None:
        super().__init__(plan)
        self.committee = committee
        self._rows = 0

    def rows_of(self, problem: JointProblem) -> int:
        """Return the number of rows of the owners who took part in the last release."""
        return self._rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of all servers together."""
        return self.plan.noise_std * self.committee.noise_factor()

    @property
    def _number(self) -> int:
        """The number of the release that is being made."""
        return self.plan.steps - self._left - 1

    def conditions(self) -> tuple[Assumption, ...]:
        """Return who must be honest."""
        return (self.committee.condition(),)

    @abstractmethod
    async def _opened(self, summand: Summand) -> NDArray[Any]:
        """Return the noisy sum on the lattice, as integers."""


class OwnerAggregator(CommitteeAggregator):
    """One owner, who hands in a share of its summand to each server.

    Parameters
    ----------
    plan, committee
        The same for all owners and servers.
    sharing : Sharing
        How vectors are split.
    servers : Servers
        The connections with the servers.
    problem : Problem
        The owner's rows.
    digest : bytes
        SHA-256 of the study.
    index : int
        Index of the owner.
    """

    def __init__(
        self,
        plan: AggregationPlan,
        committee: Committee,
        sharing: Sharing,
        servers: Servers,
        problem: Problem,
        digest: bytes,
        index: int,
        source: NoiseSource,
    ) -> None:
        super().__init__(plan, committee)
        self._sharing, self._servers, self._problem = sharing, servers, problem
        self._digest, self._index, self._source = digest, index, source

    async def hand_in(self, summand: Summand, *, waits: bool) -> list[bytes]:
        """Hand in one summand, and return the answers of the servers."""
        mine = self.plan.on_lattice(summand(self._problem))
        shares = self._sharing.split(mine, self._source, first=self._index)
        rows, number = self._problem.rows.n, max(self._number, 0)
        attempt = int.from_bytes(self._source.key()[:8], "little")
        return await self._servers.hand_in(
            [Contribution(self._digest, number, rows, waits, share, attempt) for share in shares]
        )

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        first, *others = await self.hand_in(summand, waits=True)
        if any(other != first for other in others):
            raise HandInError("The servers say that they opened different sums. At least one of them is wrong.")
        self._rows, total = read_answer(first, self.plan.dimension)
        return total


class ServerAggregator(CommitteeAggregator):
    """One server of the committee.

    Parameters
    ----------
    plan, committee, sharing
        The same for all owners and servers.
    session : Session
        The connection with the other servers.
    reception : Reception
        Receives the contributions of owners.
    state : ServerState
        What survives a restart.
    fewest, rows_limit : int
        The fewest owners whose sum is opened, and the most rows that an owner may bring.
    patience : float
        Seconds that owners have for handing in.
    before_release : callable or None
        Called once, before anything is opened. If it raises at any server, no server opens anything.
    """

    def __init__(
        self,
        plan: AggregationPlan,
        committee: Committee,
        sharing: Sharing,
        session: Session,
        reception: Reception,
        state: ServerState,
        source: NoiseSource,
        *,
        fewest: int = 1,
        rows_limit: int,
        patience: float = 60.0,
        before_release: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(plan, committee)
        self._sharing, self._session, self._reception = sharing, session, reception
        self._state, self._source = state, source
        self._fewest, self._rows_limit, self._patience = fewest, rows_limit, patience
        self._before_release, self._is_booked_everywhere = before_release, False
        self.counts: list[int] = []  # rows of each owner who took part in the last release

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        number = self._number
        await self._reception.open(number)
        masked = self._state.masked(number)
        stored = await self._session.exchange(b"" if masked is None else _STORED)
        if not all(each == _STORED for each in stored):
            if masked is not None and masked.is_sent:
                await self._stop(
                    f"Server {self._session.index} has already sent its share of release {number}, which another "
                    "server does not have. A second release of the same sum is not covered by the plan."
                )
            masked = await self._masked()
            self._state.store(number, masked)
        assert masked is not None
        await self._book()
        await self._session.exchange(_STORED)  # From here on, every server can send the same bytes again.
        self._state.mark_sent(number)
        shares = await self._session.exchange(self._sharing.to_bytes(masked.share))
        total = await self._combined(shares)
        self.counts = [*masked.counts.values()]
        self._rows = sum(self.counts)
        self._reception.answer(number, to_answer(self._rows, total))
        return total

    async def _masked(self) -> Masked:
        """Return this server's share of the noisy sum over the owners whose shares all servers received."""
        received = await self._session.wait(self._reception.collected(self._patience))  # or until a server is lost
        shares = {owner: share for owner, each in received.items() if (share := self._read(each)) is not None}
        owners = await self._agreed({owner: received[owner] for owner in shares})
        if isinstance(self._sharing, Shamir):
            owners = await self._consistent(self._sharing, {owner: shares[owner] for owner in owners})
        if len(owners) < self._fewest:
            await self._stop(
                f"All servers received the shares of {len(owners)} owner(s), but the study needs {self._fewest}. "
                "Nothing was opened. Start the study again when enough owners can hand in."
            )
        total = self._sharing.zero()
        for owner in owners:
            self._sharing.add(total, shares[owner])
        return Masked(await self._noisy(total), {owner: received[owner].rows for owner in owners})

    def _read(self, contribution: Contribution) -> Share | None:
        """Return the share of a contribution, or None if it is not acceptable."""
        if not 0 < contribution.rows <= self._rows_limit:
            return None
        try:
            return self._sharing.read(contribution.share)
        except ShareError:
            return None

    async def _agreed(self, received: Mapping[int, Contribution]) -> list[int]:
        """Return the owners from whom all servers received shares of one attempt, with the same number of rows.

        An owner who was interrupted hands in again with new shares. A server that has the old one refuses the new one,
        and the sum of old and new shares would be a random number.
        """
        own = np.array([(owner, each.rows, each.attempt) for owner, each in received.items()], dtype="<u8")
        everyone = [
            {tuple(each) for each in np.frombuffer(message, dtype="<u8").reshape(-1, 3).tolist()}
            for message in await self._session.exchange(own.tobytes())
        ]
        return sorted(owner for owner, _, _ in set.intersection(*everyone))

    async def _consistent(self, sharing: Shamir, shares: Mapping[int, Share]) -> list[int]:
        """Return the owners whose shares belong to polynomials of the right degree. Others would block every opening.

        Servers open random sums of the shares, hidden by jointly random numbers. First all owners are checked together,
        and one by one only if that fails. The coefficients are drawn after all shares have arrived.
        """
        if not shares:
            return []
        key = hashlib.sha256(b"".join(await self._session.exchange(self._source.key()))).digest()
        sums = [sharing.combined(share, key) for share in shares.values()]
        weights = NoiseSource.expanded(hashlib.sha256(key).digest(), CHECKS * len(sums)).reshape(
            -1, CHECKS
        ) % np.uint64(2048)
        together = (np.stack(sums) * weights % np.uint64(sharing.prime)).astype(object).sum(axis=0) % sharing.prime
        if (await self._have_right_degree(sharing, [together.astype(np.uint64)]))[0]:
            return list(shares)
        right = await self._have_right_degree(sharing, sums)
        return [owner for owner, is_right in zip(shares, right, strict=True) if is_right]

    async def _have_right_degree(self, sharing: Shamir, sums: Sequence[Share]) -> list[bool]:
        """Return for each group of sums whether the shares of all servers belong together."""
        runtime = self._session.runtime
        secret = runtime.SecFld(modulus=sharing.prime, signed=True)
        mask = await self._session.wait(runtime.gather(runtime._np_randoms(secret, CHECKS * len(sums))))
        masks = _whole(mask).astype(np.uint64).reshape(len(sums), CHECKS)
        hidden = (np.stack(sums) + masks) % np.uint64(sharing.prime)
        sent = await self._session.exchange(hidden.astype("<u8").tobytes())
        everyone = np.stack([np.frombuffer(each, dtype="<u8").reshape(hidden.shape) for each in sent])
        one = replace(sharing, dimension=CHECKS)
        return [one.belong_together(list(everyone[:, place])) for place in range(len(sums))]

    async def _noisy(self, total: Share) -> Share:
        """Return this server's share of the sum with noise."""
        if isinstance(self._sharing, Additive):
            return self.plan.noisy(total.astype(np.int64), self._source).astype(np.uint64)
        assert isinstance(self._sharing, Shamir)
        runtime = self._session.runtime
        secret = runtime.SecFld(modulus=self._sharing.prime, signed=True)
        noise = await self._session.wait(runtime.gather(joint_noise(runtime, secret, self.plan)))
        shares = (_whole(noise) - self.plan.law.reach) % self._sharing.prime
        self._sharing.add(total, shares.astype(np.uint64))
        return total

    async def _book(self) -> None:
        """Record the budget once all servers hold their shares, and before any of them is sent.

        All servers wait for each other here, also those that have no ledger, or have recorded the budget before.
        """
        if self._is_booked_everywhere:
            return
        await self._session.exchange(_STORED)
        if self._before_release is not None and not self._state.is_booked:
            self._before_release()
            self._state.mark_booked()
        await self._session.exchange(_BOOKED)
        self._is_booked_everywhere = True

    async def _combined(self, shares: Sequence[bytes]) -> NDArray[Any]:
        try:
            return self._sharing.opened([self._sharing.read(each) for each in shares])
        except ShareError as error:
            await self._stop(str(error))

    async def _stop(self, cause: str) -> NoReturn:
        """Stop all servers. The cause is public."""
        await self._session.stop(cause)
        raise StudyError(cause)


def _whole(shares: Any) -> NDArray[np.object_]:
    """Return MPyC's shares as Python integers."""
    return np.array([int(each) for each in np.asarray(shares.value).ravel()], dtype=object)


def to_answer(rows: int, total: NDArray[Any]) -> bytes:
    """Return what servers tell owners about a release: the number of rows, and the noisy sum on the lattice."""
    return rows.to_bytes(8, "little") + total.astype("<i8").tobytes()


def read_answer(answer: bytes, dimension: int, fewest: int = 1) -> tuple[int, NDArray[np.int64]]:
    """Return the number of rows, which is at least ``fewest``, and the noisy sum of an answer."""
    rows = int.from_bytes(answer[:8], "little")
    if len(answer) != 8 * (1 + dimension) or rows < fewest:
        raise HandInError("A server sent something other than a noisy sum.")
    return rows, np.frombuffer(answer, dtype="<i8", offset=8).astype(np.int64)
