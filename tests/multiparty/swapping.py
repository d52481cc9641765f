"""Parties as coroutines of one process that draw random numbers together."""

import asyncio
import itertools

from privet.multiparty.protocol.joint_randomness import JointRandomness
from privet.privacy import NoiseSource

PRIME = 4_503_599_627_370_323  # 3 modulo 4, below 2^52


class Post:
    """Hands the messages of each round to the parties to whom they are addressed."""

    def __init__(self, parties):
        self.parties, self.rounds, self.sent = parties, {}, 0

    def swap(self, index):
        counter = itertools.count()

        async def swap(messages):
            loop = asyncio.get_running_loop()
            futures = self.rounds.setdefault(next(counter), [loop.create_future() for _ in range(self.parties)])
            futures[index].set_result(list(messages))
            self.sent += sum(map(len, messages))
            return [await future for future in futures] and [future.result()[index] for future in futures]

        return swap


def drawn(parties, work, prime=PRIME, seed=0, changed=None):
    """Return what ``work`` returns for each party. ``changed`` is a party that draws other random numbers."""
    post = Post(parties)

    async def main():
        kinds = (
            JointRandomness(
                post.swap(index),
                NoiseSource(seed + (1000 if index == changed else 0), f"party {index}"),
                index,
                parties,
                (parties - 1) // 2,
                prime,
            )
            for index in range(parties)
        )
        return await asyncio.gather(*map(work, kinds))

    return asyncio.run(main())
