"""How servers add up the shares of one release as they arrive, over owners from whom all of them received shares.

The servers compare in rounds what has arrived. An owner whose shares all of them received is added by all of them, and
the shares are forgotten. So a server keeps few shares at a time, and never has to take one out of a sum.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.committee import handed_in
from privet.multiparty.protocol.norm_checks import NormCheck, beyond_bound
from privet.multiparty.protocol.sharing import CHECKS, Shamir, Share, ShareError, Sharing
from privet.multiparty.transport.connection import LARGEST, Kind
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Reception
from privet.multiparty.transport.session import Session
from privet.privacy.noise.source import NoiseSource

_KEPT = 32 << 20  # bytes of shares that are added in one round
_ROUND = 1.0  # seconds that a round takes if few owners hand in
_WAITING, _DONE = b"\x00", b"\x01"  # whether a server expects further shares: the first byte of its messages


class Collection:
    """The sum of the owners' shares in one release, at one server.

    Parameters
    ----------
    sharing, session, reception, source, rows_limit
        As in :class:`~privet.multiparty.protocol.server.ServerAggregator`.
    check : NormCheck or None
        What servers verify about contributions.
    """

    def __init__(
        self,
        sharing: Sharing,
        session: Session,
        reception: Reception,
        source: NoiseSource,
        rows_limit: int,
        check: NormCheck | None = None,
    ) -> None:
        self._sharing, self._session, self._reception = sharing, session, reception
        self._source, self._rows_limit, self._check = source, rows_limit, check
        self._handed_in = handed_in(sharing, check)
        self.left_out: list[int] = []
        self._total, self._counts = sharing.zero(), dict[int, int]()

    async def added_up(self, patience: float) -> tuple[Share, dict[int, int]]:
        """Return the sum of this server's shares, and the number of rows of each owner who took part.

        All servers return the same owners. It ends when every server has heard of all owners or was told to end the
        release, or has waited for ``patience`` seconds.
        """
        now = asyncio.get_running_loop().time
        end, enough = now() + patience, max(1, _KEPT // self._handed_in.longest)
        left_over, everyone_is_done = 0, False
        while not everyone_is_done:
            is_over = now() >= end or self._reception.has_ended
            if is_over:
                self._reception.close()
            pause = 0.0 if is_over else max(0.0, min(_ROUND, end - now()))
            wait = self._reception.collected(pause, left_over + enough)
            received = await self._session.wait(wait)  # or until a server is lost
            outstanding = self._reception.outstanding
            everyone_is_done = await self._add(received, is_over or len(received) == outstanding)
            left_over = len(received) - (outstanding - self._reception.outstanding)
        return self._total, dict(sorted(self._counts.items()))

    async def _add(self, received: Mapping[int, Contribution], is_done: bool) -> bool:
        """Add the shares that all servers received. Return whether no server expects further ones."""
        acceptable = {owner: each for owner, each in received.items() if self._is_acceptable(each)}
        owners, everyone_is_done = await self._agreed(acceptable, is_done)
        right = owners
        if isinstance(self._handed_in, Shamir) and owners:
            shares = {owner: self._handed_in.read(acceptable[owner].share) for owner in owners}
            right = await self._consistent(self._handed_in, shares)
            if self._check is not None:
                chosen = {owner: shares[owner] for owner in right}
                failed = await beyond_bound(self._session, self._source, self._check, chosen)
                right = [owner for owner in right if owner not in failed]
                self.left_out += failed
        for owner in right:
            share = self._handed_in.read(acceptable[owner].share)
            self._sharing.add(self._total, share if self._check is None else self._check.vector(share))
            self._counts[owner] = acceptable[owner].rows
        self._reception.settle(owners)
        return everyone_is_done

    def _is_acceptable(self, contribution: Contribution) -> bool:
        try:
            self._handed_in.check(contribution.share)
        except ShareError:
            return False
        return 0 < contribution.rows <= self._rows_limit

    async def _agreed(self, received: Mapping[int, Contribution], is_done: bool) -> tuple[list[int], bool]:
        """Return the owners from whom all servers received shares of one attempt, with the same number of rows.

        An owner who was interrupted hands in again with new shares. A server that has the old one refuses the new one,
        and the sum of old and new shares would be a random number.
        """
        own = np.array([(owner, each.rows, each.attempt) for owner, each in sorted(received.items())], dtype="<u8")
        messages = await self._session.exchange((_DONE if is_done else _WAITING) + own.tobytes())
        everyone = [
            {tuple(each) for each in np.frombuffer(message, dtype="<u8", offset=1).reshape(-1, 3).tolist()}
            for message in messages
        ]
        owners = sorted(owner for owner, _, _ in set.intersection(*everyone))
        return owners, all(message[:1] == _DONE for message in messages)

    async def _consistent(self, sharing: Shamir, shares: Mapping[int, Share]) -> list[int]:
        """Return the owners whose shares belong to polynomials of the right degree. Others would block every opening.

        Servers open random sums of the shares, hidden by jointly random numbers. First all owners are checked together,
        and one by one only if that fails. The coefficients are drawn after the shares have arrived.
        """
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
        masks = whole(mask).astype(np.uint64).reshape(len(sums), CHECKS)
        hidden = (np.stack(sums) + masks) % np.uint64(sharing.prime)
        sent = await self._session.exchange(hidden.astype("<u8").tobytes())
        everyone = np.stack([np.frombuffer(each, dtype="<u8").reshape(hidden.shape) for each in sent])
        one = replace(sharing, dimension=CHECKS)
        return [one.belong_together(list(everyone[:, place])) for place in range(len(sums))]


def whole(shares: Any) -> NDArray[np.object_]:
    """Return MPyC's shares as Python integers."""
    return np.array([int(each) for each in np.asarray(shares.value).ravel()], dtype=object)


async def exchange_long(session: Session, payload: bytes) -> list[bytes]:
    """Send a public message of any length to all servers, in parts, and return the messages of all.

    All messages have the same length.
    """
    most = LARGEST[Kind.MESSAGE]
    parts = [await session.exchange(payload[start : start + most]) for start in range(0, len(payload), most)]
    return [b"".join(each) for each in zip(*parts, strict=True)]
