"""Fast local training for softmax regression, of many clients at once.

Local SGD changes a linear layer by a combination of the client's examples and, with weight decay, of the global model:
W - W_0 = sum_i a_i x_i' + c W_0. Given the inner products K_ij = <x_i, x_j>, a step needs only the scores of the
client's examples and the coefficients a and c, which are tens of numbers per class where the layer has hundreds. With
fewer examples than features this is several times faster, and the result is the same up to rounding.

Rows are classes and columns are examples throughout, because products of wide matrices are faster than of tall ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from privet.federated.engines.thread_limit import one_thread
from privet.federated.local_training import ClientTrainer
from privet.networks import LocalSGD, TensorDict, underlying


@dataclass(frozen=True)
class SoftmaxLayer:
    """The linear layer of a softmax regression.

    Attributes
    ----------
    prefix : str
        Prefix of its parameter names in the model.
    is_flattened : bool
        Whether inputs are flattened first.
    has_bias : bool
        Whether it has a bias.
    classes : int
        The number of classes.
    """

    prefix: str
    is_flattened: bool
    has_bias: bool
    classes: int


def softmax_gradients(
    layer: SoftmaxLayer,
) -> Callable[[TensorDict, tuple[Tensor, ...], Tensor, Tensor], TensorDict]:
    """Return a function that computes the gradients of stacked softmax regressions by matrix products."""

    def gradients(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        (X,) = inputs
        X = X.flatten(2) if layer.is_flattened else X
        scores = torch.bmm(X, parameters[f"{layer.prefix}weight"].mT)
        if layer.has_bias:
            scores += parameters[f"{layer.prefix}bias"][:, None]
        errors = torch.softmax(scores, dim=2)
        errors.scatter_add_(2, targets[..., None], errors.new_full((1, 1, 1), -1.0).expand(*targets.shape, 1))
        errors *= weights[..., None]
        found = {f"{layer.prefix}weight": torch.bmm(errors.mT, X)}
        return found | {f"{layer.prefix}bias": errors.sum(1)} if layer.has_bias else found

    return gradients


def softmax_layer(trainer: ClientTrainer) -> SoftmaxLayer | None:
    """Return the layer of a softmax regression, or None if model and loss are something else."""
    loss = underlying(trainer.loss)
    if (
        type(loss) is not nn.CrossEntropyLoss
        or loss.weight is not None
        or loss.label_smoothing
        or loss.ignore_index >= 0
    ):
        return None
    model: Any = trainer.model
    layers = list(model) if type(model) is nn.Sequential else [model]
    is_flattened = type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1)
    (*before, last) = layers
    if type(last) is not nn.Linear or len(before) != is_flattened or set(trainer.names) != _names(model):
        return None
    prefix = "" if last is model else f"{len(before)}."
    return SoftmaxLayer(prefix, is_flattened, last.bias is not None, last.out_features)


def _names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


# ------------------------------------------------------------------------------- training in the span of the examples


class SpanDisplacement:
    """The displacement of stacked layers, as coefficients of the examples and of the global model.

    It is a :class:`~privet.networks.Displacement`. Its gradients are pairs of coefficients and a batch.

    Attributes
    ----------
    examples : tensor of shape (clients, classes, examples)
        The coefficients a.
    scores : tensor of the same shape
        The product a K, by which the displacement changes the score of each example.
    share : tensor of shape (clients, 1, 1)
        The coefficient c, which is always 0 without weight decay.
    """

    def __init__(self, both: Tensor, share: Tensor, begun: Tensor, square: Tensor, is_decaying: bool) -> None:
        self._both, self.share, self._is_decaying = both, share, is_decaying
        self._begun, self._square = begun, square
        self.examples, self.scores = both

    @classmethod
    def zero(cls, begun: Tensor, square: Tensor, is_decaying: bool) -> "SpanDisplacement":
        """Return a displacement of zero, given the scores and the squared norm of the global model."""
        both, share = begun.new_zeros(2, *begun.shape), begun.new_zeros(len(begun), 1, 1)
        return cls(both, share, begun, square, is_decaying)

    def first(self, clients: int) -> "SpanDisplacement":
        """Return the displacement of the first clients, which shares memory with this one."""
        both, share, begun = self._both[:, :clients], self.share[:clients], self._begun[:clients]
        return SpanDisplacement(both, share, begun, self._square, self._is_decaying)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply by a number, or by one number per client."""
        self._both.mul_(factor)
        if self._is_decaying:
            self.share.mul_(factor)

    def add(self, other: "SpanDisplacement", factor: float) -> None:
        """Add a multiple of another displacement."""
        self._both.add_(other._both, alpha=factor)
        if self._is_decaying:
            self.share.add_(other.share, alpha=factor)

    def add_weights(self, moved: "SpanDisplacement", factor: float) -> None:
        """Add a multiple of the weights, which are those of the global model plus ``moved``."""
        self.add(moved, factor)
        self.share.add_(factor)

    def add_gradient(self, gradient: "tuple[Tensor, Batch]", factor: float) -> None:
        """Add a multiple of a combination of the examples of a batch."""
        coefficients, batch = gradient
        if factor != 1:
            coefficients.mul_(factor)
        self.examples.scatter_add_(2, batch.places, coefficients)
        self.scores.baddbmm_(coefficients, batch.products)

    def lengths(self) -> Tensor:
        """Return the l2 norm of each client's displacement, of shape (clients, 1, 1)."""
        found = (self.examples * self.scores).sum((1, 2), keepdim=True)
        if self._is_decaying:
            along = (self.examples * self._begun).sum((1, 2), keepdim=True)
            found += self.share * (2 * along + self.share * self._square)
        return found.clamp_min_(0.0).sqrt_()

    def gradient(self, batch: "Batch") -> "tuple[Tensor, Batch]":
        """Return the gradient of the mean loss over a batch, as coefficients of its examples."""
        scores = self._begun.gather(2, batch.places)
        if self._is_decaying:
            scores.addcmul_(scores, self.share)
        scores += self.scores.gather(2, batch.places)
        coefficients = torch.softmax(scores, dim=1).mul_(batch.shares).scatter_add_(1, batch.labels, -batch.shares)
        return coefficients, batch


