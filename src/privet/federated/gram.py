"""Softmax regression of many clients at once, in the span of their examples.

Local SGD moves a linear layer by combinations of the client's own examples (and, with weight decay, of the global model
itself): W - W_0 = sum_i a_i x_i' + c W_0. So with the products K_ij = <x_i, x_j> at hand, a step needs the scores of
the client's examples and the coefficients a, c alone: tens of numbers a class where the layer has hundreds. For fewer
examples than features that is several times faster, and the same up to rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from privet.federated.local import LocalTraining


class Moved:
    """How far stacked layers have moved: coefficients of examples and of the global model, and the scores they make.

    Attributes
    ----------
    examples : tensor of shape (clients, examples, classes)
        The coefficients a.
    scores : tensor of the same shape
        K a: what they add to the scores of each example.
    share : tensor of shape (clients, 1, 1)
        The coefficient c, which stays 0 without weight decay.
    """

    def __init__(self, both: Tensor, share: Tensor, is_decaying: bool) -> None:
        self._both, self.share, self._is_decaying = both, share, is_decaying
        self.examples, self.scores = both

    @classmethod
    def none(cls, like: Tensor, is_decaying: bool) -> "Moved":
        """Return no move at all."""
        return cls(like.new_zeros(2, *like.shape), like.new_zeros(len(like), 1, 1), is_decaying)

    def first(self, clients: int) -> "Moved":
        """Return the rows of the first clients, which share memory with these."""
        return Moved(self._both[:, :clients], self.share[:clients], self._is_decaying)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply all in place."""
        self._both.mul_(factor)
        if self._is_decaying:
            self.share.mul_(factor)

    def add(self, other: "Moved", factor: float) -> None:
        """Add a multiple of another move in place."""
        self._both.add_(other._both, alpha=factor)
        if self._is_decaying:
            self.share.add_(other.share, alpha=factor)

    def squared_lengths(self, begun: Tensor, square: Tensor) -> Tensor:
        """Return the squared norm of each client's move, given the global model's scores and squared norm."""
        found = (self.examples * self.scores).sum((1, 2))
        if self._is_decaying:
            share = self.share[:, 0, 0]
            found += share * (2 * (self.examples * begun).sum((1, 2)) + share * square)
        return found


def trained_in_span(
    X: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    batches: Sequence[Tensor],
    local: LocalTraining,
    rate: float,
    clip_norm: float,
) -> tuple[Tensor, Tensor | None]:
    """Return how far the layer of each client moves, weights and biases.

    Parameters
    ----------
    X : tensor of shape (clients, examples, features)
        Filled up by zeros where a client has fewer examples than another.
    targets : tensor of shape (clients, examples)
        Their classes.
    weight, bias : tensor, tensor or None
        Of the global model.
    batches : sequence of tensors of shape (clients still at it, batch)
        The examples of each step; -1 where a batch is not full. Who ends first is among the last clients.
    local, rate, clip_norm
        How the clients train.
    """
    products = torch.bmm(X, X.mT)
    begun = X @ weight.T
    square = weight.square().sum()
    if bias is not None:
        products += 1.0
        begun = begun + bias
        square = square + bias.square().sum()
    is_decaying = local.weight_decay > 0
    moved = Moved.none(begun, is_decaying)
    speed = Moved.none(begun, is_decaying) if local.momentum else None
    for rows in batches:
        busy = len(rows)
        here = moved.first(busy)
        change = _change(begun[:busy], products[:busy], targets[:busy], here, rows, local.weight_decay)
        if speed is not None:
            faster = speed.first(busy)
            faster.scale(local.momentum)
            faster.add(change, 1.0)
            change = faster
        here.add(change, -rate)
        _pull_back(here, begun[:busy], square, clip_norm)
    along = moved.examples.mT
    weights = torch.bmm(along, X) + moved.share * weight
    return weights, None if bias is None else along.sum(2) + moved.share[:, 0] * bias


def _change(begun: Tensor, products: Tensor, targets: Tensor, here: Moved, rows: Tensor, weight_decay: float) -> Moved:
    """Return the gradient of one batch a client, weight decay included."""
    filled = rows >= 0
    n = begun.shape[1]
    places = (rows.clamp_min(0) + n * torch.arange(len(rows))[:, None]).flatten()

    def of_batch(each: Tensor) -> Tensor:
        return each.flatten(0, 1).index_select(0, places)  # several times as fast as gather

    base = torch.addcmul(begun, begun, here.share) if weight_decay else begun
    pull = torch.softmax(of_batch(base + here.scores), dim=1)
    pull.scatter_add_(1, of_batch(targets)[:, None], pull.new_full((1, 1), -1.0).expand(len(pull), 1))
    pull *= (filled.to(pull.dtype) / filled.sum(1, keepdim=True)).view(-1, 1)
    change = Moved.none(begun, weight_decay > 0)
    change.examples.flatten(0, 1).index_add_(0, places, pull)
    chosen = of_batch(products).view(*rows.shape, n)
    torch.bmm(chosen.mT, pull.view(*rows.shape, -1), out=change.scores)
    if weight_decay:  # of the whole layer: the global model's, and what it has moved by
        change.add(here, weight_decay)
        change.share.add_(weight_decay)
    return change


def _pull_back(here: Moved, begun: Tensor, square: Tensor, clip_norm: float) -> None:
    """Project each client onto the ball around the global model."""
    factors = clip_norm / here.squared_lengths(begun, square).clamp_min(0.0).sqrt()
    if bool((factors < 1).any()):
        here.scale(factors.clamp_max(1.0)[:, None, None])
