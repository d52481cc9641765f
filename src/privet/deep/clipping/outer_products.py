"""Sums of outer products, one per example, and their norms without forming them."""

import torch
from torch import Tensor

CHUNK = 1 << 17
"""How many values of a factor are scaled, or gradients materialised, at a time."""

_LARGEST_SQUARE = 1e200
"""Largest squared norm of a factor at one of several positions. Examples with larger ones count as zero."""

_LARGEST_SIZE = 1e30
"""Largest sum of the norms of an example's outer products, below which none of them overflows in single precision."""


def outer_products(right: Tensor, left: Tensor) -> Tensor:
    """Return sum_t right_t (x) left_t, of shape (B, G, q, p), for factors of shape (B, G, T, .)."""
    outer = torch.bmm(right.flatten(0, 1).transpose(1, 2), left.flatten(0, 1))
    return outer.view(*left.shape[:2], *outer.shape[1:])


def write_outer_products(right: Tensor, left: Tensor, rows: Tensor) -> None:
    """Write :func:`outer_products` to the rows of a matrix, whose rows need not be adjacent in memory."""
    groups, p, q = left.shape[1], left.shape[3], right.shape[3]
    out = rows.unflatten(1, (groups, q, p))
    for group in range(groups):
        torch.bmm(right[:, group].transpose(1, 2), left[:, group], out=out[:, group])


def places_are_few(places: int, p: int, q: int) -> bool:
    """Whether inner products of T positions, of cost T^2 (p + q), are cheaper than outer products, of cost T p q."""
    return places * (p + q) < p * q


def squared_norms_by_places(left: Tensor, right: Tensor) -> Tensor:
    """Return |sum_t r_t (x) l_t|^2 = sum_{t,u} <r_t, r_u> <l_t, l_u>, for factors of shape (B, G, T, .).

    The computation is in double precision, because large terms may cancel, and for a few examples at a time.
    """
    size = max(1, CHUNK // max(1, left[:1].numel() + right[:1].numel()))
    terms = left.shape[3] + right.shape[3] + left.shape[2] ** 2
    found = []
    for some_left, some_right in zip(left.split(size), right.split(size), strict=True):
        exact_left, exact_right = some_left.double(), some_right.double()
        lefts, rights = exact_left @ exact_left.transpose(2, 3), exact_right @ exact_right.transpose(2, 3)
        left_squares, right_squares = (products.diagonal(dim1=2, dim2=3) for products in (lefts, rights))
        sizes = (left_squares * right_squares).sqrt().sum(2)
        squares = (lefts * rights).sum((2, 3)) + (terms + 4) * 2.0**-52 * sizes.square()
        # Squares of the other factor may have underflowed beside a huge one.
        is_huge = torch.maximum(left_squares, right_squares).amax(2) > _LARGEST_SQUARE
        is_out_of_range = (sizes > _LARGEST_SIZE) | is_huge
        squares = torch.where(is_out_of_range, torch.inf, allowing_for_cancellation(squares, sizes, left.shape[2]))
        found.append(squares.sum(1))
    return torch.cat(found)


def allowing_for_cancellation(squares: Tensor, sizes: Tensor, terms: int) -> Tensor:
    """Return squared norms, increased by the rounding error of single-precision sums in which large terms cancel."""
    norms, rounding = squares.clamp_min(0).sqrt(), (terms + 4) * 2.0**-23 * sizes
    return torch.where(rounding <= 1e-5 * norms, norms, norms + rounding).square()
