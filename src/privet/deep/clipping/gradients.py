"""Per-example gradients of one parameter, without materialising them.

For each example, the gradient of a weight is a sum of outer products of the layer's input and the gradient of its
output. Norms and weighted sums are computed from these two factors, at the cost of an ordinary gradient.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from privet.deep.clipping.outer_products import (
    CHUNK,
    allowing_for_cancellation,
    outer_products,
    places_are_few,
    squared_norms_by_places,
    write_outer_products,
)
from privet.deep.clipping.summing import SHARE, Add, Summation
from privet.networks.norms import lengths, wide


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
    def add_weighted_sum(self, weights: Tensor, slot: Tensor, summation: Summation) -> None:
        """Add the sum over examples of weight times gradient to a flat vector. The weights are in double precision."""

    @abstractmethod
    def like(self) -> Tensor:
        """Return a tensor of the gradients' dtype and device, in the parameter's shape. Its values are undefined."""

    def weighted_sum(self, weights: Tensor, summation: Summation | None = None) -> Tensor:
        """Return the sum over examples of weight times gradient, in the parameter's shape."""
        like = self.like()
        total = torch.zeros(like.numel(), dtype=torch.float64, device=like.device)
        chosen = summation or Summation.within(SHARE / 2, len(weights))
        self.add_weighted_sum(weights.double(), total, chosen)
        return total.to(like.dtype if chosen.is_plain else torch.float64).view(like.shape)

    @abstractmethod
    def written_out(self) -> Tensor:
        """Return the gradients of all examples, of shape (B, *parameter)."""

    @abstractmethod
    def only(self, chosen: Tensor) -> "PerExample":
        """Return the gradients of the examples that a boolean mask selects."""

    def minus(self, other: "PerExample") -> "PerExample":
        """Return the difference between each example's gradient here and in ``other``, of the same batch."""
        return Direct(self.written_out() - other.written_out())

    def merged(self, views: int) -> "PerExample":
        """Return the sum over each ``views`` consecutive examples, which are views of one example."""
        return Direct(self.written_out().unflatten(0, (-1, views)).sum(1))

    def as_outer_sum(self) -> "OuterSum | None":
        """Return the same gradients as factors, or None if they cannot be written as factors."""
        return None

    @property
    def row_size(self) -> int:
        """Number of values of one gradient, if norms and sums are computed from materialised gradients, and else 0."""
        return 0

    def write_rows(self, chosen: slice, rows: Tensor) -> None:
        """Write the gradients of some examples to the rows of a matrix, which has :attr:`row_size` columns."""
        raise NotImplementedError(f"{type(self).__name__} has no rows")

    def from_row(self, row: Tensor) -> Tensor:
        """Return a row in the order of the parameter's values."""
        return row


