"""The Flower strategy that drives privet's federated server."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from privet.checks import count, positive
from privet.federated.committee.plan import CommitteePlan
from privet.federated.committee.price import RoundPrice
from privet.federated.flower import encoding, messaging
from privet.federated.flower.client_nodes import ClientNodes
from privet.federated.flower.flwr_imports import (
    ArrayRecord,
    ConfigRecord,
    Grid,
    Message,
    MessageType,
    MetricRecord,
    Strategy,
)
from privet.federated.results import RoundHistory, RunResult
from privet.federated.server import Server
from privet.networks import Weights
from privet.privacy import assumed

if TYPE_CHECKING:
    from privet.federated.committee import Coordinator

_LOG = logging.getLogger("flwr")  # `flwr run --stream` shows what a ServerApp logs here

_TRUST = assumed(
    "each client has one number, and its data is not used under any other number; the SuperLink and the server, which "
    "see individual updates and who takes part, keep them confidential"
)
_ONE_NUMBER = assumed("each client has one number, and its data is not used under any other number")


@dataclass(frozen=True, kw_only=True)
class FlowerResult(RunResult):
    """The trained model and its guarantee; the attributes are those of :class:`~privet.federated.results.RunResult`."""

    @property
    def arrays(self) -> ArrayRecord:
        """The parameters as a Flower record."""
        return encoding.array_record(self.weights)


class PrivateStrategy(Strategy):  # type: ignore[misc]  # flwr has no types where it is not installed
    """Runs the rounds of a plan over the nodes of a Flower federation.

    Parameters
    ----------
    server : Server
        Plan, initial model, number of clients, denoiser and step size. The number of a client is the ``partition-id``
        in the configuration of its node, or determined by ``node_ids``.
    timeout : float
        Seconds that a client has for its reply in a round. Later replies are ignored. The attribute may be changed
        between rounds.
    min_clients : int
        Number of clients that must be connected before the first round starts. It is public, so choose it without
        looking at who has connected.
    node_ids : mapping or None
        The id of the node that runs each client, by client number, as ``flwr supernode list`` prints them. Other nodes
        are ignored. If the SuperLink authenticates SuperNodes, a node id belongs to the key that the operator
        registered, so that no node can pose as another client. None asks each node for its ``partition-id``.
    committee : Coordinator or None
        Needed if the plan is one of a committee. Clients then hand in their updates to its servers, as shares, and
        their replies only say that they have done so. The Flower server gets the noisy sum from the committee.
    evaluate : callable or None
        Takes the parameters after a round and returns a score for the history. It must use **public** data only.
    save : path or None
        File to which the run is written after every round. Use an absolute path, because Flower runs apps in a folder
        that it chooses.
    resume : bool
        Whether to continue the run in the file ``save``, if the file exists.

    Formal guarantees
    -----------------
    Those of :class:`Server`. Its plan samples from all client numbers, whether their nodes are connected or not;
    Flower's own sampling among connected nodes is not used. The server clips every update again. A client whose node
    is gone, fails, is late, or sends an update that is non-finite, has wrong shapes or cannot be read counts as zero.
    This does not affect other clients, because replies are fetched one at a time. The divisor is fixed, all clients
    have equal weight, and everything in a reply except the update (metrics, ``num-examples``) is ignored. Models are
    not evaluated on clients, because a score on their data would be an additional release.
    """

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset({"_nodes", "_asked"})  # who is there, and who was drawn

    def __init__(
        self,
        server: Server,
        *,
        timeout: float = 600.0,
        min_clients: int = 1,
        node_ids: Mapping[int, int] | None = None,
        committee: "Coordinator | None" = None,
        evaluate: Callable[[Weights], float] | None = None,
        save: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> None:
        self.server = server
        self.timeout = positive("timeout", timeout)
        self._min_clients = count("min_clients", min_clients)
        if self._min_clients > server.n_clients:
            raise ValueError(f"min_clients={min_clients} exceeds the server's number of clients, {server.n_clients}.")
        self._committee = _checked_committee(committee, server)
        self._evaluate = evaluate
        self._nodes = ClientNodes(server.n_clients, self.timeout, node_ids)
        self._shapes = {name: layer.shape for name, layer in server.weights.items()}
        self._asked: dict[int, int] = {}
        self._history = RoundHistory(server, server.guarantee.delta, save, resume)

    # ------------------------------------------------------------------------------------------------- the whole run

    def start(self, grid: Grid) -> FlowerResult:
        """Run the remaining rounds, and return the model with its guarantee.

        Unlike the ``start`` of other strategies, it takes no initial model and no number of rounds: the server has the
        former, and its plan the latter.
        """
        self.summary()
        try:
            if not self.server.is_done:
                self._wait_for_clients(grid)
            while not self.server.is_done:
                self._round(grid)
        finally:
            self.server.close()
        return self.result()

    def result(self) -> FlowerResult:
        """Return the current model, with the guarantee for what has been released so far."""
        plan = self.server.plan
        return FlowerResult(
            weights=self.server.output,
            guarantee=self.server.guarantee.assuming(_TRUST if self._committee is None else _ONE_NUMBER),
            history=tuple(self._history.reports),
            plan=plan,
            outsiders=self.server.outsiders,
            price=RoundPrice.of(plan) if isinstance(plan, CommitteePlan) else None,
        )

    def _wait_for_clients(self, grid: Grid) -> None:
        """Wait until ``min_clients`` clients are connected, each of them with one node.

        Two nodes with the same number may be one that was restarted. Flower then notices soon that the old one is gone.
        """
        end = time.monotonic() + self.timeout
        self._nodes.refresh(grid)
        while len(self._nodes) < self._min_clients or self._nodes.rivals():
            if time.monotonic() > end:
                rivals = self._nodes.rivals()
                if rivals:
                    client, nodes = rivals
                    raise RuntimeError(
                        f"The nodes {', '.join(map(str, nodes))} all report that they are client {client}, so no round "
                        "was started and nothing was released. Give each node a partition-id of its own, or list the "
                        "node of each client with node_ids=."
                    )
                raise RuntimeError(
                    f"Only {len(self._nodes)} of min_clients={self._min_clients} clients connected within "
                    f"{self.timeout:g} s, so no round was started and nothing was released. Start more nodes with "
                    "flower-supernode ... --node-config 'partition-id=i', or lower min_clients."
                )
            time.sleep(messaging.PAUSE)
            self._nodes.refresh(grid)

    # ------------------------------------------------------------------------------------ the methods of a strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the next round: the server's model, addressed to the clients that the plan samples."""
        self._nodes.refresh(grid)
        chosen = [int(client) for client in self.server.sample()]
        found = {self._nodes.node(client): client for client in chosen}
        self._asked = {node: client for node, client in found.items() if node is not None}
        content = encoding.instruction(self.server.weights, self.server.rounds_done)
        return [Message(content, node, MessageType.TRAIN, ttl=self.timeout) for node in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Complete the round: add the noisy sum of the updates to the model, and save the run. There are no metrics."""
        self._end_round(self._updates((reply.metadata.src_node_id, reply) for reply in replies))
        return encoding.array_record(self.server.weights), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages, because scores on clients' data would be released without noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return None, because no client was asked to evaluate."""
        return None

    def summary(self) -> None:
        """Log the plan and its guarantee."""
        plan = self.server.plan
        _LOG.info("%d of %d rounds are complete; %s", self.server.rounds_done, plan.steps, plan.sampler.in_words())
        for line in str(self.server.guarantee).splitlines():
            _LOG.info("\t%s", line)

    # ------------------------------------------------------------------------------------------------------- a round

    def _round(self, grid: Grid) -> None:
        """Run one round. Once its clients have been sampled, the round is spent even if it fails.

        If a failed round could be repeated with other clients, the clients that take part would be those with which a
        round succeeds, which is not the sampling that the guarantee accounts for.
        """
        messages = self.configure_train(self.server.rounds_done + 1, ArrayRecord(), ConfigRecord(), grid)
        try:
            sent = messaging.push(grid, list(messages))
        except Exception:
            self._end_round(iter(()))
            raise
        self._end_round(self._updates(messaging.replies(grid, sent, self.timeout)))

    def _updates(self, replies: Iterable[tuple[int, Message | Exception]]) -> Iterator[tuple[int, Any]]:
        """Yield pairs of client and update. A node that was not asked yields the number -1, which no client has."""
        for node, reply in replies:
            is_read = self._committee is None and not isinstance(reply, Exception)
            update = encoding.update_of(reply, self._shapes) if is_read else encoding.UNREADABLE
            yield self._asked.get(node, -1), update

    def _end_round(self, updates: Iterator[tuple[int, Any]]) -> None:
        if self._committee is None:
            self.server.aggregate(updates)
        else:
            for _ in updates:  # Each reply says that a client has handed in, or why it has not. Nothing else is read.
                pass
            self.server.aggregate_opened(self._committee.opened)
        score = None if self._evaluate is None else float(self._evaluate(self.server.output))
        self._history.add(score)
        done, planned = self.server.rounds_done, self.server.plan.steps
        _LOG.info("round %d of %d%s", done, planned, "" if score is None else f": score {score:.4g}")


def _checked_committee(committee: "Coordinator | None", server: Server) -> "Coordinator | None":
    """Raise unless the server's plan is that of the committee, or there is no committee in either."""
    plan = None if committee is None else committee.study.plan
    planned = server.plan if isinstance(server.plan, CommitteePlan) else None
    if plan != planned:
        raise ValueError(
            "The server's plan and committee= do not belong together. Give the Coordinator of a study with the plan of "
            "the server. Without a committee, make the plan with client_plan()."
        )
    return committee
