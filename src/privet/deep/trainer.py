"""``PrivateTrainer``, the Trainer of transformers with private steps.

Only ``train`` is overridden. It uses what subclasses may call: the loaders, optimizers, schedulers and callbacks of the
Trainer, its ``evaluate``, ``log`` and ``save_model``.
"""

import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import TrainOutput

from privet.deep.datasets import Examples
from privet.deep.planning import make_private
from privet.deep.rows import as_batch, moved
from privet.deep.training import PrivateTraining
from privet.networks import Loss
from privet.privacy import Guarantee
from privet.privacy.budget import BudgetLike

_STATE = "training.privet"

_UNSUPPORTED = {
    "fp16": "float16 scales losses by a factor that depends on the data. Use bf16=True.",
    "label_smoothing_factor": "Pass a loss= of your own, with label smoothing.",
    "torch_compile": "Layers must be observed one by one, so compiled graphs are not used in training.",
    "deepspeed": "PrivateTrainer uses one process. For several, use make_private() with torch.distributed.",
    "fsdp": "PrivateTrainer uses one process. For several, use make_private() with torch.distributed.",
    "load_best_model_at_end": "Load the checkpoint that you want from its directory.",
    "auto_find_batch_size": "The batch size is part of the privacy plan. Use gradient_accumulation_steps.",
    "neftune_noise_alpha": "Its noise is no privacy noise, and it changes the embedding layer.",
}
"""Arguments that the private training does not support, and why or what to use instead."""


