"""``make_private``, the entry point of private training, which turns a budget into a plan and a training.

Example::

    private = make_private(
        model, optimizer, dataset, loss=loss, budget=Budget(3, 1e-5), epochs=20, batch_size=256, clip_norm=1.0
    )
    for batch in private.batches(verbose=True):
        private.step(*batch)
    private.guarantee
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from privet import cautions
from privet.checks import count, positive
from privet.deep.balanced import balanced_estimator
from privet.deep.datasets import Examples
from privet.deep.gradient_estimators import Fresh, GradientEstimator, Recursive, RecursiveMomentum
from privet.deep.model_checks import unwrapped
from privet.deep.training import PrivateTraining
from privet.deep.views import Views
from privet.denoise import Denoiser
from privet.deprecation import renamed_argument
from privet.networks import Loss, trained_parameters
from privet.plans import GradientPlan, RecursivePlan
from privet.plans.samplers import named_sampler
from privet.privacy import Adjacency, Budget
from privet.privacy.budget import BudgetLike, BudgetOrNoise, given_budget
from privet.privacy.ledger.spending import LedgerLike


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    *,
    loss: Loss | str,
    budget: BudgetLike | None = None,
    epochs: float,
    batch_size: int | None = None,
    clip_norm: float,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    sampling: str = "poisson",
    denoiser: Denoiser | None = None,
    order: str = "OIHW",
    recursion: RecursiveMomentum | None = None,
    max_batch: int | None = None,
    public_n: int | None = None,
    random_state: int | None = None,
    ledger: LedgerLike | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    class_weight: Mapping[int, float] | str | None = None,
    n_classes: int | None = None,
    augment: Callable[..., Any] | None = None,
    views: int = 1,
    average: float | None = None,
    momentum: RecursiveMomentum | None = None,
) -> PrivateTraining:
    """Prepare the private training of a model.

    Parameters
    ----------
    model : nn.Module
        The model. Layers that mix examples, such as batch normalisation, are not supported.
    optimizer : torch.optim.Optimizer
        Any optimizer. It receives private gradients, so its state, schedules and momentum are post-processing.
    dataset : map-style dataset or DataLoader
        ``dataset[i]`` is a tuple of inputs and, last, a target, or a dictionary, whose entries go to the model by
        keyword. A ``TensorDataset`` is indexed once per batch. Of a ``DataLoader``, the dataset, ``collate_fn``, worker
        processes, pinning and batch size are used. Its sampler is replaced by that of the plan.
    loss : callable or "model"
        ``loss(outputs, targets)`` must return one value per example. The ``reduction`` of a ``torch.nn`` loss, or of a
        function such as those of ``torch.nn.functional``, is set to ``'none'``. For dictionaries, it is called as
        ``loss(outputs, batch)``, except that a torch loss gets the one entry that the model does not take. ``"model"``
        uses the loss that a model of transformers computes from ``labels``. Its value for an example is what the model
        returns for that example alone: for language models, the mean over its own tokens.
    budget : Budget, float, or pair of floats
        The budget of the whole training: a ``Budget``, an epsilon, or a pair (epsilon, delta). The default delta is
        min(1e-6, 0.01/n), where n is ``public_n`` or the number of examples.
    epochs, batch_size : float, int
        Number of passes over the data, and batch size. With Poisson sampling, both are expected values. The batch size
        may be left out if a ``DataLoader`` with one is given.
    clip_norm : float
        Bound on the l2 norm of one example's gradient.
    epsilon, delta : float or None
        An alternative to ``budget``.
    noise_multiplier : float or None
        Another alternative to ``budget``, optionally with ``delta``: the standard deviation of the noise on a sum,
        divided by ``clip_norm``. The guarantee states the epsilon that results. 0 trains without noise, and the
        guarantee says that there is no privacy. With ``recursion``, it is the noise multiplier of the sums after the
        first.
    sampling : {"poisson", "uniform"}
        ``"poisson"`` draws each example independently and hides whether an example is in the dataset (add-or-remove).
        ``"uniform"`` draws batches of exactly ``batch_size`` examples without replacement and hides the replacement of
        one example by another (replace-one).
    denoiser : Denoiser or None
        Applied to each layer's noisy gradient. ``LaplacianSmoothing(sigma)`` turns DP-SGD into DP-LSSGD, and DP-Adam
        into DP-LSAdam.
    order : {"OIHW", "OIWH", "OHWI", "OWHI"}
        The order in which the denoiser reads the weights of a convolution.
    recursion : RecursiveMomentum or None
        Train by DP-SRM instead of DP-SGD. ``clip_norm`` is then the bound C1 of that method.
    max_batch : int or None
        The largest number of examples in memory at once. Larger batches are processed in parts.
    public_n : int or None
        A public guess of the number of examples, from which the sampling rate and the default delta are computed. None
        uses the true number, and the guarantee then assumes that this number is public. With ``sampling="uniform"``,
        the number is public by definition.
    random_state : int or None
        An integer makes the run repeatable. The guarantee then holds only while the integer is secret.
    ledger : path, Ledger or None
        Where the whole training is booked when its first batch is drawn. It stays booked if the training stops early,
        and is not booked again when it is resumed from a file.
    collate_fn : callable or None
        Makes a batch from a list of examples, for instance by padding. It must treat each example by itself, which is
        checked on the first batch and assumed afterwards. The model must ignore padding.
    class_weight : dict, "balanced" or None
        Public, constant weights of classes. The loss of an example is multiplied by the weight of its class before
        clipping. Classes that are not named have weight 1. ``"balanced"`` computes weights from noisy numbers of
        examples per class, for which it spends 4 % of the budget before the first batch. The rarest class has weight 1,
        and a class that is r times as frequent has weight 1/r, at least 0.01.
    n_classes : int or None
        The number of classes, for ``class_weight="balanced"``. Targets are then numbers from 0 to n_classes - 1.
    augment : callable or None
        Makes a random view of an example, without a dimension of examples: ``augment(*inputs)`` returns an input or a
        tuple of inputs, and for dictionaries ``augment(**example)`` returns a dictionary.
    views : int
        Number of views per example and step. Their gradients are averaged before the average is clipped, which costs
        no privacy, but ``views`` times as much computation. ``max_batch`` counts examples, not views.
    average : float or None
        The decay of an exponential moving average of the weights, such as 0.999. It costs no privacy.
        :meth:`PrivateTraining.averaged_model` returns the averaged model.
    momentum : RecursiveMomentum or None
        Deprecated name of ``recursion``.

    Returns
    -------
    PrivateTraining
        The training, which draws batches and takes private steps.

    Notes
    -----
    If ``torch.distributed`` is initialised (gloo), its processes train together. Each of them calls this function with
    the same arguments, draws a share of every batch, and ends with the same weights. Noise is added once. A
    ``DistributedDataParallel`` wrapper is removed, because it would add up gradients that are not clipped yet.
    """
    recursion = renamed_argument("make_private", "momentum", momentum, "recursion", recursion)
    examples = Examples.of(dataset, collate_fn)
    batch_size = examples.batch_size if batch_size is None else batch_size
    if batch_size is None:
        raise ValueError("batch_size is missing. Give it, or a DataLoader that has one.")
    n = count("public_n", len(examples) if public_n is None else public_n)
    model = unwrapped(model)
    amount = given_budget(budget, epsilon, delta, noise_multiplier, n)
    if isinstance(amount, Budget):
        cautions.about_budget(amount.epsilon, amount.delta, n, "record of the dataset")
    estimator = _estimator_for(
        amount,
        recursion,
        model,
        sampling=sampling,
        epochs=epochs,
        batch_size=batch_size,
        clip_norm=clip_norm,
        n=n,
        is_balanced=isinstance(class_weight, str) and class_weight == "balanced",
        n_classes=n_classes,
    )
    estimator.plan.sampler.check_n(len(examples))
    if isinstance(dataset, DataLoader):
        cautions.about_loader(repr(estimator.plan.sampler))
    return PrivateTraining(
        model,
        optimizer,
        examples,
        plan=estimator,
        loss=loss,
        denoiser=denoiser,
        order=order,
        max_move=None if recursion is None else recursion.max_move,
        max_batch=max_batch,
        random_state=random_state,
        n_is_public=public_n is None and estimator.plan.adjacency is Adjacency.ADD_OR_REMOVE,
        ledger=ledger,
        class_weight=class_weight if estimator.counts is None else None,
        views=_views(augment, views),
        average=average,
    )


def _views(augment: Callable[..., Any] | None, views: int) -> Views | None:
    if augment is None and count("views", views) > 1:
        raise ValueError(f"views={views} needs augment=, which makes a view of an example.")
    return None if augment is None else Views(augment, count("views", views))


def _estimator_for(
    budget: BudgetOrNoise,
    recursion: RecursiveMomentum | None,
    model: nn.Module,
    *,
    sampling: str,
    epochs: float,
    batch_size: int,
    clip_norm: float,
    n: int,
    is_balanced: bool,
    n_classes: int | None,
) -> GradientEstimator:
    """Return the gradient estimator whose plan has the least noise within the budget, or the given noise.

    ``n`` is the public number of examples, from which the sampling rate and the number of steps are computed.
    """
    if count("batch_size", batch_size) > n:
        raise ValueError(
            f"batch_size = {batch_size} exceeds the number of examples, {n}. Set batch_size to at most {n}."
        )
    rate = batch_size / n
    settings: dict[str, Any] = {
        "sampler": named_sampler(sampling, batch_size, n),
        "steps": max(1, math.ceil(positive("epochs", epochs) / rate - 1e-9)),
        "clip_norm": clip_norm,
        "public_n": n,
    }
    if is_balanced and recursion is not None:
        raise ValueError("class_weight='balanced' is not supported with recursion. Leave recursion out.")
    if is_balanced:
        return balanced_estimator(budget, n_classes, settings)
    if n_classes is not None:
        raise ValueError(f"n_classes={n_classes} has an effect only with class_weight='balanced'. Leave it out.")
    if recursion is None:
        return Fresh(GradientPlan.for_budget(budget, **settings))
    if recursion.max_move is not None:
        positive("max_move", recursion.max_move)
    first_size = batch_size if recursion.first_batch_size is None else recursion.first_batch_size
    plan = RecursivePlan.for_budget(
        budget,
        difference_norm=recursion.difference_norm,
        refresh=recursion.refresh,
        first=named_sampler(sampling, first_size, n),
        **settings,
    )
    return Recursive(plan, list(trained_parameters(model).values()))
