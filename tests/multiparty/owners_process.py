"""Many owners in one process, each with its own TLS connections, and what a misbehaving owner does."""

import asyncio
import json
import math
import sys
from pathlib import Path

import numpy as np

from privet.multiparty.protocol import roles
from privet.multiparty.protocol.committee import handed_in, sharing_of
from privet.multiparty.protocol.norm_checks import PRIME
from privet.multiparty.protocol.participation import sum_plan
from privet.multiparty.study import Study
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import HandInError, Servers
from privet.privacy.noise.source import NoiseSource


def rows_of(study, owner):
    """Return rows of two columns whose sign decides the class. All rows of the first owner are alike, and extreme."""
    if not owner and study.check_norms:
        return np.full((study.rows_per_owner, len(study.table.columns)), 1e6), np.zeros(study.rows_per_owner)
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


def too_large(check, kind):
    """Return bits, or what an owner passes off as bits, of a vector that exceeds the bound."""
    honest = check.to_bits(np.zeros(check.dimension, dtype=np.int64))
    bits = honest.copy()
    if kind == "coordinate":
        bits[check.bits - 1] += 1 << 40
    elif kind == "step":  # A vector whose norm is the bound, and one lattice step more: no slack is left.
        vector = np.zeros(check.dimension, dtype=np.int64)
        vector[0] = math.isqrt(check.bound) + 1
        offset = vector + (1 << check.bits - 1)
        bits[: -check.slack_bits] = (offset[:, None] >> np.arange(check.bits) & 1).ravel()
        bits[-check.slack_bits :] = 0
    elif kind == "wrapped":  # A huge number whose square is small modulo the prime.
        square = next(
            each for each in range(2, 1000) if math.isqrt(each) ** 2 != each and pow(each, (PRIME - 1) // 2, PRIME) == 1
        )
        root = pow(square, (PRIME + 1) // 4, PRIME)
        bits[0] = min(root, PRIME - root)
        bits[-check.slack_bits :] = (check.bound - square) >> np.arange(check.slack_bits) & 1
    else:
        bits[0] = 2
    return bits


def hand_in_too_large(path, keys, kinds):
    """Hand in contributions that are too large, of one kind per owner, and print what each owner is told."""
    study = Study.read(path)
    plan = sum_plan(study, study.committee_problem())
    check = roles.norm_check(study, plan)
    sharing = handed_in(sharing_of(plan, study.trust, len(study.servers), study.n_owners, check), check)

    async def one(owner, kind):
        addresses = [(server.host, server.port) for server in study.servers]
        shares = sharing.split(too_large(check, kind), NoiseSource())
        async with Servers(addresses, owner, Path(keys), 60.0, sharing.longest) as connected:
            try:
                await connected.hand_in(
                    [Contribution(bytes.fromhex(study.digest), 0, 5, True, each) for each in shares]
                )
            except HandInError as error:
                print(json.dumps({"owner": owner, "error": str(error)}), flush=True)

    async def main():
        await asyncio.gather(*(one(int(owner), kind) for owner, kind in kinds.items()))

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
