"""What the processes of a committee run: its servers, and clients that are honest or not."""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from privet.federated.committee import Committee, CommitteeClient, CommitteePlan, FederatedStudy, serve
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Servers
from privet.plans import FixedSize
from privet.plans.aggregation import AggregationPlan
from privet.privacy.noise.lattice import LatticeLaw

CLIP, SCALE, DELTA = 1.0, 1e6, 1e-5
LAW = LatticeLaw(bits=2)


def study(ports, dimension=6, clients=4, rounds=2, trust="one"):
    """Return a study with so little noise that sums can be recognised. It is useless for privacy."""
    sums = AggregationPlan(dimension, rounds, 2 * CLIP, clients * CLIP, SCALE, LAW, 1e-12, delta=DELTA)
    plan = CommitteePlan(sums, FixedSize(clients, clients), CLIP, Committee(trust, len(ports)), clients)
    return FederatedStudy("rounds", plan, [("127.0.0.1", port) for port in ports])


def server(settings, index, keys, state):
    """Run a server, and print the number of clients of each round."""
    print(json.dumps(asyncio.run(serve(study(**settings), index, keys=keys, state=state, book=booked))))
    sys.stdout.flush()


def booked(guarantee):
    Path("booked").write_text(guarantee.to_json())


def update_of(client, number, dimension=6):
    """Return the update that a client hands in: within the clipping norm, far beyond it, or not finite."""
    direction = np.sin(np.arange(1, dimension + 1) * (client + 1 + number))
    length = (0.7, 1e6, np.nan)[client]
    return {
        "a": length * direction[:2] / np.linalg.norm(direction),
        "b": length * direction[2:] / np.linalg.norm(direction),
    }


def client(settings, number_of_client, keys, rounds):
    """Hand in the updates of some rounds."""
    member = CommitteeClient(study(**settings), number_of_client, keys=keys)
    for number in rounds:
        member.hand_in(update_of(number_of_client, number), number)
        print(f"handed in {number}", flush=True)


async def hand_in_to_one(here, client, keys, server, number, attempt=7):
    """Hand in to a single server, and leave."""
    sharing = CommitteeClient(here, client, keys=keys)._sharing
    share = sharing.to_bytes(np.full(here.plan.sums.dimension, 12345, dtype=np.uint64))
    async with Servers(here.addresses, client, Path(keys), 30.0, sharing.longest) as servers:
        await servers._handed_in(server, Contribution(bytes.fromhex(here.digest), number, 1, False, share, attempt))