class Batch(NamedTuple):
    """The examples of one step, for each client.

    Attributes
    ----------
    places : tensor of shape (clients, classes, batch)
        Their indices among the client's examples, repeated for each class. Free places of a batch hold index 0.
    labels, shares : tensors of shape (clients, 1, batch)
        Their classes, and their weights in the mean, which are 0 in free places.
    products : tensor of shape (clients, batch, examples)
        Their inner products with all examples.
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
    """Return the updates of all clients: the change of the layer's weights, and that of its biases or None.

    Parameters
    ----------
    X : tensor of shape (clients, examples, features)
        The examples, padded with zeros to equal length.
    targets : tensor of shape (clients, examples)
        Their classes.
    weight, bias : tensor, tensor or None
        The parameters of the global model.
    runs : sequence of tensors of shape (steps, clients still training, batch)
        The indices of the examples in all steps, with -1 in free places. Clients are sorted by decreasing number of
        steps.
    sgd : LocalSGD
        The step rule.
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
    """Return the inner products of each client's examples, and their scores under the global model."""
    products = _products(X)
    begun = torch.bmm(weight.expand(len(X), *weight.shape), X.mT)
    return (products, begun) if bias is None else (products.add_(1.0), begun.add_(bias[:, None]))


def _square(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the squared norm of the global model."""
    return weight.square().sum() if bias is None else weight.square().sum() + bias.square().sum()


def _moved(
    products: Tensor, begun: Tensor, targets: Tensor, square: Tensor, runs: Sequence[Tensor], sgd: LocalSGD
) -> SpanDisplacement:
    """Return the displacement of each client after all steps."""
    is_decaying = sgd.weight_decay > 0
    moved = SpanDisplacement.zero(begun, square, is_decaying)
    velocity = SpanDisplacement.zero(begun, square, is_decaying) if sgd.momentum else None
    for run in runs:
        clients = run.shape[1]
        here, faster = moved.first(clients), None if velocity is None else velocity.first(clients)
        for batch in _batches(run, targets[:clients], products, begun[:clients]):
            sgd.step(here, faster, here.gradient(batch))
    return moved


def _products(X: Tensor) -> Tensor:
    """Return the inner products of each client's examples. A quarter of them is copied by symmetry.

    The size of the first block is a multiple of 16, because products of such matrices are faster.
    """
    first = 16 * round(X.shape[1] / 32)
    left = torch.bmm(X, X[:, :first].mT)
    right = torch.bmm(X[:, first:], X[:, first:].mT)
    return torch.cat([left, torch.cat([left[:, first:].mT, right], dim=1)], dim=2)


def _batches(run: Tensor, targets: Tensor, products: Tensor, like: Tensor) -> Iterator[Batch]:
    """Yield the batches of a run, one per step."""
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
