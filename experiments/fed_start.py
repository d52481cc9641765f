"""Where the trainings on SVHN begin: the accuracy of weights trained on MNIST that no client has touched.

python experiments/fed_start.py [--quick]

The default presets of fed_cnn.py and fed_membership.py train a small network that starts from such weights. An accuracy
of theirs means something only beside that of the start and of always guessing the most common digit, both measured here
on the same test images.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from fed_cnn_setup import PRESETS, pretrained
from fed_data import svhn_images
from support import console, write_results


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure both accuracies, print them, and write them to docs/results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, for tests")
    name = "quick" if parser.parse_args(arguments).quick else "preset"
    preset = PRESETS[name]
    data = svhn_images(preset.n, preset.side)
    model = pretrained(preset.network, preset.side, preset.pretraining)
    with torch.no_grad():
        guesses = model(data.X_test).argmax(dim=1)
    most_common = int(torch.bincount(data.y).argmax())
    results = {
        "configuration": name,
        "network": preset.network.__name__,
        "test_images": len(data.y_test),
        "accuracy": 100 * float((guesses == data.y_test).double().mean()),
        "most_common_digit": 100 * float((data.y_test == most_common).double().mean()),
    }
    console.print(
        f"Untouched: {results['accuracy']:.2f} %; the most common digit: {results['most_common_digit']:.2f} %"
    )
    write_results("fed_start" + ("" if name == "preset" else f"_{name}"), results)
    return results


if __name__ == "__main__":
    main()
