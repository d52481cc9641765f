"""Refute a guarantee with one run on each of two neighbouring datasets, or fail to.

Statistical audits need thousands of runs and miss what is rare. A replay needs one run on each dataset. The second run
gets the samples and the released values of the first one, so the two must behave alike in everything but the sums
before their noise, and these may move only as far as the plan claims.
"""

import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from privet import global_generators
from privet.plans.adaptive import selection_mu
from privet.privacy.budget import Adjacency
from privet.privacy.events import ApproximateRelease, LastIterate, NearlyGaussian
from privet.privacy.guarantees.guarantee import Guarantee, compose
from privet.privacy.noise.watch import watching
from privet.replay.leftovers import Leftovers, differences, files_in
from privet.replay.moves import Move
from privet.replay.tape import Diverged, Player, Recorder
from privet.replay.units import Units


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay.

    Attributes
    ----------
    problems : tuple of str
        What refutes the guarantee, in whole sentences. Empty if nothing was found.
    releases, moved : int
        Number of releases of a run, and how many of them moved.
    largest : float
        The largest distance of a release, in units of its bound.
    spent : float or None
        The total privacy cost of what moved, in units of what the guarantee allows without sampling: squared distances
        over squared noise, or epsilons. None if it cannot be compared with the guarantee.
    epsilon, delta : float or None
        The guarantee.
    name : str
    error : str or None
        The error with which both runs end. What they would have left behind without it is not known.
    unbounded : int
        Number of releases that moved although neither a plan nor a guarantee says how far they may. Nothing is known
        about these.
    """

    problems: tuple[str, ...]
    releases: int
    moved: int
    largest: float
    spent: float | None
    epsilon: float | None = None
    delta: float | None = None
    name: str = ""
    error: str | None = None
    unbounded: int = 0

    @property
    def is_violation(self) -> bool:
        """Whether the guarantee is refuted."""
        return bool(self.problems)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence, which names the first problem."""
        if not self.problems:
            if self.error is not None:
                return f"consistent until both runs end with {self.error}"
            unknown = f", but nothing bounds {self.unbounded} of the releases that moved" if self.unbounded else ""
            return f"consistent{unknown}"
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"VIOLATION: {self.problems[0]}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        fields = {key: None if value == math.inf else value for key, value in asdict(self).items()}
        return fields | {"verdict": self.verdict, "is_violation": self.is_violation}

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        claim = "nothing" if self.epsilon is None else f"epsilon {self.epsilon:.4g} at delta {self.delta:.3g}"
        claim = "no differential privacy" if self.epsilon == math.inf else claim
        share = "" if self.spent is None else f", at {self.spent:.4g} of the cost that the guarantee allows"
        return (
            f"{name}{self.verdict}\n  claimed: {claim}\n"
            f"  {self.moved:,} of {self.releases:,} releases moved, by at most {self.largest:.6g} of the bound{share}"
        )


