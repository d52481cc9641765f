"""Figures 4.3 and 4.5(c), (d) of L. Wang's dissertation: CNN6 on CIFAR-10, whose convolutions are public and frozen.

python experiments/dp_srm_cnn6.py [--full | --quick] [--runs 3] [--workers 2]

CNN6 has three convolutions with 32, 64 and 128 filters and three linear layers. In the paper, the convolutions are
trained on CIFAR-100, and only the linear layers are trained privately. CIFAR-100 could not be had. Here the
convolutions are trained on 20,000 house numbers (SVHN), a poorer stand-in: digits say less about animals and vehicles
than the classes of CIFAR-100 do. Their outputs, averaged to 512 numbers per image and standardised by their mean and
deviation on the house numbers, are computed once. The linear layers have 128, 64 and 10 units (74,570 weights).

--full runs the paper's search, with C1 = 2, at epsilon 2, 4 and 8, followed by 30 runs of the best, for 150 epochs (as
in its non-private run). The standard preset has 20 epochs with batches of 1024, C1 = 0.2, and steps that decrease
linearly to zero. Both methods have two candidates, which are tried with 5,000 images held out; the better one is run
with three seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from deep_runs import Job, images, options
from dp_srm_networks import Setting, Study, grid, run
from numpy.typing import NDArray
from support import console, data_file, made_data
from torch import Tensor, nn

PUBLIC = "svhn_20k_5k.npz"
PAPER = {  # test error, %
    (2.0, "DP-SGD"): 33.2,
    (2.0, "DP-SRM"): 33.2,
    (4.0, "DP-SGD"): 31.2,
    (4.0, "DP-SRM"): 31.0,
    (8.0, "DP-SGD"): 29.4,
    (8.0, "DP-SRM"): 29.3,
}
TITLE = "Figures 4.3 and 4.5(c), (d): CNN6 on CIFAR-10, delta 1e-5"
TOP = Job("", "cnn6.npz", "as_given", n=50_000, net="cnn6_top", steps=0, batch=0, clip_norm=2.0, learning_rate=0.0)
OURS = Setting(10.0, 1024, 20, clip_norm=0.2, is_annealed=True)
RECURSIVE = replace(OURS, refresh=0.7, difference_norm=0.01)
CANDIDATES = {
    "DP-SGD": tuple(replace(OURS, learning_rate=rate) for rate in (5.0, 10.0)),
    "DP-SRM": tuple(replace(RECURSIVE, learning_rate=rate) for rate in (5.0, 10.0)),
}
SEARCH = grid(
    (0.01, 0.02, 0.05, 0.1, 0.15, 0.2),
    (64, 128, 256),
    150,
    (0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99),
    (1, 2, 4),
)
FEW = {"DP-SGD": (Setting(0.1, 32, 0.2),), "DP-SRM": (Setting(0.1, 32, 0.2, refresh=0.5, first=2),)}


@dataclass(frozen=True)
class Features:
    """How the frozen convolutions are trained, and the images for which their outputs are computed."""

    name: str = "cnn6.npz"
    source: str = "cifar10.npz"
    n: int = 50_000
    n_public: int = 20_000
    epochs: int = 8


PRESETS = {
    "standard": (Features(), Study(TITLE, TOP, (2.0, 4.0, 8.0), CANDIDATES, PAPER, runs=3)),
    "full": (Features(), Study(TITLE, TOP, (2.0, 4.0, 8.0), SEARCH, PAPER, runs=30)),
    "quick": (
        Features("cnn6_quick.npz", "cifar10_15k_3k.npz", n=1000, n_public=500, epochs=1),
        Study(TITLE, replace(TOP, source="cnn6_quick.npz", n=1000, n_test=100), (4.0,), FEW, PAPER, runs=1),
    ),
}

# ------------------------------------------------------------------------------------------------- frozen convolutions


def standardised(pixels: Tensor) -> Tensor:
    """Return images with mean 0 and deviation 1 each."""
    dims = (1, 2, 3)
    return (pixels - pixels.mean(dims, keepdim=True)) / pixels.std(dims, keepdim=True).clamp(min=0.05)


def convolutions() -> nn.Sequential:
    """Return the convolutions of CNN6 with the initial weights of He and others."""
    layers: list[nn.Module] = []
    for before, filters in ((3, 32), (32, 64), (64, 128)):
        layer = nn.Conv2d(before, filters, 3, padding=1)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers)


def trained_on_public_images(n: int, epochs: int) -> nn.Sequential:
    """Return convolutions trained on ``n`` house numbers, without privacy."""
    torch.manual_seed(0)
    X, y = images(PUBLIC, "from_zero_to_one", n)[0].tensors
    body = convolutions()
    net = nn.Sequential(body, nn.Flatten(), nn.Dropout(0.3), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * -(-n // 64))
    loss = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for rows in torch.randperm(n).split(64):
            optimizer.zero_grad()
            loss(net(standardised(X[rows])), y[rows]).backward()
            optimizer.step()
            schedule.step()
        console.print(f"Convolutions: epoch {epoch + 1} of {epochs} on {n} house numbers")
    return body


@torch.no_grad()
def outputs(body: nn.Module, pixels: Tensor) -> NDArray[Any]:
    """Return the outputs of the convolutions, averaged over 2 x 2 places, with one row per image."""
    pool = nn.AvgPool2d(2)
    return torch.cat([pool(body(standardised(few))).flatten(1) for few in pixels.split(500)]).numpy()


def make_features(wanted: Features) -> None:
    """Write the outputs of the frozen convolutions, unless the file exists."""
    target = made_data(wanted.name)
    if target.exists():
        return
    body = trained_on_public_images(wanted.n_public, wanted.epochs)
    public = outputs(body, images(PUBLIC, "from_zero_to_one", wanted.n_public)[0].tensors[0])
    mean, deviation = public.mean(axis=0), public.std(axis=0) + 1e-2
    parts = dict(zip(("train", "test"), images(wanted.source, "from_zero_to_one", wanted.n), strict=True))
    found = {f"x_{part}": (outputs(body, data.tensors[0]) - mean) / deviation for part, data in parts.items()}
    found |= {f"y_{part}": data.tensors[1].numpy() for part, data in parts.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, **found)


# ---------------------------------------------------------------------------------------------------------- experiment


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    features, study = PRESETS[chosen.preset]
    study = replace(study, runs=chosen.runs or study.runs)
    data_file(features.source)
    data_file(PUBLIC)
    make_features(features)
    return run(study, "dp_srm_cnn6", chosen.preset, chosen.workers)


if __name__ == "__main__":
    main()
