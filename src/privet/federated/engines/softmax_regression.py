"""Softmax regression of many clients at once, in the span of their examples.

Local SGD moves a linear layer by combinations of the client's own examples (and, with weight decay, of the global model
itself): W - W_0 = sum_i a_i x_i' + c W_0. So with the products K_ij = <x_i, x_j> at hand, a step needs the scores of
the client's examples and the coefficients a, c alone: tens of numbers a class where the layer has hundreds. For fewer
examples than features that is several times faster, and the same up to rounding.

Rows are classes and columns are examples throughout: products of matrices that are longer than they are high are the
fast ones.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from privet.federated.engines.threads import one_thread
from privet.federated.local_training import LocalTraining


class Moved:
    """How far stacked layers have moved: coefficients of examples and of the global model, and the scores they make.

    Attributes
    ----------
    examples : tensor of shape (clients, classes, examples)
        The coefficients a.
    scores : tensor of the same shape
        a K: what they add to the scores of each example.
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

    def add_batch(self, pull: Tensor, batch: "Batch") -> None:
        """Add a combination of the examples of a batch in place."""
        self.examples.scatter_add_(2, batch.places, pull)
        self.scores.baddbmm_(pull, batch.products)

    def squared_lengths(self, begun: Tensor, square: Tensor) -> Tensor:
        """Return the squared norm of each client's move, given the global model's scores and squared norm."""
        found = (self.examples * self.scores).sum((1, 2), keepdim=True)
        if self._is_decaying:
            along = (self.examples * begun).sum((1, 2), keepdim=True)
            found += self.share * (2 * along + self.share * square)
        return found


class Batch(NamedTuple):
    """The examples of one step, of each client.

    Attributes
    ----------
    places : tensor of shape (clients, classes, batch)
        Which of the client's examples they are, the same for all classes; the first where a batch is not full.
    labels, shares : tensors of shape (clients, 1, batch)
        Their classes, and their weights in the mean: 0 where a batch is not full.
    products : tensor of shape (clients, batch, examples)
        Their products with all examples.
    """

    places: Tensor
    labels: Tensor
    shares: Tensor
    products: Tensor


def trained_in_span(
    X: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    runs: Sequence[Tensor],
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
    runs : sequence of tensors of shape (steps, clients still at it, batch)
        The examples of all steps; -1 where a batch is not full. Who ends first is among the last clients.
    local, rate, clip_norm
        How the clients train.
    """
    with one_thread():
        products, begun = _prepared(X, weight, bias)
        moved = _moved(products, begun, targets, _square(weight, bias), runs, local, rate, clip_norm)
        weights = torch.bmm(moved.examples, X)
    biases = None if bias is None else moved.examples.sum(2)
    if local.weight_decay:
        weights += moved.share * weight
        if bias is not None and biases is not None:
            biases += moved.share[:, 0] * bias
    return weights, biases


def _prepared(X: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the products of each client's examples with one another, and their scores by the global model."""
    products = _products(X)
    begun = torch.bmm(weight.expand(len(X), *weight.shape), X.mT)
    return (products, begun) if bias is None else (products.add_(1.0), begun.add_(bias[:, None]))


def _square(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the squared norm of the global model."""
    return weight.square().sum() if bias is None else weight.square().sum() + bias.square().sum()


def _moved(
    products: Tensor,
    begun: Tensor,
    targets: Tensor,
    square: Tensor,
    runs: Sequence[Tensor],
    local: LocalTraining,
    rate: float,
    clip_norm: float,
) -> Moved:
    """Take all steps."""
    is_decaying = local.weight_decay > 0
    moved = Moved.none(begun, is_decaying)
    speed = Moved.none(begun, is_decaying) if local.momentum else None
    for run in runs:
        clients = run.shape[1]
        here, at_first = moved.first(clients), begun[:clients]
        faster = None if speed is None else speed.first(clients)
        for batch in _batches(run, targets[:clients], products, at_first):
            _step(here, faster, at_first, batch, local, rate)
            if math.isfinite(clip_norm):
                _pull_back(here, at_first, square, clip_norm)
    return moved


def _products(X: Tensor) -> Tensor:
    """Return the products of each client's examples with one another, up to a quarter of them by symmetry.

    The first examples are a multiple of 16: products of such matrices are the fast ones.
    """
    first = 16 * round(X.shape[1] / 32)
    left = torch.bmm(X, X[:, :first].mT)
    right = torch.bmm(X[:, first:], X[:, first:].mT)
    return torch.cat([left, torch.cat([left[:, first:].mT, right], dim=1)], dim=2)


def _batches(run: Tensor, targets: Tensor, products: Tensor, like: Tensor) -> Iterator[Batch]:
    """Yield the batches of a run of steps."""
    clients, classes, n = like.shape
    filled = run >= 0
    places = run.clamp_min(0)
    labels = targets.expand(len(run), -1, -1).gather(2, places)
    shares = filled.to(like.dtype) / filled.sum(2, keepdim=True)
    rows = (places + n * torch.arange(clients)[:, None]).flatten(1)
    of_all = products.flatten(0, 1)
    for where, label, share, row in zip(
        places[:, :, None].expand(-1, -1, classes, -1), labels[:, :, None], shares[:, :, None], rows, strict=True
    ):
        yield Batch(where, label, share, of_all.index_select(0, row).view(clients, -1, n))


def _step(here: Moved, speed: Moved | None, begun: Tensor, batch: Batch, local: LocalTraining, rate: float) -> None:
    """Take one step in place, with momentum if there is a speed."""
    scores = begun.gather(2, batch.places)
    if local.weight_decay:
        scores.addcmul_(scores, here.share)
    scores += here.scores.gather(2, batch.places)
    into, factor = (here, -rate) if speed is None else (speed, 1.0)
    shares = factor * batch.shares
    pull = torch.softmax(scores, dim=1).mul_(shares).scatter_add_(1, batch.labels, -shares)
    if speed is not None:
        speed.scale(local.momentum)
    if local.weight_decay:  # of the whole layer: the global model's, and what it has moved by
        into.add(here, factor * local.weight_decay)
        into.share.add_(factor * local.weight_decay)
    into.add_batch(pull, batch)
    if speed is not None:
        here.add(speed, -rate)


def _pull_back(here: Moved, begun: Tensor, square: Tensor, clip_norm: float) -> None:
    """Project each client onto the ball around the global model; 1 is the factor inside."""
    lengths = here.squared_lengths(begun, square).clamp_min_(0.0).sqrt_()
    here.scale(torch.div(clip_norm, lengths).clamp_max_(1.0))
