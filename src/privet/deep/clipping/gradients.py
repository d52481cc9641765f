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
        """Return the squared norm of each example's gradient, of shape (B,)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over examples of weight times gradient, in the parameter's shape."""

    @abstractmethod
    def written_out(self) -> Tensor:
        """Return all of them, of shape (B, *parameter)."""

    @abstractmethod
    def only(self, chosen: Tensor) -> "PerExample":
        """Return those of some examples, by a mask."""

    def inner_products(self, other: "PerExample") -> Tensor:
        """Return the inner product of each example's gradient with its counterpart."""
        return (self.written_out().flatten(1) * other.written_out().flatten(1)).sum(1)


@dataclass(frozen=True)
class Direct(PerExample):
    """Gradients that are small enough to be there: of biases, of scales, of what the general rule returns."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the squared norms."""
        flat = self.values.flatten(1)
        return torch.einsum("bi,bi->b", flat, flat)

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

    @property
    def _is_written_out(self) -> bool:
        """Whether the gradients take no more room than their factors: then they are cheapest as they are."""
        _, _, places, p = self.left.shape
        q = self.right.shape[-1]
        return bool(places > 1 and p * q <= places * (p + q))

    @cached_property
    def _outer(self) -> Tensor:
        batch, groups = self.left.shape[:2]
        outer = torch.bmm(self.right.flatten(0, 1).transpose(1, 2), self.left.flatten(0, 1))
        return outer.view(batch, groups, *outer.shape[1:])

    def squared_norms(self) -> Tensor:
        """Return the squared norms: at one place |left|^2 |right|^2; at several by products of T x T places.

        |sum_t r_t (x) l_t|^2 = sum_{t,u} <r_t, r_u> <l_t, l_u>, which takes T^2 (p + q) steps in the place of T p q.
        """
        left, right = self.left, self.right
        places, p, q = left.shape[2], left.shape[3], right.shape[3]
        if places == 1:
            return (left.square().sum(3) * right.square().sum(3)).sum((1, 2))
        if self._is_written_out or places * (p + q) > p * q:
            outer = self._outer
            return outer.flatten(1).square().sum(1)
        return ((left @ left.transpose(2, 3)) * (right @ right.transpose(2, 3))).sum((1, 2, 3))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum: one product over examples and places."""
        if "_outer" in self.__dict__:
            return (weights @ self._outer.flatten(1)).view(*self.shape)
        right = self.right * weights[:, None, None, None]
        groups = self.left.shape[1]
        flat_left = self.left.transpose(0, 1).reshape(groups, -1, self.left.shape[3])
        flat_right = right.transpose(0, 1).reshape(groups, -1, right.shape[3])
        return (flat_right.transpose(1, 2) @ flat_left).reshape(*self.shape)

    def written_out(self) -> Tensor:
        """Return them."""
        return self._outer.reshape(-1, *self.shape)

    def only(self, chosen: Tensor) -> "OuterSum":
        """Return some of them."""
        return OuterSum(self.left[chosen], self.right[chosen], self.shape)

    def inner_products(self, other: PerExample) -> Tensor:
        """Return the inner products, by places where that is cheaper."""
        if not isinstance(other, OuterSum) or self.left.shape[1:] != other.left.shape[1:]:
            return super().inner_products(other)
        places, p, q = self.left.shape[2], self.left.shape[3], self.right.shape[3]
        if places > 1 and places * (p + q) > p * q:
            return torch.einsum("bgqp,bgqp->b", self._outer, other._outer)
        lefts, rights = self.left @ other.left.transpose(2, 3), self.right @ other.right.transpose(2, 3)
        return (lefts * rights).sum((1, 2, 3))


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
        same = (self.indices[:, :, None] == self.indices[:, None, :]).to(self.right.dtype)
        return ((self.right @ self.right.transpose(1, 2)) * same).sum((1, 2))

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


def together(parts: Sequence[PerExample]) -> PerExample:
    """Return the sum of several contributions to one parameter: of a layer used twice, or of tied weights."""
    if len(parts) == 1:
        return parts[0]
    outers = [part for part in parts if isinstance(part, OuterSum)]
    if len(outers) == len(parts) and len({(part.left.shape[1], part.left.shape[3]) for part in outers}) == 1:
        left = torch.cat([part.left for part in outers], dim=2)
        return OuterSum(left, torch.cat([part.right for part in outers], dim=2), outers[0].shape)
    rows = [part for part in parts if isinstance(part, RowSum)]
    if len(rows) == len(parts):
        indices = torch.cat([part.indices for part in rows], dim=1)
        return RowSum(indices, torch.cat([part.right for part in rows], dim=1), rows[0].shape)
    return Direct(torch.stack([part.written_out() for part in parts]).sum(0))
