"""Per-example gradients of one parameter, without materialising them.

For each example, the gradient of a weight is a sum of outer products of the layer's input and the gradient of its
output. Norms and weighted sums are computed from these two factors, at the cost of an ordinary gradient.
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

        The result is never below the squared norm of what :meth:`weighted_sum` adds, including rounding (up to a
        relative error of 1e-5). Otherwise, an example whose norm is lost to cancellation or underflow would not be
        clipped.
        """

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over examples of weight times gradient, in the parameter's shape."""

    def add_weighted_sum(self, weights: Tensor, slot: Tensor) -> None:
        """Add the weighted sum to a flat vector."""
        slot += self.weighted_sum(weights).flatten().to(slot)

    @abstractmethod
    def written_out(self) -> Tensor:
        """Return the gradients of all examples, of shape (B, *parameter)."""

    @abstractmethod
    def only(self, chosen: Tensor) -> "PerExample":
        """Return the gradients of the examples that a boolean mask selects."""

    def minus(self, other: "PerExample") -> "PerExample":
        """Return the difference between each example's gradient here and in ``other``, of the same batch."""
        return Direct(self.written_out() - other.written_out())

    def as_outer_sum(self) -> "OuterSum | None":
        """Return the same gradients as factors, or None if they cannot be written as factors."""
        return None


@dataclass(frozen=True)
class Direct(PerExample):
    """Materialised gradients: of biases, of scales, and those that the general rule returns."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each example's gradient."""
        return lengths(self.values.flatten(1)).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum, computed as one product."""
        return (weights @ self.values.flatten(1)).view(self.values.shape[1:])

    def written_out(self) -> Tensor:
        """Return the gradients of all examples, of shape (B, *parameter)."""
        return self.values

    def only(self, chosen: Tensor) -> "Direct":
        """Return the gradients of the examples that a boolean mask selects."""
        return Direct(self.values[chosen])


@dataclass(frozen=True)
class OuterSum(PerExample):
    """Gradients sum_t right_t (x) left_t of a linear map at T positions, separately for each of G groups of channels.

    Parameters
    ----------
    left : tensor of shape (B, G, T, p)
        The input at each position.
    right : tensor of shape (B, G, T, q)
        The gradient of the output at each position.
    shape : sequence of int
        The parameter's shape, with G q p entries in that order.
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
        """Return the squared norms: |left|^2 |right|^2 for one position, and inner products of positions for a few."""
        if self._is_written_out:
            return Direct(self._outer).squared_norms()
        if self.left.shape[2] == 1:
            return (lengths(self.left) * lengths(self.right)).square().sum((1, 2))
        return squared_norms_by_places(self.left, self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum, computed as one product over examples and positions."""
        if self._is_written_out:
            return Direct(self._outer).weighted_sum(weights).view(*self.shape)
        right, left = _by_group(*_scaled(self.right, self.left, weights))
        return (right.transpose(1, 2) @ left).reshape(*self.shape)

    def add_weighted_sum(self, weights: Tensor, slot: Tensor) -> None:
        """Add the weighted sum in place, for a few examples at a time, so that few scaled factors need memory."""
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
        """Return the gradients of all examples, of shape (B, *parameter)."""
        return self._outer.reshape(-1, *self.shape)

    def only(self, chosen: Tensor) -> "OuterSum":
        """Return the gradients of the examples that a boolean mask selects."""
        return OuterSum(self.left[chosen], self.right[chosen], self.shape)

    def minus(self, other: PerExample) -> PerExample:
        """Return the differences r l - s m as (r - s) l + s (l - m), so that no large terms cancel in their norms."""
        if not isinstance(other, OuterSum) or self.left.shape != other.left.shape or self._is_written_out:
            return super().minus(other)
        left = torch.cat([self.left, self.left - other.left], dim=2)
        return OuterSum(left, torch.cat([self.right - other.right, other.right], dim=2), self.shape)

    def as_outer_sum(self) -> "OuterSum":
        """Return these gradients, which are factors already."""
        return self


_CHUNK = 1 << 17
"""How many values of a factor are scaled at a time."""


def _scaled(right: Tensor, left: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return both factors, the smaller one multiplied by each example's weight."""
    scale = weights[:, None, None, None]
    return (right, left * scale) if left.numel() < right.numel() else (right * scale, left)


def _by_group(*factors: Tensor) -> tuple[Tensor, ...]:
    """Return factors of shape (B, G, T, .) in the shape (G, B T, .)."""
    return tuple(each.transpose(0, 1).reshape(each.shape[1], -1, each.shape[3]) for each in factors)


def places_are_few(places: int, p: int, q: int) -> bool:
    """Whether inner products of T positions, of cost T^2 (p + q), are cheaper than outer products, of cost T p q."""
    return places * (p + q) < p * q


def squared_norms_by_places(left: Tensor, right: Tensor) -> Tensor:
    """Return |sum_t r_t (x) l_t|^2 = sum_{t,u} <r_t, r_u> <l_t, l_u>, for factors of shape (B, G, T, .).

    The computation is in double precision, because large terms may cancel, and for a few examples at a time.
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
    """Return norms over the last dimension in double precision.

    They are recomputed in double precision if squares may have underflowed or overflowed.
    """
    found = torch.linalg.vector_norm(values, dim=-1)
    if values.dtype is torch.float32 and bool(((found < 1e-12) | (found > 1e18)).any()):
        found = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float64)
    return found.double()


def _rounding(terms: int, dtype: torch.dtype) -> float:
    """Return a bound on the rounding error of a sum of ``terms`` terms, relative to the sum of their sizes."""
    return (terms + 4) * float(torch.finfo(dtype).eps)


def _allowing(squares: Tensor, rounding: Tensor) -> Tensor:
    """Return squared norms, increased by the rounding error of sums in which large terms cancel, where it matters."""
    norms = squares.clamp_min(0).sqrt()
    return torch.where(rounding <= 1e-5 * norms, norms, norms + rounding).square()


@dataclass(frozen=True)
class RowSum(PerExample):
    """Gradients of a table of which each example uses a few rows, as in an embedding.

    Parameters
    ----------
    indices : tensor of shape (B, T)
        The row that is used at each position.
    right : tensor of shape (B, T, q)
        The gradient of the output at each position.
    shape : sequence of int
        The parameter's shape, (rows, q).
    """

    indices: Tensor
    right: Tensor
    shape: Sequence[int]

    def squared_norms(self) -> Tensor:
        """Return the squared norms. Positions that use the same row are added before they are squared."""
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
        """Return the weighted sum, in the parameter's shape."""
        total = self.right.new_zeros(*self.shape)
        return total.index_add_(0, self.indices.flatten(), (self.right * weights[:, None, None]).flatten(0, 1))

    def written_out(self) -> Tensor:
        """Return the gradients of all examples, of shape (B, rows, q), most of which is zero."""
        values = self.right.new_zeros(len(self.right), *self.shape)
        return values.scatter_add_(1, self.indices[:, :, None].expand_as(self.right), self.right)

    def only(self, chosen: Tensor) -> "RowSum":
        """Return the gradients of the examples that a boolean mask selects."""
        return RowSum(self.indices[chosen], self.right[chosen], self.shape)

    def minus(self, other: PerExample) -> PerExample:
        """Return the differences. The same batch uses the same rows."""
        if not isinstance(other, RowSum) or not torch.equal(self.indices, other.indices):
            return super().minus(other)
        return RowSum(self.indices, self.right - other.right, self.shape)


def together(parts: Sequence[PerExample]) -> PerExample:
    """Return the sum of several contributions to one parameter, from a layer that is used twice or tied weights."""
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