class PrivateTrainer(Trainer):  # type: ignore[misc]  # transformers has no types here
    """The Trainer of transformers, whose ``train()`` keeps a privacy guarantee for each training example.

    The usual arguments are used: number of epochs or ``max_steps``, learning rate, scheduler, optimizer, logging,
    evaluation, saving, ``bf16`` and ``gradient_checkpointing``. The expected batch size is
    ``per_device_train_batch_size`` times ``gradient_accumulation_steps``, of which the former is in memory at once.
    ``max_grad_norm`` is not used; the norm to which the gradient of each example is clipped is ``clip_norm``.

    Parameters
    ----------
    *args, **kwargs
        The arguments of ``transformers.Trainer``. The model, the arguments and the training dataset are required.
    clip_norm : float
        Bound on the l2 norm of one example's gradient.
    budget, epsilon, delta, noise_multiplier
        The privacy, as in :func:`~privet.deep.make_private`.
    loss : callable or "model"
        ``"model"``, the default, is the loss that the model computes from ``labels``. Otherwise a callable
        ``loss(outputs, batch)`` with one value per example.
    **private
        ``sampling``, ``public_n``, ``denoiser``, ``class_weight``, ``average``, ``random_state`` and ``ledger``, as in
        :func:`~privet.deep.make_private`.

    Attributes
    ----------
    private : PrivateTraining or None
        The private training, once ``train()`` has begun.

    Notes
    -----
    The training loss is private, so it is neither logged nor returned. What is logged is the learning rate and the
    epsilon spent. ``evaluate()`` publishes its metrics, so ``eval_dataset`` must be public data.
    """

    def __init__(
        self,
        *args: Any,
        clip_norm: float,
        budget: BudgetLike | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        loss: Loss | str = "model",
        sampling: str = "poisson",
        public_n: int | None = None,
        denoiser: Any = None,
        class_weight: Any = None,
        average: float | None = None,
        random_state: int | None = None,
        ledger: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(class_weight, str):
            raise ValueError(
                f"class_weight={class_weight!r} is not supported here, because the trainer saves a state before the "
                "first batch. Use make_private(), or give a dictionary of public weights."
            )
        super().__init__(*args, **kwargs)
        self.control: Any
        _check_arguments(self.args)
        self.private: PrivateTraining | None = None
        self._settings: dict[str, Any] = {
            "clip_norm": clip_norm,
            "budget": budget,
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "loss": loss,
            "sampling": sampling,
            "public_n": public_n,
            "denoiser": denoiser,
            "class_weight": class_weight,
            "average": average,
            "random_state": random_state,
            "ledger": ledger,
        }

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the steps made so far."""
        if self.private is None:
            raise AttributeError("There is no guarantee before train().")
        return self.private.guarantee

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Train privately, and return the number of steps and the epsilon spent.

        Parameters
        ----------
        resume_from_checkpoint : path, bool or None
            The directory of a checkpoint, or True for the latest in ``output_dir``. Steps that were made after it was
            written remain spent.
        """
        if kwargs:
            raise TypeError(f"PrivateTrainer.train() does not support {', '.join(kwargs)}.")
        private = self.private = self._made_private()
        self._begin(private)
        if resume_from_checkpoint:
            self._resume(private, resume_from_checkpoint)
        else:
            private.save(Path(self.args.output_dir) / _STATE)  # Starts the journal of spent steps.
        try:
            self._train(private)
        finally:
            private._files.close()  # Another training, also in this process, may resume the run.
        found = {"epsilon": private.guarantee.epsilon, "delta": private.guarantee.delta}
        # The place of the training loss, which is private.
        return TrainOutput(self.state.global_step, float("nan"), found)

    def _train(self, private: PrivateTraining) -> None:
        self._call("on_train_begin")
        self.model.train()
        for epoch in private.epochs():
            self._call("on_epoch_begin")
            for batch in epoch:
                self._step(private, batch)
                if self.control.should_training_stop:
                    break
            self._call("on_epoch_end")
            self._obey(private)
            if self.control.should_training_stop:
                break
        self._call("on_train_end")

    def _made_private(self) -> PrivateTraining:
        args = self.args
        size = args.per_device_train_batch_size * args.gradient_accumulation_steps
        loader = self.get_train_dataloader()
        n = len(loader.dataset) if self._settings["public_n"] is None else self._settings["public_n"]
        self.create_optimizer()
        if args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(args.gradient_checkpointing_kwargs or {"use_reentrant": False})
        private = make_private(
            self.model,
            self.optimizer,
            Examples.of(loader),
            epochs=args.max_steps * size / n if args.max_steps > 0 else args.num_train_epochs,
            batch_size=size,
            max_batch=args.per_device_train_batch_size,
            **self._settings,
        )
        self.create_scheduler(private.plan.steps, self.optimizer)
        return private

    def _begin(self, private: PrivateTraining) -> None:
        """Set what callbacks read."""
        callbacks = [each for each in self.callback_handler.callbacks if isinstance(each, ExportableState)]
        self.state = TrainerState(
            is_local_process_zero=self.is_local_process_zero(),
            is_world_process_zero=self.is_world_process_zero(),
            stateful_callbacks=[*callbacks, self.control],
        )
        self.state.max_steps = private.plan.steps
        self.state.num_train_epochs = -(-private.plan.steps // private.steps_per_epoch)
        self.state.epoch = 0.0
        self.state.compute_steps(self.args, private.plan.steps)
        handler = self.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler

    def _step(self, private: PrivateTraining, batch: Any) -> None:
        """Take one private step, and do what callbacks ask for."""
        self._call("on_step_begin")
        with self._autocast():
            private.step(moved(as_batch(batch), self.args.device))
        self.lr_scheduler.step()
        self.state.global_step = private.steps_spent
        self.state.epoch = private.steps_spent / private.steps_per_epoch
        self._call("on_step_end")
        self._obey(private)

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self.args.bf16:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(self.args.device.type, dtype=torch.bfloat16)
        return context

    def _obey(self, private: PrivateTraining) -> None:
        """Log, evaluate and save, as callbacks asked for."""
        control = self.control
        if control.should_log:
            control.should_log = False
            self.log({"learning_rate": self.lr_scheduler.get_last_lr()[0], "epsilon": private.guarantee.epsilon})
        if control.should_evaluate:
            control.should_evaluate = False
            self.evaluate()
            self.model.train()
        if control.should_save:
            control.should_save = False
            self._save_checkpoint_of(private)

    def _save_checkpoint_of(self, private: PrivateTraining) -> None:
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        self.save_model(str(path))
        if not self.args.save_only_model:
            private.save(path / _STATE, extra=self.lr_scheduler.state_dict())
        self.state.save_to_json(str(path / "trainer_state.json"))
        limit = self.args.save_total_limit
        for old in self._checkpoints()[: -limit if limit else 0]:
            shutil.rmtree(old)
        self._call("on_save")

    def _checkpoints(self) -> list[Path]:
        """Return the directories of all checkpoints, the latest one last."""
        found = [each for each in Path(self.args.output_dir).glob("checkpoint-*") if (each / _STATE).exists()]
        return sorted(found, key=lambda each: int(re.sub(r"\D", "", each.name)))

    def _resume(self, private: PrivateTraining, given: str | bool) -> None:
        found = [Path(self.args.output_dir), *self._checkpoints()][-1] if given is True else Path(str(given))
        extra = private.resume(found / _STATE)
        if extra is not None:
            self.lr_scheduler.load_state_dict(extra)
        if (found / "trainer_state.json").exists():
            self.state.log_history = TrainerState.load_from_json(str(found / "trainer_state.json")).log_history
        self.state.global_step = private.steps_spent
        self.state.epoch = private.steps_spent / private.steps_per_epoch

    def _call(self, event: str) -> None:
        """Let all callbacks handle an event."""
        self.control = getattr(self.callback_handler, event)(self.args, self.state, self.control)


def _check_arguments(args: Any) -> None:
    """Raise for arguments that would silently have no effect, or that void the guarantee."""
    for name, reason in _UNSUPPORTED.items():
        if getattr(args, name, None):
            raise ValueError(f"PrivateTrainer does not support {name}={getattr(args, name)!r}. {reason}")
    if max(args.n_gpu, args.world_size) > 1:
        raise ValueError(
            f"PrivateTrainer uses one process and one device, but it was given {args.world_size} and {args.n_gpu}. Set "
            "CUDA_VISIBLE_DEVICES, or use make_private() in several processes of torch.distributed."
        )