@dataclass(frozen=True)
class Direct(PerExample):
    """Materialised gradients: of biases, of scales, and those that the general rule returns."""

    values: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", wide(self.values))

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each example's gradient."""
        return lengths(self.values.flatten(1)).square()

    def add_weighted_sum(self, weights: Tensor, slot: Tensor, summation: Summation) -> None:
        """Add the weighted sum, computed as products of weights and gradients."""
        values = self.values.flatten(1)
        weights = weights.to(values.dtype)

        def add(chosen: slice, out: Tensor, beta: float) -> None:
            if out.dtype == values.dtype:
                out.addmv_(values[chosen].t(), weights[chosen], beta=beta)
                return
            for some, of_some in _pieces(values.shape[1], values[chosen], weights[chosen]):
                out.addmv_(some.to(out.dtype).t(), of_some.to(out.dtype), beta=beta)
                beta = 1.0

        summation.add_sum(slot, len(values), values, add)

    def like(self) -> Tensor:
        """Return a tensor of the gradients' dtype and device, in the parameter's shape."""
        return self.values.new_empty(self.values.shape[1:])

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

    def __post_init__(self) -> None:
        kind = torch.promote_types(wide(self.left).dtype, wide(self.right).dtype)
        object.__setattr__(self, "left", self.left.to(kind))
        object.__setattr__(self, "right", self.right.to(kind))

    @cached_property
    def _outer(self) -> Tensor:
        return outer_products(self.right, self.left)

    @property
    def _is_written_out(self) -> bool:
        _, _, places, p = self.left.shape
        return places > 1 and not places_are_few(places, p, self.right.shape[3])

    @property
    def row_size(self) -> int:
        """Number of values of one gradient, unless it has one position, or inner products of positions are cheaper."""
        _, _, places, p = self.left.shape
        is_cheaper = places == 1 or places_are_few(2 * places, p, self.right.shape[3])
        return 0 if is_cheaper else math.prod(self.shape)

    def write_rows(self, chosen: slice, rows: Tensor) -> None:
        """Write the gradients of some examples to the rows of a matrix."""
        write_outer_products(self.right[chosen], self.left[chosen], rows)

    def squared_norms(self) -> Tensor:
        """Return the squared norms: |left|^2 |right|^2 for one position, and inner products of positions for a few."""
        if self._is_written_out:
            return Direct(self._outer).squared_norms()
        if self.left.shape[2] == 1:
            lefts, rights = lengths(self.left), lengths(self.right)
            # A larger factor could magnify what underflows when the other one is scaled. The example counts as zero.
            is_safe = torch.maximum(lefts, rights).amax((1, 2)) <= _LARGEST_FACTOR
            return torch.where(is_safe, (lefts * rights).square().sum((1, 2)), torch.inf)
        _, _, places, p = self.left.shape
        if places_are_few(2 * places, p, self.right.shape[3]):
            return squared_norms_by_places(self.left, self.right)
        pieces = _pieces(math.prod(self.shape), self.right, self.left)
        return torch.cat([Direct(outer_products(*some)).squared_norms() for some in pieces])

    def add_weighted_sum(self, weights: Tensor, slot: Tensor, summation: Summation) -> None:
        """Add the weighted sum: of products over examples, or of gradients that exist for a few examples at a time."""
        if self._is_written_out:
            return Direct(self._outer).add_weighted_sum(weights, slot, summation)
        make_add = self._products if self.left.shape[2] == 1 else self._outer_products
        return summation.add_sum(slot, len(weights), self.left, make_add(weights.to(self.left.dtype)))

    def _products(self, weights: Tensor) -> Add:
        """Return a function that adds products over examples, which have one position each."""
        right, left = (each[:, :, 0].transpose(0, 1) for each in (self.right, self.left))
        groups, p, q, scale = len(left), left.shape[2], right.shape[2], weights[:, None]
        size = max(1, CHUNK // max(1, groups * min(p, q)))  # Only a few scaled factors are in memory at a time.

        def add(chosen: slice, out: Tensor, beta: float) -> None:
            for start in range(chosen.start, chosen.stop, size):
                some = slice(start, min(chosen.stop, start + size))
                first, second = right[:, some].to(out.dtype), left[:, some].to(out.dtype)
                if p < q:
                    second = second * scale[some]
                else:
                    first = first * scale[some]
                if groups == 1:  # One product is faster without the dimension of groups.
                    out.view(q, p).addmm_(first[0].t(), second[0], beta=beta)
                else:
                    out.view(groups, q, p).baddbmm_(first.transpose(1, 2), second, beta=beta)
                beta = 1.0

        return add

    def _outer_products(self, weights: Tensor) -> Add:
        """Return a function that adds the gradients of a few examples at a time, each first summed over positions."""

        def add(chosen: slice, out: Tensor, beta: float) -> None:
            factors = (self.right[chosen], self.left[chosen], weights[chosen].to(out.dtype))
            for right, left, some in _pieces(math.prod(self.shape), *factors):
                out.addmv_(outer_products(right, left).flatten(1).to(out.dtype).t(), some, beta=beta)
                beta = 1.0

        return add

    def like(self) -> Tensor:
        """Return a tensor of the gradients' dtype and device, in the parameter's shape."""
        return self.left.new_empty(*self.shape)

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

    def merged(self, views: int) -> "OuterSum":
        """Return the sum over each ``views`` consecutive examples, as more products per example."""
        return OuterSum(_side_by_side(self.left, views), _side_by_side(self.right, views), self.shape)

    def as_outer_sum(self) -> "OuterSum":
        """Return these gradients, which are factors already."""
        return self


def _side_by_side(factors: Tensor, views: int) -> Tensor:
    """Return factors of shape (B views, groups, T, p) as (B, groups, views T, p)."""
    return factors.unflatten(0, (-1, views)).transpose(1, 2).flatten(2, 3)


_LARGEST_FACTOR = 2.0**50
"""Largest norm of a factor of a single outer product."""


def _pieces(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield a few examples of each tensor at a time, given how many values belong to one example."""
    return zip(*(each.split(max(1, CHUNK // max(1, size))) for each in tensors), strict=True)


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "right", wide(self.right))

    def squared_norms(self) -> Tensor:
        """Return the squared norms. Positions that use the same row are added before they are squared."""
        batch, places = self.indices.shape
        owner, _, sums = self._sums_by_row(exact := self.right.double())
        squares = exact.new_zeros(batch).index_add_(0, owner, sums.square().sum(1))
        return allowing_for_cancellation(squares, exact.norm(dim=2).sum(1), places)

    def add_weighted_sum(self, weights: Tensor, slot: Tensor, summation: Summation) -> None:
        """Add the weighted sum, computed in double precision: first over the positions of each example."""
        _, row, sums = self._sums_by_row(self.right.double() * weights[:, None, None])
        used, which = torch.unique(row, return_inverse=True)
        total = sums.new_zeros(len(used), sums.shape[1]).index_add_(0, which, sums)
        slot.view(*self.shape).index_add_(0, used.to(slot.device), total.to(slot))

    def _sums_by_row(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the example, the row and the sum of values of each pair of an example and a row that it uses."""
        pairs, which = self._pairs
        values = values.flatten(0, 1)
        sums = values.new_zeros(len(pairs), values.shape[1]).index_add_(0, which, values)
        return pairs // self.shape[0], pairs % self.shape[0], sums

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """All pairs of an example and a row that it uses, as one number each, and the pair of each position."""
        owners = torch.arange(len(self.indices), device=self.indices.device)
        pairs, which = torch.unique(self.indices + owners[:, None] * self.shape[0], return_inverse=True)
        return pairs, which.flatten()

    def like(self) -> Tensor:
        """Return a tensor of the gradients' dtype and device, in the parameter's shape."""
        return self.right.new_empty(1).expand(*self.shape)

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

    def merged(self, views: int) -> "RowSum":
        """Return the sum over each ``views`` consecutive examples, as more positions per example."""
        indices = self.indices.unflatten(0, (-1, views)).flatten(1, 2)
        return RowSum(indices, self.right.unflatten(0, (-1, views)).flatten(1, 2), self.shape)
