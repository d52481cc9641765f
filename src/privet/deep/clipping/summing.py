"""Sums over a batch whose rounding errors stay within a public share of the clipping norm.

A sum of n vectors of norm at most c, computed in any order with unit roundoff u, errs by at most u n (2 n + 8) / 3
times c. In single precision this grows to 17 % of c for 2048 examples. So a large batch is added up in products of few
examples, products in groups of a few, and groups in double precision. docs/proofs.md, section 24, has the proof.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

SHARE = 0.01
"""The largest share of the clipping norm that is reserved for the rounding of sums."""

_SMALLEST_SHARE = 1e-6
"""The smallest such share. It allows batches of far more examples than expected, added up in double precision."""

MARGIN = 2.0**-15
"""Bound on the relative error of an example's computed norm and clipping factor, for which room is reserved, too."""

SMALLEST_CLIP, LARGEST_CLIP = 1e-12, 1e25
"""The range of clipping norms in which no sum overflows and underflow is negligible, in single precision."""

Add = Callable[[slice, Tensor, float], None]
"""Computes the sum of some examples, in the format of a flat vector, and adds it to beta times that vector."""

_LEAST = 20
"""With fewer examples and products than this, single precision is no faster than double precision."""


def reserved_share(examples: float, dtype: torch.dtype) -> float:
    """Return the share of the clipping norm that is reserved for the rounding of a sum and of its neighbour's.

    Parameters
    ----------
    examples : float
        The public, expected number of examples in a batch. Batches of up to twice as many need no smaller products.
    dtype : torch.dtype
        The narrowest format of the trained parameters.
    """
    size = max(64.0, 2 * examples)
    return min(SHARE, max(_SMALLEST_SHARE, 2 * _unit(dtype) * size * (_growth(size) + 2)))


def room(examples: float, dtype: torch.dtype) -> float:
    """Return the share of the clipping norm that an example may use, such that rounding errors fit into the rest."""
    return 1 / ((1 + reserved_share(examples, dtype)) * (1 + MARGIN))


@dataclass(frozen=True)
class Summation:
    """How the sum over the examples of a batch is computed.

    Parameters
    ----------
    terms : int
        The number of examples in the sum, over all parts of the batch.
    per_product : int
        How many examples one product adds up, in any order.
    per_group : int
        How many products are added before the result is added in double precision.
    is_double : bool
        Whether everything is added up in double precision.
    unit : float
        The unit roundoff for which the other numbers were chosen.
    """

    terms: int
    per_product: int
    per_group: int
    is_double: bool
    unit: float

    @classmethod
    def within(cls, error: float, terms: int, dtype: torch.dtype = torch.float32) -> "Summation":
        """Return how to sum ``terms`` vectors of norm at most c with an error of at most ``error`` times c."""
        unit, terms = _unit(dtype), max(1, terms)
        growth = error / (unit * terms) - 2  # The sum may be rounded once more, to single precision.
        if _growth(terms) <= growth:
            return cls(terms, terms, 1, False, unit)
        both = math.floor(1.5 * growth - 8)
        if both < _LEAST and 2.0**-53 * terms * _growth(terms) > error:
            raise ValueError(
                f"A batch has {terms} examples, far more than expected, and the rounding errors of its sum do not fit "
                "into the share of the clipping norm that is reserved for them. Set public_n to about the number of "
                "examples, or use smaller batches."
            )
        per_group = min(math.ceil(terms / max(1, both)) + 1, both // 4)
        return cls(terms, both - per_group, per_group, both < _LEAST, unit)

    @property
    def is_plain(self) -> bool:
        """Whether all examples may be added up in any order, without products and groups."""
        return not self.is_double and self.per_product >= self.terms

    def slot_dtype(self, dtype: torch.dtype, parts: int) -> torch.dtype:
        """Return the format in which a batch in several parts is added up: ``dtype`` if that is accurate enough."""
        is_one_group = not self.is_double and parts == 1 and self.terms <= self.per_product * self.per_group
        return dtype if self.is_plain or is_one_group else torch.float64

    def add_sum(self, slot: Tensor, size: int, like: Tensor, add: Add) -> None:
        """Add the sum over ``size`` examples to a vector. ``like`` has the format and device of their gradients.

        A vector in single precision must be zero beforehand, unless :attr:`is_plain`.
        """
        if self.is_double or _unit(like.dtype) > self.unit:
            self._add_in_one(slot, size, torch.float64, like, add)
        elif self.is_plain:
            self._add_in_one(slot, size, like.dtype, like, add)
        else:
            self._add_in_groups(slot, size, like, add)

    @staticmethod
    def _add_in_one(slot: Tensor, size: int, dtype: torch.dtype, like: Tensor, add: Add) -> None:
        total = _accumulator(slot, dtype, like)
        if size:
            add(slice(0, size), total, 1.0)
        _put_back(slot, total)

    def _add_in_groups(self, slot: Tensor, size: int, like: Tensor, add: Add) -> None:
        product = like.new_empty(len(slot))
        for start in range(0, size, self.per_product * self.per_group):
            end = min(size, start + self.per_product * self.per_group)
            total = _accumulator(slot, like.dtype, like)
            add(slice(start, min(end, start + self.per_product)), total, 1.0)  # The vector is zero so far.
            for first in range(start + self.per_product, end, self.per_product):
                add(slice(first, min(end, first + self.per_product)), product, 0.0)
                total += product
            _put_back(slot, total)


@contextmanager
def full_precision(device: str) -> Iterator[None]:
    """Compute products in the full precision of their factors while the context lasts.

    Automatic mixed precision, and a lower precision of float32 products that the caller chose, would not be covered by
    the bounds of this module.
    """
    with torch.autocast(device, enabled=False), _full_precision_of_products():
        yield


@contextmanager
def _full_precision_of_products() -> Iterator[None]:
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # The caller chose precisions by torch's newer settings, which exclude the older one.
        settings = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
        chosen = [setting.fp32_precision for setting in settings]
        try:
            for setting in settings:
                setting.fp32_precision = "ieee"
            yield
        finally:
            for setting, precision in zip(settings, chosen, strict=True):
                setting.fp32_precision = precision
        return
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _accumulator(slot: Tensor, dtype: torch.dtype, like: Tensor) -> Tensor:
    """Return the vector itself if it has the wanted format and device, and otherwise a vector of zeros that has."""
    if slot.dtype == dtype and slot.device == like.device:
        return slot
    return torch.zeros(len(slot), dtype=dtype, device=like.device)


def _put_back(slot: Tensor, total: Tensor) -> None:
    """Add what :func:`_accumulator` returned to the vector, unless it is the vector."""
    if total is not slot:
        slot += total.to(slot.device)


def _growth(terms: float) -> float:
    """Return a bound on the error of a sum of ``terms`` vectors, in units of roundoff times the sum of their bounds."""
    return (2 * terms + 8) / 3


def _unit(dtype: torch.dtype) -> float:
    """Return the unit roundoff of a format. Numbers in half precision are never added up."""
    return 2.0**-53 if dtype is torch.float64 else 2.0**-24
