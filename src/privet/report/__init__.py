"""Reports for readers who must judge a promise: one page per private model, plots, and the registry of deployments."""

from privet.report.facts import Curve, EffectRow, EffectTable, Facts, TestFigure
from privet.report.report import Report

__all__ = ["Curve", "EffectRow", "EffectTable", "Facts", "Report", "TestFigure"]
