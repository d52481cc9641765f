"""The two roles of a study with servers: a server, which computes, and an owner, who hands in shares and may leave."""

from collections.abc import Callable
from pathlib import Path

from privet.multiparty.protocol.agreement import agree_on_plan, agree_on_study, agreement
from privet.multiparty.protocol.committee import OwnerAggregator, handed_in, sharing_of
from privet.multiparty.protocol.norm_checks import NormCheck
from privet.multiparty.protocol.output import weighted_minimiser
from privet.multiparty.protocol.participation import Table, sum_plan, trained
from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.hand_in import Reception, Servers
from privet.multiparty.transport.network import Network, Session
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.ledger.spending import book_spending
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Progress, Release


def network_of(study: Study, index: int, keys: Path | None, *, connect_timeout: float, timeout: float) -> Network:
    """Return the network of the servers among each other, at the ports after those for owners."""
    addresses = tuple((server.host, server.port + 1) for server in study.servers)
    return Network(addresses, index, keys, connect_timeout=connect_timeout, timeout=timeout)


def norm_check(study: Study, plan: AggregationPlan) -> NormCheck | None:
    """Return what the servers of a study verify about contributions, or None if they verify nothing."""
    return NormCheck.of(plan, study.n_owners) if study.check_norms else None


async def serve(
    session: Session,
    study: Study,
    *,
    keys: Path | None,
    state: Path | None = None,
    patience: float = 60.0,
    check: Callable[[Guarantee], None] | None = None,
    book: Callable[[Guarantee], None] | None = book_spending,
    progress: Progress | None = None,
    source: NoiseSource | None = None,
) -> Release:
    """Run a study as one of its servers.

    Parameters
    ----------
    session : Session
        The connection with the other servers.
    study : Study
        The study as this server has it.
    keys : path or None
        The folder with this server's key and certificate. None without TLS, on one machine.
    state : path or None
        Folder in which the server keeps what it needs to continue after a restart. None keeps nothing: a server that
        is then started again draws new noise for the same sums, which is a second release.
    patience : float
        Seconds that owners have for handing in their shares of a release.
    check, book, progress
        As in :func:`~privet.multiparty.protocol.participation.take_part`.
    source : NoiseSource or None
        Where the noise comes from. None takes a new, secure source.
    """
    await agree_on_study(session, study)
    problem, committee = study.committee_problem(), Committee(study.trust, len(study.servers))
    plan, kept = sum_plan(study, problem), ServerState(state, f"{study.digest}, server {session.index}")
    if check is not None and not kept.is_booked:  # After a restart, the budget is already recorded.
        check(plan.guarantee())
    await agree_on_plan(session, study, plan)
    norms = norm_check(study, plan)
    sharing = sharing_of(plan, study.trust, committee.servers, study.n_owners, norms)
    authority = None if session.identity is None else session.identity.authority
    reception = Reception(
        bytes.fromhex(study.digest), study.n_owners, authority, [party.name for party in study.parties]
    )
    assert study.rows_per_owner is not None
    aggregator = ServerAggregator(
        plan,
        committee,
        sharing,
        session,
        reception,
        kept,
        source or NoiseSource(),
        fewest=study.fewest_owners,
        rows_limit=study.rows_per_owner,
        patience=patience,
        before_release=None if book is None else lambda: book(plan.guarantee()),
        check=norms,
    )
    here = study.servers[session.index]
    async with reception.listening(here.host, here.port, keys, session.index, handed_in(sharing, norms).longest):
        release = await trained(study, problem, aggregator, progress)
        trace = {
            **release.trace,
            "counts": aggregator.counts,
            "left_out": sorted(aggregator.left_out),
            "bytes_received": reception.bytes_received,
        }
        return Release(release.weights, release.guarantee.assuming(agreement(study)), trace)


async def hand_in(
    study: Study,
    index: int,
    table: Table,
    *,
    keys: Path | None,
    timeout: float = 60.0,
    check: Callable[[Guarantee], None] | None = None,
    book: Callable[[Guarantee], None] | None = book_spending,
    progress: Progress | None = None,
    source: NoiseSource | None = None,
) -> Release | None:
    """Take part in a study as one of its owners.

    With ``method = "output"``, the owner hands in its shares and leaves: None is returned. With
    ``method = "gradient"``, it hands in one sum of gradients per step, follows the descent, and returns the model.

    Parameters
    ----------
    study : Study
        The study as this owner has it.
    index : int
        Index of the owner.
    table : (array, array)
        The owner's rows and targets, as :meth:`~privet.multiparty.Study.encode` returns them.
    keys : path or None
        The folder with this owner's key and certificate. None without TLS, on one machine.
    timeout : float
        Seconds within which servers must accept a share, and within which a release must be opened.
    check, book, progress
        As in :func:`~privet.multiparty.protocol.participation.take_part`.
    source : NoiseSource or None
        Where the random numbers of the shares come from. None takes a new, secure source.
    """
    assert study.rows_per_owner is not None
    if not 0 < len(table[1]) <= study.rows_per_owner:
        raise StudyError(
            f"An owner of this study may bring 1 to {study.rows_per_owner} rows, got {len(table[1])}. Leave out rows, "
            "or agree on a larger rows_per_owner."
        )
    problem, committee = study.committee_problem(), Committee(study.trust, len(study.servers))
    plan = sum_plan(study, problem)
    if check is not None:
        check(plan.guarantee())
    norms = norm_check(study, plan)
    sharing = sharing_of(plan, study.trust, committee.servers, study.n_owners, norms)
    local = problem.local(*table)
    addresses = [(server.host, server.port) for server in study.servers]
    connections = Servers(addresses, index, keys, timeout, handed_in(sharing, norms).longest)
    if book is not None:
        book(plan.guarantee())  # before anything is handed over
    async with connections as servers:
        aggregator = OwnerAggregator(
            plan,
            committee,
            sharing,
            servers,
            local,
            bytes.fromhex(study.digest),
            index,
            source or NoiseSource(),
            norms,
        )
        if study.method == "output":
            await aggregator.hand_in(lambda party: weighted_minimiser(problem, party), waits=False)
            return None
        release = await trained(study, problem, aggregator, progress)
        return Release(release.weights, release.guarantee.assuming(agreement(study)), release.trace)