def replay(
    train: Callable[[Any], Any],
    data: Any,
    neighbour: Any,
    *,
    guarantee: Guarantee | None = None,
    folder: str | PathLike[str] | None = None,
    units: Units | None = None,
    name: str = "",
) -> Replayed:
    """Run a training on two neighbouring datasets, with equal samples and equal released values, and compare.

    Parameters
    ----------
    train : callable
        ``train(data)`` trains a model and returns everything that leaves the process: a fitted estimator, a
        ``Release``, a ``PrivateTraining``, a model, or a tuple of these. It must create what it trains, and must not
        depend on anything else that changes, such as the time. All noise and all samples must come from privet, in this
        process. If threads train at the same time, their noise sources need different purposes.
    data, neighbour : dataset
        Two datasets that differ in one unit: arrays or a tuple of them, a table, or a sequence such as a list of
        clients. The unit is replaced, or added or removed, as the guarantee says. The others may have moved to other
        places.
    guarantee : Guarantee or None
        The claim. None takes the guarantees in what ``train`` returns, composed.
    folder : path or None
        A folder into which ``train`` writes. Its files are compared, too. Before the second run it is restored to what
        it was before the first one.
    units : Units or None
        Which units are the same. None compares their contents.
    name : str
        A name for the printed outcome.

    Returns
    -------
    Replayed
        What was found. ``print`` shows it, and ``is_violation`` says whether the guarantee is refuted.

    Notes
    -----
    The run on ``data`` is recorded: every random sample, every sum before its noise, and every released value. In the
    run on ``neighbour``, units that are in both datasets are sampled alike, and each released value of the first run is
    returned in place of a new one. Both runs then have the same public history before each sum, which is what adaptive
    composition conditions on. The guarantee is refuted if a sum moves further than its plan claims; if a sum moves
    although the differing unit is not in its batch; if the total exceeds what the guarantee accounts for; or if
    anything else differs: attributes of what is returned, files, exceptions, or the number of draws.

    A replay is deterministic apart from the noise of the first run, and has no false alarms. It does not test the
    distributions of noise and samples, for which there are :func:`privet.audit.distinguish` and others. The generators
    of ``random``, numpy and torch are in the same state before both runs, and restored at the end.

    What ``train`` returns is walked through attributes, containers, functions and their closures. Variables of modules,
    generators and caches of functions are not seen. Printed messages and warnings are not compared either: those that
    depend on the data say that they are for the holder of the data only. Nor are attributes that are named in the
    ``_stays_with_holder`` of their class.
    """
    units = units or Units.of(data, neighbour)
    recorder = Recorder(units)
    path = None if folder is None else Path(folder)
    with _same_beginning(path) as restore:
        with watching(recorder):
            first = _Outcome.of(train, data, path)
        if first.error is not None and not recorder.draws:
            cause = str(first.error).strip() or type(first.error).__name__
            raise ValueError(f"The training refuses the data before it draws anything. {cause}") from first.error
        sources = sum(any(draw.is_release for draw in each) for each in recorder.draws.values())
        claim = guarantee or _common(first.guarantees, sources)
        if claim is not None:
            units.check_neighbours(claim.adjacency)
        restore()
        player = Player(recorder)
        with watching(player):
            second = _Outcome.of(train, neighbour, path)
    problems = [player.problem] if player.problem else _unlike(first, second)
    if player.left and not player.problem:
        drawn = len(recorder.all_draws)
        problems.append(f"the second run draws {drawn - player.left} times, and the first one {drawn} times")
    problems += [str(move) for move in player.moves if move.is_too_far]
    spent = None if claim is None else spent_share(player.moves, claim)
    if spent is not None and spent > 1 + 1e-9:
        problems.append(f"all releases together move by {spent:.6g} times what the guarantee accounts for")
    return Replayed(
        problems=tuple(each[0].upper() + each[1:] + "." for each in problems),
        releases=sum(draw.is_release for draw in recorder.all_draws),
        moved=len({move.place for move in player.moves}),
        largest=max((_share(move) for move in player.moves), default=0.0),
        spent=spent,
        epsilon=None if claim is None else claim.epsilon,
        delta=None if claim is None else claim.delta,
        name=name,
        error=None if first.error is None else _message(first.error),
        unbounded=sum(move.allowed == math.inf for move in player.moves) if spent is None else 0,
    )


class _Outcome:
    """What a run leaves behind."""

    def __init__(self, left: Leftovers | None, error: BaseException | None, files: dict[str, bytes]) -> None:
        self.digests = {} if left is None else left.digests
        self.guarantees = [] if left is None else left.guarantees
        self.error, self.files = error, files

    @classmethod
    def of(cls, train: Callable[[Any], Any], data: Any, folder: Path | None) -> "_Outcome":
        try:
            result, error = train(data), None
        except (Exception, SystemExit, Diverged) as caught:
            result, error = None, caught
        left = None if error is not None else Leftovers(result)
        return cls(left, error, {} if folder is None else files_in(folder))


