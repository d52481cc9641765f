"""Per-example gradients of one parameter, without writing them out.

The gradient of a weight is, example by example, a sum of outer products of what went into a layer and what came back
from it. Norms and weighted sums follow from the two factors, at the price of the plain gradient.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


class PerExample(ABC):
    """The gradients of one parameter for each of B examples."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return the squared norm of each example's gradient, of shape (B,), in double precision.

        Never less than that of what :meth:`weighted_sum` adds up, rounding included (but for a relative 1e-5): a norm
        that is lost to cancellation or underflow would let an example of any length pass the clip.
        """

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over examples of weight times gradient, in the parameter's shape."""

    def add_weighted_sum(self, weights: Tensor, slot: Tensor) -> None:
        """Add the weighted sum to a flat vector."""
        slot += self.weighted_sum(weights).flatten().to(slot)

    @abstractmethod
    def written_out(self) -> Tensor:
        """Return all of them, of shape (B, *parameter)."""

    @abstractmethod
    def only(self, chosen: Tensor) -> "PerExample":
        """Return those of some examples, by a mask."""

    def minus(self, other: "PerExample") -> "PerExample":
        """Return each example's gradient less its counterpart at other parameters, of the same batch."""
        return Direct(self.written_out() - other.written_out())

    def as_outer_sum(self) -> "OuterSum | None":
        """Return the same gradients by their factors, if they have any."""
        return None


