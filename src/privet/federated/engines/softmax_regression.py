"""Softmax regression of many clients at once, in the span of their examples.

Local SGD moves a linear layer by combinations of the client's own examples (and, with weight decay, of the global model
itself): W - W_0 = sum_i a_i x_i' + c W_0. So with the products K_ij = <x_i, x_j> at hand, a step needs the scores of
the client's examples and the coefficients a, c alone: tens of numbers a class where the layer has hundreds. For fewer
examples than features that is several times faster, and the same up to rounding.

Rows are classes and columns are examples throughout: products of matrices that are longer than they are high are the
fast ones.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from privet.federated.engines.threads import one_thread
from privet.networks import LocalSGD


class Moved:
    """How far stacked layers have moved: coefficients of examples and of the global model, and the scores they make.

    It is a :class:`~privet.networks.Displacement`, whose gradients are pairs of coefficients and a batch.

    Attributes
    ----------
    examples : tensor of shape (clients, classes, examples)
        The coefficients a.
    scores : tensor of the same shape
        a K: what they add to the scores of each example.
    share : tensor of shape (clients, 1, 1)
        The coefficient c, which stays 0 without weight decay.
    """

    def __init__(self, both: Tensor, share: Tensor, begun: Tensor, square: Tensor, is_decaying: bool) -> None:
        self._both, self.share, self._is_decaying = both, share, is_decaying
        self._begun, self._square = begun, square
        self.examples, self.scores = both

    @classmethod
    def none(cls, begun: Tensor, square: Tensor, is_decaying: bool) -> "Moved":
        """Return no move at all, given the scores and the squared norm of the global model."""
        both, share = begun.new_zeros(2, *begun.shape), begun.new_zeros(len(begun), 1, 1)
        return cls(both, share, begun, square, is_decaying)

    def first(self, clients: int) -> "Moved":
        """Return the rows of the first clients, which share memory with these."""
        both, share, begun = self._both[:, :clients], self.share[:clients], self._begun[:clients]
        return Moved(both, share, begun, self._square, self._is_decaying)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply by a number, or by one number per client."""
        self._both.mul_(factor)
        if self._is_decaying:
            self.share.mul_(factor)

    def add(self, other: "Moved", factor: float) -> None:
        """Add a multiple of another move."""
        self._both.add_(other._both, alpha=factor)
        if self._is_decaying:
            self.share.add_(other.share, alpha=factor)

    def add_weights(self, moved: "Moved", factor: float) -> None:
        """Add a multiple of the weights, which are those of the global model plus ``moved``."""
        self.add(moved, factor)
        self.share.add_(factor)

    def add_gradient(self, gradient: "tuple[Tensor, Batch]", factor: float) -> None:
        """Add a multiple of a combination of the examples of a batch."""
        pull, batch = gradient
        if factor != 1:
            pull.mul_(factor)
        self.examples.scatter_add_(2, batch.places, pull)
        self.scores.baddbmm_(pull, batch.products)

    def lengths(self) -> Tensor:
        """Return the norm of each client's move, of shape (clients, 1, 1)."""
        found = (self.examples * self.scores).sum((1, 2), keepdim=True)
        if self._is_decaying:
            along = (self.examples * self._begun).sum((1, 2), keepdim=True)
            found += self.share * (2 * along + self.share * self._square)
        return found.clamp_min_(0.0).sqrt_()

    def gradient(self, batch: "Batch") -> "tuple[Tensor, Batch]":
        """Return the gradient of the mean loss over a batch: coefficients of its examples."""
        scores = self._begun.gather(2, batch.places)
        if self._is_decaying:
            scores.addcmul_(scores, self.share)
        scores += self.scores.gather(2, batch.places)
        pull = torch.softmax(scores, dim=1).mul_(batch.shares).scatter_add_(1, batch.labels, -batch.shares)
        return pull, batch


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
    sgd: LocalSGD,
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
    sgd : LocalSGD
        The rule of their steps.
    """
    with one_thread():
        products, begun = _prepared(X, weight, bias)
        moved = _moved(products, begun, targets, _square(weight, bias), runs, sgd)
        weights = torch.bmm(moved.examples, X)
    biases = None if bias is None else moved.examples.sum(2)
    if sgd.weight_decay:
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
    products: Tensor, begun: Tensor, targets: Tensor, square: Tensor, runs: Sequence[Tensor], sgd: LocalSGD
) -> Moved:
    """Return how far each client has moved after all steps."""
    is_decaying = sgd.weight_decay > 0
    moved = Moved.none(begun, square, is_decaying)
    velocity = Moved.none(begun, square, is_decaying) if sgd.momentum else None
    for run in runs:
        clients = run.shape[1]
        here, faster = moved.first(clients), None if velocity is None else velocity.first(clients)
        for batch in _batches(run, targets[:clients], products, begun[:clients]):
            sgd.step(here, faster, here.gradient(batch))
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
