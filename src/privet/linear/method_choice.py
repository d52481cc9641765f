"""The choice of a training method: which methods apply to an estimator's settings, and which of them auto takes."""

from collections.abc import Mapping
from functools import lru_cache
from inspect import signature
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar

from privet.linear.methods import METHODS, Method, Task, method_settings, named
from privet.objectives import GeneralisedLinear, Squared


class MethodChoice:
    """Mixin of the linear estimators that chooses their method."""

    _loss: ClassVar[type[GeneralisedLinear]]
    _is_sparse: ClassVar[bool] = False
    method: Any
    max_iter: int | None

    @classmethod
    def offered_methods(cls) -> dict[str, Method]:
        """Return the methods that this estimator offers, by name."""
        offered = {}
        for name, method in METHODS.items():
            has_bound = cls._loss.has_bounded_gradient or not method.needs_bound
            has_moments = issubclass(cls._loss, Squared) or not method.needs_squared
            if method.is_sparse == cls._is_sparse and has_bound and has_moments:
                offered[name] = method
        return offered

    @classmethod
    @lru_cache(maxsize=256)  # A fit asks for them many times, and signature() takes as long as a short training.
    def _default_settings(cls) -> Mapping[str, Any]:
        """Return the settings of this estimator and their default values."""
        return MappingProxyType({name: each.default for name, each in signature(cls).parameters.items()})

    def _is_set(self, setting: str) -> bool:
        """Return whether the estimator has a setting whose value is not the default."""
        defaults = self._default_settings()
        return setting in defaults and bool(getattr(self, setting) != defaults[setting])

    def _applicable_methods(self, *, is_pure: bool, has_one_score: bool) -> list[Method]:
        """Return the method that was asked for, or those among which auto chooses. Raise if there is none."""
        able = [
            each
            for each in self.offered_methods().values()
            if (each.is_pure or not is_pure) and (has_one_score or not each.needs_one_score)
        ]
        wanted = [each for each in able if each.name == self.method or (self.method == "auto" and each.excess)]
        if not wanted:
            raise ValueError(self._why_not_offered(able, is_pure))
        fitting = wanted
        for setting in method_settings():
            if self._is_set(setting):
                fitting = [each for each in fitting if setting in each.uses]
                if not fitting:
                    raise ValueError(self._why_unused(wanted[0], setting, able, is_pure))
        if self.method == "auto" and self.max_iter is not None:
            fitting = [each for each in fitting if each.takes_steps] or fitting
        return fitting

    def _choose_method(self, task: Task) -> tuple[Method, str]:
        """Return the method to run and the reason for it: it was asked for, or its expected excess is the least."""
        able = self._applicable_methods(
            is_pure=task.budget.is_pure, has_one_score=task.problem.objective.clips_to_convex
        )
        if self.method != "auto":
            return able[0], "asked for"
        excess = {each.name: each.excess(task) for each in able if each.excess}
        first, *others = sorted(excess, key=lambda name: excess[name])
        compared = ", ".join(f"{name}: {excess[name]:.2g}" for name in others)
        reason = f"by public numbers, its result is expected to be {excess[first]:.2g} above the minimum"
        return METHODS[first], f"{reason} ({compared})" if others else "the only method that fits the settings"

    def _why_unused(self, method: Method, setting: str, able: list[Method], is_pure: bool) -> str:
        """Return that a method does not use a setting, and which of the applicable methods do."""
        users, value = [each for each in able if setting in each.uses], getattr(self, setting)
        if is_pure and not users and self.method == "auto":
            gaussian = [each for each in self.offered_methods().values() if setting in each.uses]
            return (
                f"delta=0 asks for pure epsilon, but {setting} is a setting of {named(gaussian)}, which adds Gaussian "
                f"noise and gives no pure epsilon guarantee. Set delta > 0, or leave {setting} out."
            )
        others = f", or use {named(users)}" if users else ""
        got = f"{value:g}" if isinstance(value, Real) else repr(value)
        return f"method={method.name!r} does not use {setting} (got {got}). Leave {setting} out{others}."

    def _why_not_offered(self, able: list[Method], is_pure: bool) -> str:
        """Return why ``self.method`` cannot be used, and which methods can."""
        name, known = type(self).__name__, METHODS.get(self.method) if isinstance(self.method, str) else None
        if is_pure and (self.method == "auto" or (known and not known.is_pure and known.is_sparse == self._is_sparse)):
            gaussian = f"method={self.method!r}" if known else f"every method of {name}"
            remedy = f", or use {named(able)}" if able else ""
            return (
                f"delta=0 asks for pure epsilon, but {gaussian} adds Gaussian noise, which gives no pure epsilon "
                f"guarantee. Set delta > 0 or leave it out for its default{remedy}."
            )
        if known is None or known.is_sparse != self._is_sparse:
            *names, last = self.offered_methods()
            return f"method must be auto, {', '.join(names)} or {last}, got {self.method!r}."
        if known.needs_bound and not self._loss.has_bounded_gradient:
            return (
                f"method={known.name!r} needs a loss with bounded gradients, but the loss of {name} is unbounded. Use "
                f"PrivateHuberRegressor, or {named(able)}."
            )
        if known.needs_squared and not issubclass(self._loss, Squared):
            return (
                f"method={known.name!r} needs the squared loss of numbers, which {name} does not have. Use "
                f"PrivateRidge, or {named(able)}."
            )
        needs = f"method={known.name!r} needs a loss of one score per record, which several classes do not have."
        return f"{needs} Use {named(able)}."
