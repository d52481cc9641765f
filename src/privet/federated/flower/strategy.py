"""The server's side: a Flower strategy that drives privet's server of federated rounds."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.checks import count, positive
from privet.federated.flower import encoding, messaging
from privet.federated.flower.client_nodes import Members
from privet.federated.flower.flwr_imports import (
    ArrayRecord,
    ConfigRecord,
    Grid,
    Message,
    MessageType,
    MetricRecord,
    Strategy,
)
from privet.federated.server import Server
from privet.federated.simulation import RoundReport
from privet.networks import Weights
from privet.plans import GradientPlan
from privet.privacy import Guarantee, assumed

_LOG = logging.getLogger("flwr")  # what a ServerApp says there is shown by `flwr run --stream`

_TRUST = assumed(
    "a client has one number, and no data under another; the SuperLink and the server, which see single updates and "
    "who takes part, keep them to themselves"
)


@dataclass(frozen=True)
class FlowerResult:
    """The trained model and its guarantee.

    Attributes
    ----------
    weights : dict of arrays
        The layers that the server's output rule makes.
    guarantee : Guarantee
        For each client, of all global models.
    history : tuple of RoundReport
        One a round.
    plan : GradientPlan
        Sampling, bound, noise and rounds.
    """

    weights: Weights
    guarantee: Guarantee
    history: tuple[RoundReport, ...]
    plan: GradientPlan

    @property
    def arrays(self) -> ArrayRecord:
        """The layers as Flower has them."""
        return encoding.array_record(self.weights)


class PrivateStrategy(Strategy):  # type: ignore[misc]  # flwr is looked at only where it is installed
    """Rounds of a plan of clients, over the nodes of a Flower federation.

    Parameters
    ----------
    server : Server
        Plan, first model, number of clients, denoiser and step. Its clients are numbered as the nodes' own
        configuration says (``partition-id``).
    timeout : float
        Seconds that a client has for its answer in a round. Later answers count as none. The attribute of this name
        may be changed between rounds.
    min_clients : int
        How many clients must be there for the first round to begin. A public choice, made before anybody came.
    evaluate : callable or None
        Given the layers after a round, returns their score for the history, on **public** data.
    save : path or None
        Write the run there after every round. An app runs in a folder of Flower's own: give the whole path.
    resume : bool
        Go on from the file ``save``, if it is there.

    Formal guarantees
    -----------------
    Those of :class:`Server`. Clients are sampled by its plan, from all its numbers, whether their nodes are there or
    not; Flower's own sampling of connected nodes is not used. Every update is clipped again at the server. A node that
    is gone, fails, is late, or sends what is not finite, has other shapes or cannot be read counts as zero, and only
    its own: replies are fetched one at a time. The divisor is fixed, all clients weigh the same, and whatever a reply
    holds besides its update (metrics, ``num-examples``) is not looked at. Nothing is evaluated on clients: a score on
    their data would be a release of its own.
    """

    def __init__(
        self,
        server: Server,
        *,
        timeout: float = 600.0,
        min_clients: int = 1,
        evaluate: Callable[[Weights], float] | None = None,
        save: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> None:
        self.server = server
        self.timeout = positive("timeout", timeout)
        self._min_clients = count("min_clients", min_clients)
        if self._min_clients > server.n_clients:
            raise ValueError(f"min_clients = {min_clients} are more than the server's {server.n_clients} clients")
        self._evaluate, self._save = evaluate, save
        self._members = Members(server.n_clients, self.timeout)
        self._asked: dict[int, int] = {}
        self._delta = server.guarantee.delta
        self._history = [RoundReport(*saved, server.plan, self._delta) for saved in self._taken_up(resume)]

    def _taken_up(self, resume: bool) -> list[tuple[int, float | None, int]]:
        """Begin the files of a run, or go on from them; return what there is to report so far."""
        if self._save is None:
            if resume:
                raise ValueError("resume=True goes on from the file that save= names: give one")
            return []
        if not Path(self._save).exists():
            self.server.save(self._save, [])  # from here on a journal counts the rounds
            return []
        if not resume:
            raise ValueError(f"{self._save} holds a run already: go on with it by resume=True, or give another name")
        return [(number, score, spent) for number, score, spent in self.server.resume(self._save)]

    # ------------------------------------------------------------------------------------------------- the whole run

    def start(self, grid: Grid) -> FlowerResult:
        """Make the rounds that are left, and return the model with its guarantee.

        It takes no first model and no number of rounds, unlike other strategies' ``start``: the server has the one,
        its plan the other.
        """
        self.summary()
        try:
            if not self.server.is_done:
                self._gather(grid)
            while not self.server.is_done:
                self._round(grid)
        finally:
            self.server.close()
        return self.result()

    def result(self) -> FlowerResult:
        """Return the model as it is, and the guarantee of what was released so far."""
        guarantee = self.server.guarantee.assuming(_TRUST)
        return FlowerResult(self.server.output, guarantee, tuple(self._history), self.server.plan)

    def _gather(self, grid: Grid) -> None:
        """Wait until enough clients are there."""
        end = time.monotonic() + self.timeout
        self._members.look(grid)
        while len(self._members) < self._min_clients:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{len(self._members)} of min_clients = {self._min_clients} clients are there after "
                    f"{self.timeout:g} s: start their nodes (flower-supernode ... --node-config 'partition-id=0'). "
                    "Nothing was released"
                )
            time.sleep(messaging.PAUSE)
            self._members.look(grid)

    # --------------------------------------------------------------------------------------- the parts of a strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the next round: the server's own model, to the clients that its plan draws."""
        self._members.look(grid)
        chosen = [int(client) for client in self.server.sample()]
        found = {self._members.node(client): client for client in chosen}
        self._asked = {node: client for node, client in found.items() if node is not None}
        content = encoding.instruction(self.server.weights, self.server.rounds_done)
        return [Message(content, node, MessageType.TRAIN, ttl=self.timeout) for node in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the round: the noisy sum of what came, a step, and the run in its file. There are no metrics."""
        self._end_round(self._heard((reply.metadata.src_node_id, reply) for reply in replies))
        return encoding.array_record(self.server.weights), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: scores of clients' data would be released without noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, as nobody was asked."""
        return None

    def summary(self) -> None:
        """Log what is planned."""
        plan = self.server.plan
        _LOG.info("%d of %d rounds are made; %s", self.server.rounds_done, plan.steps, plan.sampler.in_words())
        for line in str(self.server.guarantee).splitlines():
            _LOG.info("\t%s", line)

    # ------------------------------------------------------------------------------------------------------- a round

    def _round(self, grid: Grid) -> None:
        """Make one round. Once its clients are drawn it is spent, come what may.

        If a round could be begun anew with other clients because it failed with these, its clients would be those with
        which it does not fail, and not the sample that is accounted for.
        """
        messages = self.configure_train(self.server.rounds_done + 1, ArrayRecord(), ConfigRecord(), grid)
        try:
            sent = messaging.push(grid, list(messages))
        except Exception:
            self._end_round(iter(()))
            raise
        self._end_round(self._heard(messaging.replies(grid, sent, self.timeout)))

    def _heard(self, replies: Iterable[tuple[int, Message | Exception]]) -> Iterator[tuple[int, Any]]:
        """Yield clients and their updates; who was not asked has the number -1, of no client."""
        for node, reply in replies:
            update = encoding.UNREADABLE if isinstance(reply, Exception) else encoding.update_of(reply)
            yield self._asked.get(node, -1), update

    def _end_round(self, updates: Iterator[tuple[int, Any]]) -> None:
        self.server.aggregate(updates)
        score = None if self._evaluate is None else float(self._evaluate(self.server.output))
        done, spent = self.server.rounds_done, self.server.rounds_spent
        self._history.append(RoundReport(done, score, spent, self.server.plan, self._delta))
        if self._save is not None:
            self.server.save(self._save, [[report.number, report.score, report.spent] for report in self._history])
        _LOG.info("round %d of %d%s", done, self.server.plan.steps, "" if score is None else f": score {score:.4g}")
