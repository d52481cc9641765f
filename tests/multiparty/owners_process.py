"""Many owners in one process, each with its own TLS connections, and what a misbehaving owner does."""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from privet.multiparty.protocol import roles
from privet.multiparty.protocol.committee import sharing_of
from privet.multiparty.protocol.participation import sum_plan
from privet.multiparty.study import Study
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import HandInError, Servers
from privet.privacy.noise.source import NoiseSource


def rows_of(study, owner):
    """Return rows of two columns whose sign decides the class."""
    generator = np.random.default_rng(owner)
    X = generator.uniform(-0.7, 0.7, (study.rows_per_owner, len(study.table.columns)))
    return X, (X[:, 0] > 0).astype(float)


def hand_in(path, keys, owners, timeout=60.0):
    """Hand in as all given owners at once, and print the first weight that each of them computes."""
    study = Study.read(path)

    async def main():
        work = (
            roles.hand_in(study, owner, rows_of(study, owner), keys=Path(keys), timeout=timeout) for owner in owners
        )
        for owner, found in zip(owners, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(found, Exception):
                print(json.dumps({"owner": owner, "error": str(found)}))
            else:
                print(json.dumps({"owner": owner, "weights": None if found is None else found.weights.tolist()}))

    asyncio.run(main())
    sys.stdout.flush()


def hand_in_to_some(path, keys, owner, servers):
    """Hand in shares as one owner, but only to some of the servers, and leave."""
    study = Study.read(path)
    plan = sum_plan(study, study.committee_problem())
    sharing = sharing_of(plan, study.trust, len(study.servers), study.n_owners)
    shares = sharing.split(np.ones(plan.dimension, dtype=np.int64), NoiseSource())

    async def main():
        addresses = [(server.host, server.port) for server in study.servers]
        async with Servers(addresses, owner, Path(keys), 30.0, sharing.longest) as connected:
            for server in servers:
                sent = Contribution(bytes.fromhex(study.digest), 0, 5, False, shares[server])
                try:
                    await connected._handed_in(server, sent)
                except HandInError as error:
                    print(error)

    asyncio.run(main())


def hand_in_wrong_degree(path, keys, owner):
    """Hand in random numbers, which do not belong to any polynomial of the right degree, and leave."""
    study = Study.read(path)
    plan = sum_plan(study, study.committee_problem())
    sharing = sharing_of(plan, study.trust, len(study.servers), study.n_owners)
    source = NoiseSource()

    async def main():
        addresses = [(server.host, server.port) for server in study.servers]
        async with Servers(addresses, owner, Path(keys), 30.0, sharing.longest) as connected:
            shares = [sharing.to_bytes(source.uniform(plan.dimension, sharing.prime)) for _ in addresses]
            await connected.hand_in([Contribution(bytes.fromhex(study.digest), 0, 5, False, each) for each in shares])

    asyncio.run(main())
