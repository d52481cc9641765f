"""Saving and resuming a private training: what goes into its files, and what a resumed training takes over."""

import os
from typing import TYPE_CHECKING, Any

import torch

from privet.deep import checkpoint
from privet.deep.balanced import set_weights
from privet.global_generators import seed_torch
from privet.plans import PlanError
from privet.privacy import NoiseSource, assumed

if TYPE_CHECKING:
    from privet.deep.training import PrivateTraining


def save(private: "PrivateTraining", path: str | os.PathLike[str], extra: Any) -> None:
    """Write a training to a file. See :meth:`PrivateTraining.save`."""
    if not private._processes.is_first:
        return
    if not private._has_weights:
        raise PlanError(
            "A training with class_weight='balanced' can be saved after its first batch was drawn. Before that, its "
            "class weights are not released, and each training that is resumed would release them again."
        )
    private._files.begin(path)
    private._files.settle(private.steps_spent)
    seed_torch(NoiseSource(private._seed, purpose=f"torch, saved at {private.steps_spent} steps").below(10**15))
    counts = private._estimator.counts
    state = {
        **private._files.references(path, private.steps_spent),
        **({} if private._booking is None else private._booking.references),
        "plan": repr(private.plan),
        "steps_done": private.steps_done,
        "steps_spent": private.steps_spent,
        "assumptions": [assumption.text for assumption in private._changes.assumptions],
        "guarantee": private.guarantee.to_json(),
        "model": dict(private.model.state_dict()),
        "optimizer": private.optimizer.state_dict(),
        "estimate": private._estimator.state(),
        **({} if private._average is None else {"average": private._average.state()}),
        **({} if counts is None else {"counts": repr(counts), "class_weight": private._loss.class_weight}),
        "torch_generator": torch.get_rng_state(),
        "extra": extra,
    }
    checkpoint.write(path, state)


def resume(private: "PrivateTraining", path: str | os.PathLike[str]) -> Any:
    """Continue a training from a file. See :meth:`PrivateTraining.resume`."""
    if private._has_begun:
        raise PlanError("This training has already drawn batches. Call resume() before batches().")
    state = checkpoint.read(path)
    if state["plan"] != repr(private.plan):
        raise ValueError(f"The training in {path} has a different plan, {state['plan']}. Make the same plan again.")
    counts = private._estimator.counts
    if state.get("counts") != (None if counts is None else repr(counts)):
        raise ValueError(f"The training in {path} has other balanced class weights. Make the same training again.")
    # The spent steps are restored first. If anything fails later, no weights are restored without their cost.
    spent = state["steps_spent"]
    if private._processes.is_first:
        spent = private._files.take_over(path, state, spent)
    # The journal may count steps ahead that were never made.
    private.steps_spent = private._processes.agreed(min(spent, private.plan.steps))
    private.steps_done = state["steps_done"]
    if private._booking is not None:
        private._booking.resume(state.get("booked"))
    saved = [assumed(text) for text in state["assumptions"]]
    changes = private._changes
    changes.assumptions = saved + [each for each in changes.assumptions if each not in saved]
    private._source = private._new_source(f"make_private, resumed after {private.steps_spent} steps")
    if "class_weight" in state:
        set_weights(private, state["class_weight"])
    private.model.load_state_dict(state["model"])
    private.optimizer.load_state_dict(state["optimizer"])
    private._estimator.load(state["estimate"])
    if private._average is not None:
        private._average.load(state.get("average"))
    torch.set_rng_state(state["torch_generator"])
    private._changes.accept()
    return state["extra"]
