"""What a federated run returns: its model, its guarantee, and one report per round."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from privet.federated.committee.price import RoundPrice
from privet.federated.plan import RoundsPlan, epsilon_after
from privet.federated.server import Server
from privet.networks import Weights
from privet.privacy import Guarantee
from privet.showing import Reported


@dataclass(frozen=True)
class RoundReport:
    """Public facts about one round.

    Attributes
    ----------
    number : int
        Number of rounds completed so far.
    score : float or None
        Return value of ``evaluate``, or None if the round was not evaluated.
    spent : int
        Number of rounds paid for so far. It exceeds ``number`` after a crash.
    """

    number: int
    score: float | None
    spent: int
    plan: RoundsPlan = field(repr=False)
    delta: float = field(repr=False)

    @property
    def epsilon(self) -> float:
        """The epsilon spent so far. It is computed on access, because accounting takes time."""
        return epsilon_after(self.plan, self.spent, self.delta)


@dataclass(frozen=True, kw_only=True)
class RunResult(Reported):
    """The outcome of a federated run.

    Attributes
    ----------
    weights : dict of arrays
        The parameters of the released model, in the server's precision.
    guarantee : Guarantee
        What each client is promised about the release of all global models.
    history : tuple of RoundReport
        One report per round.
    plan : GradientPlan or CommitteePlan
        Sampling, clipping norm, noise and number of rounds.
    outsiders : Guarantee or None
        With a committee, ``guarantee`` is what holds towards its servers and everybody else who may know who takes
        part. This is what holds towards those who see only the global models.
    price : RoundPrice or None
        With a committee: what a round costs.
    """

    weights: Weights
    guarantee: Guarantee
    history: tuple[RoundReport, ...]
    plan: RoundsPlan
    outsiders: Guarantee | None = None
    price: RoundPrice | None = None


class RoundHistory:
    """The reports of a run, which are saved together with the server after each round.

    Parameters
    ----------
    server : Server
        The server, before its first round. If a saved run is resumed, its state is restored here.
    delta : float
        The delta at which the reports state their epsilon.
    path : path or None
        The file of the run; None to keep the run in memory only.
    resume : bool
        Whether to continue the run in the file, if the file exists.
    """

    def __init__(self, server: Server, delta: float, path: str | os.PathLike[str] | None, resume: bool) -> None:
        self._server, self._delta, self._path = server, delta, path
        saved = []
        if path is None:
            if resume:
                raise ValueError("resume=True needs a file to resume from. Name it with save=.")
        elif not Path(path).exists():
            server.save(path, [])  # from now on, a journal counts the rounds
        elif not resume:
            raise ValueError(f"{path} already holds a run. Continue it with resume=True, or choose another name.")
        else:
            saved = server.resume(path)
        self.reports = [RoundReport(number, score, spent, server.plan, delta) for number, score, spent in saved]

    def add(self, score: float | None) -> None:
        """Append a report on the round that was just completed, and save the run."""
        server = self._server
        self.reports.append(RoundReport(server.rounds_done, score, server.rounds_spent, server.plan, self._delta))
        if self._path is not None:
            server.save(self._path, [[report.number, report.score, report.spent] for report in self.reports])
