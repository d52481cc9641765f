"""Figure 7 and Table H.12 of "Differentially Private Federated Learning with Laplacian Smoothing": membership attacks.

python experiments/fed_membership.py [--full | --quick] [--runs 2]

A CNN, pretrained on MNIST, is trained on SVHN without privacy, by DP-Fed, and by DP-Fed-LS (sigma 1). The threshold
attack (Yeom et al.) then distinguishes images of clients from other images by their loss. An AUC of 0.5 means guessing.
The attack is on single images, although entire clients are protected, and it does not give a bound on epsilon. The
paper shows its areas only as a picture.

THE DATA IS A SUBSET: the paper has 64,000 images for 500 clients, a fifth of which take part in a round, and attacks
with 10,000 training and 10,000 test images. The test images of SVHN differ slightly from its training images, which an
attack mistakes for membership: with test images, a model that was pure noise had an AUC of 0.518 (0.506 to 0.529).
Therefore the other images here are training images that no client has. --full is the paper's network on 16,000 images
for 125 clients (with as many images per client as in the paper), 200 rounds, and an attack with 4,000 other images. The
default preset has the small network, images and start of fed_smoothing.py, the paper's 500 clients with 10 images each,
and 60 rounds. Its noise multipliers are 1.8, as in the paper, and 4, where noise matters for this network.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from fed_data import Examples, paper_cnn, small_cnn
from fed_digits import digits, majority, pretrained
from fed_report import Shown, finding, keep, options, result_name, yes
from fed_runs import Setting, Task, train, trained_without_privacy
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import Spread, console, save_figure
from torch import Tensor, nn
from torch.nn import functional

from privet.audit.membership import Membership, membership
from privet.federated import LocalTraining

SUBSET = "On a subset of SVHN; the paper has 64,000 images at 500 clients."
PAPER = {  # Table H.12, test accuracy, %
    ("uniform", 1.8): {0.0: 79.02, 1.0: 81.51},
    ("uniform", 2.2): {0.0: 76.05, 1.0: 77.20},
    ("poisson", 1.8): {0.0: 79.19, 1.0: 81.45},
    ("poisson", 2.2): {0.0: 75.63, 1.0: 79.75},
}
PAPER_PLAIN = {"uniform": 90.47, "poisson": 90.52}
THEIRS = LocalTraining(0.1, batch_size=64, epochs=10, decay=0.99, weight_decay=4e-5)


@dataclass(frozen=True)
class Preset:
    """Network, sizes, and the models that are attacked."""

    network: Callable[[], nn.Module] = paper_cnn
    side: int = 32
    n: int = 16_000
    n_clients: int = 125
    share: float = 0.2
    rounds: int = 200
    local: LocalTraining = THEIRS
    clip_norm: float = 0.3
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    cases: tuple[tuple[str, float], ...] = tuple(PAPER)
    attacked: int = 4_000
    pretraining: int = 60_000


SMALL = LocalTraining(0.1, batch_size=10, epochs=2, decay=0.99, weight_decay=4e-5)
PRESETS = {
    "full": Preset(),
    "preset": Preset(
        network=small_cnn,
        side=16,
        n=5_000,
        n_clients=500,
        rounds=60,
        local=SMALL,
        seeds=(1, 2),
        cases=(("poisson", 1.8), ("poisson", 4.0)),
        attacked=5_000,
    ),
    "quick": Preset(
        network=small_cnn,
        side=16,
        n=400,
        n_clients=20,
        rounds=3,
        local=SMALL,
        seeds=(1,),
        cases=(("poisson", 1.8),),
        attacked=300,
        pretraining=200,
    ),
}


def losses(model: nn.Module, X: Tensor, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the negative loss of each image in double precision. In single precision, many losses would be equal."""
    with torch.no_grad():
        scores = torch.cat([model(part) for part in X.split(2000)]).double()
    return np.asarray(-functional.cross_entropy(scores, torch.from_numpy(y), reduction="none"))


@dataclass(frozen=True)
class Populace:
    """Images of clients, and as many images of the same population that no client has."""

    members: Examples
    X_out: Tensor
    y_out: Tensor

    @classmethod
    def of(cls, preset: Preset) -> "Populace":
        """Split the training images of SVHN at random. Its test images differ, which an attack would notice."""
        whole = digits(preset.n + preset.attacked, preset.side)
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(whole.y)))
        ins, outs = order[: preset.n], order[preset.n :]
        return cls(replace(whole, X=whole.X[ins], y=whole.y[ins]), whole.X[outs], whole.y[outs])

    def attack(self, model: nn.Module) -> Membership:
        """Attack a model with equally many members and other images."""
        size = min(len(self.members.y), len(self.y_out))
        X, y = self.members.X[:size], self.members.y[:size].numpy()
        return membership(model, X, y, self.X_out[:size], self.y_out[:size].numpy(), score=losses)


def setting(preset: Preset, sampling: str, multiplier: float) -> Setting:
    """Return the setting for a noise multiplier, without smoothing."""
    per_round = max(1, round(preset.share * preset.n_clients))
    return Setting(
        preset.n_clients,
        per_round,
        preset.rounds,
        preset.clip_norm,
        preset.local,
        sampling=sampling,
        noise_multiplier=multiplier,
    )