@dataclass(frozen=True)
class Direct(PerExample):
    """Gradients that are small enough to be there: of biases, of scales, of what the general rule returns."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the squared norms."""
        return lengths(self.values.flatten(1)).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum: one product."""
        return (weights @ self.values.flatten(1)).view(self.values.shape[1:])

    def written_out(self) -> Tensor:
        """Return them."""
        return self.values

    def only(self, chosen: Tensor) -> "Direct":
        """Return some of them."""
        return Direct(self.values[chosen])


@dataclass(frozen=True)
class OuterSum(PerExample):
    """sum_t right_t (x) left_t: of a linear map applied at T places, of groups of channels each by itself.

    Parameters
    ----------
    left : tensor of shape (B, G, T, p)
        What went in.
    right : tensor of shape (B, G, T, q)
        The gradient of what came out.
    shape : sequence of int
        The parameter's shape, of G q p numbers in that order.
    """

    left: Tensor
    right: Tensor
    shape: Sequence[int]

    @cached_property
    def _outer(self) -> Tensor:
        batch, groups = self.left.shape[:2]
        outer = torch.bmm(self.right.flatten(0, 1).transpose(1, 2), self.left.flatten(0, 1))
        return outer.view(batch, groups, *outer.shape[1:])

    @property
    def _is_written_out(self) -> bool:
        _, _, places, p = self.left.shape
        return places > 1 and not places_are_few(places, p, self.right.shape[3])

    def squared_norms(self) -> Tensor:
        """Return the squared norms: at one place |left|^2 |right|^2, at few by products of places."""
        if self._is_written_out:
            return Direct(self._outer).squared_norms()
        if self.left.shape[2] == 1:
            return (lengths(self.left) * lengths(self.right)).square().sum((1, 2))
        return squared_norms_by_places(self.left, self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum: one product over examples and places."""
        if self._is_written_out:
            return Direct(self._outer).weighted_sum(weights).view(*self.shape)
        right, left = _by_group(*_scaled(self.right, self.left, weights))
        return (right.transpose(1, 2) @ left).reshape(*self.shape)

    def add_weighted_sum(self, weights: Tensor, slot: Tensor) -> None:
        """Add the weighted sum in place, a few examples at a time: nothing but a few scaled factors is made for it."""
        if self._is_written_out or slot.dtype != self.left.dtype or slot.device != self.left.device:
            return super().add_weighted_sum(weights, slot)
        groups, p, q = self.left.shape[1], self.left.shape[3], self.right.shape[3]
        size = max(1, _CHUNK // max(1, self.left[:1].numel(), self.right[:1].numel()))
        pieces = (each.split(size) for each in (self.right, self.left, weights))
        for some_right, some_left, some_weights in zip(*pieces, strict=True):
            right, left = _by_group(*_scaled(some_right, some_left, some_weights))
            slot.view(groups, q, p).baddbmm_(right.transpose(1, 2), left)
        return None

    def written_out(self) -> Tensor:
        """Return them."""
        return self._outer.reshape(-1, *self.shape)

    def only(self, chosen: Tensor) -> "OuterSum":
        """Return some of them."""
        return OuterSum(self.left[chosen], self.right[chosen], self.shape)

    def minus(self, other: PerExample) -> PerExample:
        """Return the differences r l - s m as (r - s) l + s (l - m): nothing large cancels in their norms."""
        if not isinstance(other, OuterSum) or self.left.shape != other.left.shape or self._is_written_out:
            return super().minus(other)
        left = torch.cat([self.left, self.left - other.left], dim=2)
        return OuterSum(left, torch.cat([self.right - other.right, other.right], dim=2), self.shape)

    def as_outer_sum(self) -> "OuterSum":
        """Return them."""
        return self


_CHUNK = 1 << 17
"""How many numbers of a factor are scaled at a time."""


def _scaled(right: Tensor, left: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return both factors, the smaller one with each example's weight."""
    scale = weights[:, None, None, None]
    return (right, left * scale) if left.numel() < right.numel() else (right * scale, left)


def _by_group(*factors: Tensor) -> tuple[Tensor, ...]:
    """Return factors of shape (B, G, T, .) as (G, B T, .)."""
    return tuple(each.transpose(0, 1).reshape(each.shape[1], -1, each.shape[3]) for each in factors)


def places_are_few(places: int, p: int, q: int) -> bool:
    """Whether products of places, T^2 (p + q) steps, are cheaper than outer products of p and q, T p q steps."""
    return places * (p + q) < p * q


def squared_norms_by_places(left: Tensor, right: Tensor) -> Tensor:
    """Return |sum_t r_t (x) l_t|^2 = sum_{t,u} <r_t, r_u> <l_t, l_u>, for factors of shape (B, G, T, .).

    In double precision, a few examples at a time, since large terms may cancel.
    """
    size = max(1, _CHUNK // max(1, left[:1].numel() + right[:1].numel()))
    terms = left.shape[3] + right.shape[3] + left.shape[2] ** 2
    found = []
    for some_left, some_right in zip(left.split(size), right.split(size), strict=True):
        exact_left, exact_right = some_left.double(), some_right.double()
        lefts, rights = exact_left @ exact_left.transpose(2, 3), exact_right @ exact_right.transpose(2, 3)
        sizes = (lefts.diagonal(dim1=2, dim2=3) * rights.diagonal(dim1=2, dim2=3)).sqrt().sum(2)
        squares = (lefts * rights).sum((2, 3)) + _rounding(terms, torch.float64) * sizes.square()
        found.append(_allowing(squares, sizes * _rounding(left.shape[2], left.dtype)).sum(1))
    return torch.cat(found)


def lengths(values: Tensor) -> Tensor:
    """Return norms over the last dimension in double precision; squares that may have under- or overflowed anew."""
    found = torch.linalg.vector_norm(values, dim=-1)
    if values.dtype is torch.float32 and bool(((found < 1e-12) | (found > 1e18)).any()):
        found = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float64)
    return found.double()


def _rounding(terms: int, dtype: torch.dtype) -> float:
    """Return how far a sum of so many terms may be off, relative to the sum of their sizes."""
    return (terms + 4) * float(torch.finfo(dtype).eps)


def _allowing(squares: Tensor, rounding: Tensor) -> Tensor:
    """Return squared norms with what rounding can add to a sum of large terms that cancel, where that matters."""
    norms = squares.clamp_min(0).sqrt()
    return torch.where(rounding <= 1e-5 * norms, norms, norms + rounding).square()


@dataclass(frozen=True)
class RowSum(PerExample):
    """Gradients of a table of rows of which each example uses a few: an embedding.

    Parameters
    ----------
    indices : tensor of shape (B, T)
        The rows used.
    right : tensor of shape (B, T, q)
        The gradient of what came out at each place.
    shape : sequence of int
        The parameter's, (rows, q).
    """

    indices: Tensor
    right: Tensor
    shape: Sequence[int]

    def squared_norms(self) -> Tensor:
        """Return the squared norms: places that use the same row add up before they are squared."""
        batch, places = self.indices.shape
        rows, owners = self.shape[0], torch.arange(batch, device=self.indices.device)
        used, which = torch.unique(self.indices + owners[:, None] * rows, return_inverse=True)
        exact = self.right.double().flatten(0, 1)
        sums = exact.new_zeros(len(used), exact.shape[1]).index_add_(0, which.flatten(), exact)
        owner = used // rows
        squares = exact.new_zeros(batch).index_add_(0, owner, sums.square().sum(1))
        sizes = exact.norm(dim=1).view(batch, places).sum(1)
        return _allowing(squares, sizes * _rounding(places, self.right.dtype))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum."""
        total = self.right.new_zeros(*self.shape)
        return total.index_add_(0, self.indices.flatten(), (self.right * weights[:, None, None]).flatten(0, 1))

    def written_out(self) -> Tensor:
        """Return them: many zeros."""
        values = self.right.new_zeros(len(self.right), *self.shape)
        return values.scatter_add_(1, self.indices[:, :, None].expand_as(self.right), self.right)

    def only(self, chosen: Tensor) -> "RowSum":
        """Return some of them."""
        return RowSum(self.indices[chosen], self.right[chosen], self.shape)

    def minus(self, other: PerExample) -> PerExample:
        """Return the differences: the same batch uses the same rows."""
        if not isinstance(other, RowSum) or not torch.equal(self.indices, other.indices):
            return super().minus(other)
        return RowSum(self.indices, self.right - other.right, self.shape)


def together(parts: Sequence[PerExample]) -> PerExample:
    """Return the sum of several contributions to one parameter: of a layer used twice, or of tied weights."""
    if len(parts) == 1:
        return parts[0]
    outers = [outer for part in parts if (outer := part.as_outer_sum()) is not None]
    if len(outers) == len(parts) and len({(outer.left.shape[1], outer.left.shape[3]) for outer in outers}) == 1:
        left = torch.cat([outer.left for outer in outers], dim=2)
        return OuterSum(left, torch.cat([outer.right for outer in outers], dim=2), outers[0].shape)
    rows = [part for part in parts if isinstance(part, RowSum)]
    if len(rows) == len(parts):
        indices = torch.cat([part.indices for part in rows], dim=1)
        return RowSum(indices, torch.cat([part.right for part in rows], dim=1), rows[0].shape)
    return Direct(torch.stack([part.written_out() for part in parts]).sum(0))
