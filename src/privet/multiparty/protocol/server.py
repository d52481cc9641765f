"""A server of a committee: which owners it counts, its noise, and when it sends its share of the noisy sum.

A release has two phases. First every server stores its share of the noisy sum, then all send these shares to each
other. A server that restarts sends the bytes that it stored: new noise on the same sum would be a second release.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Summand, joint_noise
from privet.multiparty.protocol.collection import Collection, exchange_long, whole
from privet.multiparty.protocol.committee import CommitteeAggregator, to_answer
from privet.multiparty.protocol.norm_checks import LEFT_OUT, NormCheck
from privet.multiparty.protocol.server_state import Masked, ServerState
from privet.multiparty.protocol.sharing import Additive, Shamir, Share, ShareError, Sharing
from privet.multiparty.study import StudyError
from privet.multiparty.transport.hand_in import Reception
from privet.multiparty.transport.network import Session
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy.noise.source import NoiseSource

_STORED, _BOOKED = b"stored", b"booked"
_MOST_BITS = 1 << 20  # that servers draw together at the same time: about 8 MB for each pair of them


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
    check : NormCheck or None
        What servers verify about contributions.

    Attributes
    ----------
    counts : list of int
        Number of rows of each owner who took part in the last release.
    left_out : set of int
        The owners whose contribution to any release exceeded its bound. They are left out of all later ones as well.
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
        check: NormCheck | None = None,
    ) -> None:
        super().__init__(plan, committee, sharing, check)
        self._session, self._reception = session, reception
        self._state, self._source = state, source
        self._fewest, self._rows_limit, self._patience = fewest, rows_limit, patience
        self._before_release, self._is_booked_everywhere = before_release, False
        self.counts: list[int] = []
        self.left_out: set[int] = set()

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
            self._state.forget(number)
            masked = await self._masked()
            self._state.store(number, masked)
        assert masked is not None
        for owner in masked.left_out:
            self.left_out.add(owner)
            self._reception.leave_out(owner, LEFT_OUT)
        await self._book()
        await self._session.exchange(_STORED)  # From here on, every server can send the same bytes again.
        self._state.mark_sent(number)
        shares = await exchange_long(self._session, self._sharing.to_bytes(masked.share))
        total = await self._combined(shares)
        self.counts = [*masked.counts.values()]
        self._rows = sum(self.counts)
        self._reception.answer(number, to_answer(self._rows, total))
        return total

    async def _masked(self) -> Masked:
        """Return this server's share of the noisy sum over the owners whose shares all servers received."""
        collection = Collection(
            self._sharing, self._session, self._reception, self._source, self._rows_limit, self._check
        )
        total, counts = await collection.added_up(self._patience)
        if len(counts) < self._fewest:
            await self._stop(
                f"All servers received the shares of {len(counts)} owner(s), but the study needs {self._fewest}. "
                "Nothing was opened. Start the study again when enough owners can hand in."
            )
        return Masked(await self._noisy(total), counts, tuple(sorted(collection.left_out)))

    async def _noisy(self, total: Share) -> Share:
        """Return this server's share of the sum with noise."""
        if isinstance(self._sharing, Additive):
            return self.plan.noisy(total.astype(np.int64), self._source).astype(np.uint64)
        assert isinstance(self._sharing, Shamir)
        runtime = self._session.runtime
        secret = runtime.SecFld(modulus=self._sharing.prime, signed=True)
        blocks = []  # The random bits of all coordinates at once could exceed the longest message, and the memory.
        for size in _sizes(self.plan.dimension, max(1, _MOST_BITS // self.plan.law.recipe().bits_drawn)):
            noise = joint_noise(runtime, secret, replace(self.plan, dimension=size))
            blocks.append(whole(await self._session.wait(runtime.gather(noise))))
        shares = (np.concatenate(blocks) - self.plan.law.offset) % self._sharing.prime
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


def _sizes(total: int, most: int) -> Iterator[int]:
    """Return the sizes of blocks of at most ``most`` that make up ``total``."""
    return (min(most, total - start) for start in range(0, total, most))