@dataclass(frozen=True)
class Attacks:
    """Repeated trainings of one kind, and the attacks on them."""

    name: str
    paper: float | None
    epsilon: float
    accuracies: tuple[float, ...]
    found: tuple[Membership, ...]

    @property
    def auc(self) -> Spread:
        """The areas under the ROC curves."""
        return Spread.of([each.auc for each in self.found])

    def row(self) -> list[str]:
        """Return the row of a table."""
        low, high = self.found[0].auc_interval
        spent = "none" if np.isinf(self.epsilon) else f"{self.epsilon:.3g}"
        accuracy = Spread.of(self.accuracies).show(2)
        paper = "" if self.paper is None else f"{self.paper:.2f}"
        return [self.name, spent, paper, accuracy, self.auc.show(4), f"{low:.3f} to {high:.3f}"]

    def summary(self) -> dict[str, Any]:
        """Return what is written to the results file."""
        first = {key: value for key, value in self.found[0].to_dict().items() if key not in ("fpr", "tpr")}
        return {
            "model": self.name,
            "epsilon": None if np.isinf(self.epsilon) else self.epsilon,
            "paper_accuracy": self.paper,
            "accuracies": list(self.accuracies),
            "aucs": [each.auc for each in self.found],
            "first_attack": first,
        }


def models(task: Task, data: Populace, preset: Preset) -> list[Attacks]:
    """Train and attack all models. The first is trained without privacy."""
    first, z = preset.cases[0]
    plain = [trained_without_privacy(task, setting(preset, first, z), seed) for seed in preset.seeds]
    found = [
        Attacks(
            "no privacy",
            PAPER_PLAIN[first],
            float("inf"),
            tuple(task.test(model) for model in plain),
            tuple(data.attack(model) for model in plain),
        )
    ]
    console.print(*found[-1].row(), sep="; ")
    for sampling, multiplier in preset.cases:
        for sigma in (0.0, 1.0):
            chosen = setting(preset, sampling, multiplier).smoothed(sigma)
            outcomes = [train(task, chosen, seed) for seed in preset.seeds]
            found.append(
                Attacks(
                    f"{sampling}, z {multiplier}, sigma {sigma:g}",
                    PAPER.get((sampling, multiplier), {}).get(sigma),
                    outcomes[0].epsilon,
                    tuple(outcome.accuracy for outcome in outcomes),
                    tuple(data.attack(outcome.model) for outcome in outcomes),
                )
            )
            console.print(*found[-1].row(), sep="; ")
    return found


def compared(found: Sequence[Attacks]) -> list[str]:
    """Return lines that compare the areas."""
    plain, *private = found
    most = max(each.auc.mean for each in private)
    lines = [
        finding(
            "private models leak less than the one without privacy",
            "yes",
            f"{yes(most < plain.auc.mean)} (AUC at most {most:.3f} against {plain.auc.mean:.3f})",
        )
    ]
    for without, smooth in zip(private[::2], private[1::2], strict=True):
        verdict = yes(smooth.auc.mean <= without.auc.mean)
        figures = f"{smooth.auc.mean:.4f} against {without.auc.mean:.4f}"
        lines.append(
            finding(f"{smooth.name} leaks no more than sigma 0", "it may leak even less", f"{verdict} ({figures})")
        )
    return lines


def plot(found: Sequence[Attacks], name: str) -> None:
    """Draw the ROC curves of the first seed."""
    figure = Figure(figsize=(5.5, 5), layout="constrained")
    panel = figure.subplots()
    for each in found:
        first = each.found[0]
        panel.plot(first.fpr, first.tpr, label=f"{each.name}: AUC {first.auc:.3f}", linewidth=1)
    panel.plot([0, 1], [0, 1], ":", color="grey")
    panel.set(xlabel="others taken for members", ylabel="members found", title="Figure 7: threshold attack")
    panel.legend(fontsize=7)
    figure.suptitle(SUBSET, fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.configuration]
    if chosen.runs is not None:
        preset = replace(preset, seeds=tuple(range(1, chosen.runs + 1)))
    begin = time.perf_counter()
    ran = (
        f"Configuration {chosen.configuration}: {preset.network.__name__}, {preset.n} images at {preset.n_clients} "
        f"clients, {preset.share:.0%} per round, {preset.rounds} rounds, local epochs {preset.local.epochs}, "
        f"{len(preset.seeds)} seeds"
    )
    console.print(f"{SUBSET}\n{ran}")
    data = Populace.of(preset)
    images = data.members

    def network() -> nn.Module:
        return pretrained(preset.pretraining, preset.network, preset.side)

    task = Task(network, images.clients, images.test)
    found = models(task, data, preset)
    columns = ["model", "epsilon", "paper: accuracy, %", "privet: accuracy, %", "privet: AUC", "its interval, seed 1"]
    table = Shown("Figure 7 and Table H.12: the threshold attack", columns, [each.row() for each in found]).print()
    name = result_name("fed_membership", chosen.configuration)
    results = keep(
        name,
        [table],
        configuration=chosen.configuration,
        ran=ran,
        subset=SUBSET,
        start=images.test(network()),
        majority=majority(images),
        seconds=round(time.perf_counter() - begin),
        findings=compared(found),
        rows=[each.summary() for each in found],
    )
    plot(found, name)
    return results


if __name__ == "__main__":
    main()
