"""What a report says about a private model besides its guarantee: public facts, in one form for all kinds of models."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from privet.privacy import Guarantee

# The kinds of models by the names of their classes, so that a report of one kind loads the libraries of no other.
_SOURCES = {
    "TableModel": "tables",
    "PrivateLinearModel": "estimators",
    "PrivateAdditiveModel": "estimators",
    "Pipeline": "estimators",
    "PrivateTraining": "networks",
    "RunResult": "federated",
}


@dataclass(frozen=True)
class EffectRow:
    """What one column, or one level of it, adds to the output of a model.

    Parameters
    ----------
    name : str
    change : str
        What is compared, such as ``from 0 to 120`` or ``female instead of male``.
    size : float
        The difference in the output.
    noise_std : float or None
        Standard deviation of what the privacy noise contributes to it, or None if it is not known.
    """

    name: str
    change: str
    size: float
    noise_std: float | None = None


@dataclass(frozen=True)
class EffectTable:
    """The effects on one output, with the largest first, and how many are not listed."""

    output: str
    rows: tuple[EffectRow, ...]
    hidden: int = 0


@dataclass(frozen=True)
class Curve:
    """A public course of the training, such as the score on public data after each round."""

    title: str
    x: str
    y: str
    points: tuple[tuple[float, float], ...]
    note: str


@dataclass(frozen=True)
class TestFigure:
    """A figure on test records, with the interval that covers the true one in 95 of 100 samples."""

    __test__ = False  # The name is not that of a test.

    name: str
    value: float
    low: float
    high: float
    is_share: bool
    records: int
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """Public facts about a private model.

    Parameters
    ----------
    kind, title : str
        What it is, such as ``logistic regression``, and the heading of its report.
    purpose : str
        What it is for, completing "The model ...".
    settings : sequence of pairs
        How it was trained, as names and values.
    inputs : sequence of pairs
        The columns or features that it uses, and their public descriptions.
    trust : str
        Who saw unprotected data, and who had to be honest, in whole sentences.
    deployment : str
        The model of deployment in the terms of the registry: ``Central`` or ``Federated``.
    effects : tuple of EffectTable
    effects_note : str
        What is known about the noise in the effects, in whole sentences.
    curves : tuple of Curve
    shapes : tuple of pairs
        Titles and pictures of the curves of an additive model, as SVG elements.
    shapes_note : str
        What they show, in whole sentences.
    """

    kind: str
    title: str
    purpose: str
    settings: Sequence[tuple[str, str]]
    trust: str
    deployment: str = "Central"
    inputs: Sequence[tuple[str, str]] = ()
    effects: tuple[EffectTable, ...] = ()
    effects_note: str = ""
    curves: tuple[Curve, ...] = ()
    shapes: tuple[tuple[str, str], ...] = ()
    shapes_note: str = ""


def facts_of(thing: Any) -> tuple[Guarantee, Facts]:
    """Return the guarantee of a private model, and the public facts about it."""
    for kind in type(thing).__mro__:
        if kind.__name__ in _SOURCES:
            found: tuple[Guarantee, Facts] = import_module(f"privet.report.sources.{_SOURCES[kind.__name__]}").facts(
                thing
            )
            return found
    raise TypeError(
        f"{type(thing).__name__} cannot be reported. privet reports models of tables, linear estimators, pipelines "
        "of them, trainings of make_private and results of simulate."
    )
