"""Servers and owners that log everything, and some that fail with their numbers at hand. See test_no_leaks.py."""

import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from owners_process import rows_of
from parties import command

from privet.multiparty.protocol import roles
from privet.multiparty.protocol.collection import Collection
from privet.multiparty.protocol.committee import OwnerAggregator
from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.study import Study
from privet.privacy.noise.source import NoiseSource


def _log_everything():
    os.environ.update(PYTHONASYNCIODEBUG="1", GRPC_VERBOSITY="debug")
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)


def serve(fault, *arguments):
    """Run a server with a fault."""
    _log_everything()
    if fault == "raises":

        async def raising(self, total):
            raise RuntimeError("planted")

        ServerAggregator._noisy = raising
    if fault == "wrong share":
        masked = ServerAggregator._masked

        async def wrong(self):
            found = await masked(self)
            return replace(found, share=found.share ^ 1)

        ServerAggregator._masked = wrong
    if fault == "logs shares":
        add = Collection._add

        async def telling(self, received, is_done):
            for each in received.values():
                logging.debug("received %s", self._sharing.read(each.share).tolist())
            return await add(self, received, is_done)

        Collection._add = telling
    command(*arguments)


def hand_in(fault, path, keys, owners):
    """Hand in as several owners, whose random numbers the test knows."""
    _log_everything()
    study = Study.read(path)
    if fault == "prints its vector":
        plain = OwnerAggregator.hand_in

        async def telling(self, summand, *, waits):
            print(self.plan.on_lattice(summand(self._problem)).tolist())
            return await plain(self, summand, waits=waits)

        OwnerAggregator.hand_in = telling

    async def main():
        work = (
            roles.hand_in(study, owner, rows_of(study, owner), keys=Path(keys), timeout=4.0, source=NoiseSource(owner))
            for owner in owners
        )
        for found in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(found, Exception):
                logging.error("an owner failed", exc_info=found)
        print(json.dumps("done"))

    asyncio.run(main())
    sys.stdout.flush()