def _unlike(first: _Outcome, second: _Outcome) -> list[str]:
    """Return sentences about everything that differs in what the two runs leave behind."""
    if (first.error is None) != (second.error is None) or _message(first.error) != _message(second.error):
        return [f"the first run ends with {_message(first.error)}, and the second one with {_message(second.error)}"]
    found = [f"what the run returns differs at {path}" for path in differences(first.digests, second.digests)]
    return found + [f"the file {path} differs" for path in differences(first.files, second.files)]


def _message(error: BaseException | None) -> str:
    """Return the type and the text of an error, without the addresses of objects, which are others in each run."""
    if error is None:
        return "no error"
    return f"{type(error).__name__}: {re.sub('at 0x[0-9a-fA-F]+', 'at ...', str(error))}"


def _share(move: Move) -> float:
    return move.distance / move.allowed if move.allowed > 0 else math.inf


def _common(guarantees: Sequence[Guarantee], sources: int) -> Guarantee | None:
    """Return the claim of all guarantees together.

    Equal guarantees may belong to several trainings, or be copies of one. Each training has a source of noise of its
    own, so they count at most once per source.
    """
    counted: list[Guarantee] = []
    for guarantee in guarantees:
        if counted.count(guarantee) < max(sources, 1):
            counted.append(guarantee)
    if len(counted) <= 1:
        return counted[0] if counted else None
    return compose(counted, delta=max(each.delta for each in counted))


def spent_share(moves: Sequence[Move], claim: Guarantee) -> float | None:
    """Return the cost of all moves together, in units of what the guarantee accounts for if nothing is sampled.

    Gaussian releases cost mu^2 = (distance/noise)^2 each, and pure releases their epsilon. Hidden iterates are counted
    as if they were visible: a unit is visited once per pass. None if the claim cannot be taken apart like this, or
    promises nothing.
    """
    leaves = claim.event.leaves()
    if not claim.is_private or any(isinstance(leaf, ApproximateRelease) for leaf in leaves):
        return None
    squares = epsilon = 0.0
    for leaf in leaves:
        if isinstance(leaf, NearlyGaussian):
            squares += leaf.mu**2
            continue
        whole = leaf.unsampled(claim.adjacency)
        hidden = isinstance(leaf, LastIterate)
        squares += _visible(leaf, claim.adjacency) if isinstance(leaf, LastIterate) else whole.mu**2
        epsilon += 0.0 if hidden else whole.epsilon
    costs = [_cost(move, is_pure=epsilon > 0) for move in moves]
    used, pure = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
    shares = [amount / limit if limit else math.inf for amount, limit in ((used, squares), (pure, epsilon)) if amount]
    return max(shares, default=0.0)


def _visible(leaf: LastIterate, adjacency: Adjacency) -> float:
    """Return the squared mu of the steps that visit one unit, if they were all released."""
    mu = adjacency.factor / leaf.noise_multiplier + leaf.rounding_mu()
    return leaf.runs * leaf.passes * mu**2


def _cost(move: Move, *, is_pure: bool) -> tuple[float, float]:
    """Return the squared mu and the epsilon that a move costs. One of them is 0."""
    ratio = move.distance / move.scale if move.scale else math.inf
    if ratio == 0:  # a subnormal distance
        return 0.0, 0.0
    if move.kind in ("Gaussian noise", "lattice noise", "no noise"):
        return ratio**2, 0.0
    if move.kind.startswith("choice") and not is_pure:
        return move.choices * selection_mu(ratio) ** 2, 0.0
    return 0.0, ratio * move.choices


@contextmanager
def _same_beginning(folder: Path | None) -> Iterator[Callable[[], None]]:
    """Yield a function that restores generators and files. The generators are restored at the end, too."""
    generators = global_generators.kept()
    with tempfile.TemporaryDirectory() as kept:
        if folder is not None and folder.exists():
            shutil.copytree(folder, Path(kept) / "files", symlinks=True)

        def restore() -> None:
            generators()
            if folder is None:
                return
            for each in folder.iterdir() if folder.exists() else ():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
            if (Path(kept) / "files").exists():
                shutil.copytree(Path(kept) / "files", folder, symlinks=True, dirs_exist_ok=True)
            elif folder.exists():
                folder.rmdir()

        try:
            yield restore
        finally:
            generators()
