"""Tables 4 and H.10 and figure 5 of the DP-Fed-LS paper: an LSTM on Shakespeare's plays.

python experiments/fed_lstm.py [--full | --quick]

A client is a role of a play, and its data is the text of the role, so clients differ in style. An example is a sequence
of characters, and the task is to predict the next one. Roles with fewer than 100 examples are left out. The text of a
role is split chronologically into 70 % for training, 10 % for validation and 20 % for test. The edition differs from
the paper's: about 1,100 roles remain where the paper has 975, so delta is slightly smaller.

--full has the settings of the paper, with the other edition: 80 characters, two LSTM layers with 256 units, all
examples, 100 rounds with a fifth of the roles, 5 epochs with batches of 50, local learning rate 1.47, clipping norm 5,
noise multipliers 0.8 to 1.4 and five seeds. It was not run, because it takes weeks.

The default preset is made such that a run without noise learns well, that curves level off, and that noise matters:
5 characters, one LSTM layer with 32 units (8,364 weights), 50 examples per role, 80 rounds with 50 roles, and two local
passes over the examples in one batch each. The clipping norm is 2. The noise on a mean update has norm z sqrt(d) / m
times the clip, for d weights and m roles per round: 1.8, 3.7 and 5.5 times for the noise multipliers 1, 2 and 3 of the
preset. In the paper it is 3.7 to 6.5 times. Summed over the rounds, the noise of a weight has standard deviation 0.36 z
here and 0.26 z in the paper.

For each sampling, noise multiplier and sigma, the local learning rate is chosen on validation data with one seed, and
run with three other seeds. Table H.10 shows all rates at one noise multiplier. As in fed_cnn.py, a control has no
smoothing and a smaller global step, which leaves as much noise as sigma 1, and the rate chosen for sigma 0. The largest
noise is also run with a smaller clip: the noise has the same ratio to the clip, but is smaller. Beside the accuracies
stand that of the start, of the most common character, and of the same training without noise.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from fed_data import CharacterLSTM, Roles, SmallLSTM, role_texts, roles_of
from fed_grids import (
    SMALL_STEP,
    TRIAL_SEED,
    Grid,
    Row,
    compared,
    gain,
    made,
    plot,
    rows_of,
    show,
    summary,
    watched,
    with_gains,
)
from fed_runs import Setting, Task
from support import Spread, console, print_table, write_results
from torch import Tensor, nn

from privet.federated import LocalTraining, accuracy

MULTIPLIERS = (1.4, 1.2, 1.0, 0.8)
PAPER = {  # Table 4, test accuracy in per cent: by sigma, for each noise multiplier
    "uniform": {
        0.0: (38.79, 39.05, 41.48, 43.96),
        0.5: (39.97, 41.44, 43.66, 45.49),
        1.0: (40.36, 41.90, 44.29, 45.35),
        1.5: (40.76, 42.04, 43.68, 44.91),
    },
    "poisson": {
        0.0: (38.58, 39.84, 41.49, 43.78),
        0.5: (39.44, 40.87, 43.70, 45.24),
        1.0: (40.73, 42.20, 44.06, 45.03),
        1.5: (40.60, 42.27, 43.92, 45.06),
    },
}
PAPER_RATES = {  # Table H.10, at z = 1.6: by sigma, for each local learning rate
    0.0: {1.27: 38.44, 1.47: 38.83, 1.67: 38.34, 1.87: 37.50},
    1.0: {1.27: 39.37, 1.47: 38.93, 1.67: 38.67, 1.87: 39.49},
}
THEIR_CLIENTS = 195  # per round


@dataclass(frozen=True)
class Run:
    """One training. ``layers`` is 0 for the small network, ``n_clients`` None for all roles."""

    sampling: str
    multiplier: float
    sigma: float
    rate: float
    seed: int = TRIAL_SEED
    length: int = 5
    units: int = 32
    layers: int = 0
    most: int = 50
    n_clients: int | None = None
    per_round: int = 50
    rounds: int = 80
    clip_norm: float = 2.0
    batch_size: int = 50
    epochs: int = 2

    @property
    def setting(self) -> Setting:
        """The setting of the federated training."""
        local = LocalTraining(self.rate, self.batch_size, epochs=self.epochs, decay=0.99, weight_decay=4e-5)
        return Setting(
            len(data_of(self)),
            self.per_round,
            self.rounds,
            self.clip_norm,
            local,
            sampling=self.sampling,
            noise_multiplier=self.multiplier,
        ).smoothed(self.sigma)


@dataclass(frozen=True)
class SmallStep(Run):
    """A training with a smaller global step."""

    step_size: float = SMALL_STEP

    @property
    def setting(self) -> Setting:
        """The setting of the federated training."""
        return replace(super().setting, step_size=self.step_size)


@dataclass(frozen=True)
class Preset:
    """A grid, the noise multiplier that is run with all rates, those of the control, and another clipping norm."""

    grid: Grid
    all_rates_at: float | None = None
    controlled: tuple[float, ...] = ()
    small_clip: float | None = None


TEMPLATE = Run("poisson", 0.0, 0.0, 4.0)
FULL = Run("poisson", 0.0, 0.0, 1.47, TRIAL_SEED, 80, 256, 2, 10**9, None, 220, 100, 5.0, 50, 5)
PRESETS = {
    "full": Preset(
        Grid(
            FULL,
            tuple((kind, z, (0.0, 0.5, 1.0, 1.5)) for kind in ("uniform", "poisson") for z in MULTIPLIERS),
            (1.47,),
            (1, 2, 3, 4, 5),
        )
    ),
    "standard": Preset(
        Grid(
            TEMPLATE,
            (
                ("poisson", 1.0, (0.0, 1.0)),
                ("poisson", 2.0, (0.0, 0.5, 1.0)),
                ("poisson", 3.0, (0.0, 1.0)),
                ("uniform", 2.0, (0.0, 1.0)),
            ),
            (2.0, 4.0, 8.0),
            (1, 2, 3),
        ),
        all_rates_at=2.0,
        controlled=(2.0, 3.0),
        small_clip=0.7,
    ),
    "quick": Preset(
        Grid(
            replace(TEMPLATE, units=8, most=20, n_clients=20, per_round=4, rounds=2),
            (("poisson", 1.0, (0.0, 1.0)), ("uniform", 1.0, (0.0, 1.0))),
            (2.0,),
            (1,),
        ),
        all_rates_at=1.0,
        controlled=(1.0,),
        small_clip=0.7,
    ),
}


# ---------------------------------------------------------------------------------------------------- data and network


@lru_cache(maxsize=1)
def roles(length: int, most: int, n_clients: int | None) -> Roles:
    """Return the roles as clients."""
    return roles_of(role_texts(), length, 100, most, n_clients)


def data_of(run: Run) -> Roles:
    """Return the roles of a run."""
    return roles(run.length, run.most, run.n_clients)


def network(run: Run) -> nn.Module:
    """Return the network of a run, with random weights."""
    n_characters = data_of(run).n_characters
    return CharacterLSTM(n_characters, run.units, run.layers) if run.layers else SmallLSTM(n_characters, run.units)


def paper_network(run: Run) -> nn.Module:
    """Return the network of the paper for the characters of a run."""
    return CharacterLSTM(data_of(run).n_characters)


def commonest(parts: tuple[Tensor, Tensor]) -> float:
    """Return the accuracy of always predicting the most common character, in per cent."""
    counts = torch.bincount(parts[1])
    return 100 * float(counts.max() / counts.sum())


def outcome(run: Run) -> Row:
    """Return accuracies in per cent on test and validation data, the latter by round, and the epsilon."""
    data = data_of(run)
    test, validation = accuracy(*data.test), accuracy(*data.validation)
    task = Task(
        lambda: network(run),
        lambda _number, _seed: data.training,
        lambda model: 100 * test(model),
        engine="auto" if run.layers else "batched",
    )
    return watched(task, run.setting, run.seed, lambda model: 100 * validation(model))


def at_the_start(run: Run, seeds: Sequence[int]) -> float:
    """Return the mean test accuracy of the initial weights of some seeds, in per cent."""
    score = accuracy(*data_of(run).test)
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        found.append(100 * score(network(run)))
    return sum(found) / len(found)


# --------------------------------------------------------------------------------------------------------------- tables


def with_paper(row: Row) -> Row:
    """Return a row with the accuracy of the paper, if it has the same noise multiplier."""
    has_cell = row["noise_multiplier"] in MULTIPLIERS and row["sigma"] in PAPER[row["sampling"]]
    found = PAPER[row["sampling"]][row["sigma"]][MULTIPLIERS.index(row["noise_multiplier"])] if has_cell else None
    return {**row, "paper": found}


def by_rate(preset: Preset) -> list[Row]:
    """Return the rows of Table H.10: each local learning rate without and with smoothing, with all seeds."""
    grid, found = preset.grid, []
    for rate in grid.rates if preset.all_rates_at is not None else ():
        plain: list[float] = []
        for sigma in (0.0, 1.0):
            run = replace(grid.template, multiplier=preset.all_rates_at, sigma=sigma, rate=rate)
            row = summary([made(replace(run, seed=seed), outcome) for seed in grid.seeds])
            plain = plain or row["tests"]
            found.append({"rate": rate, "sigma": sigma, **row, "gain": gain(row["tests"], plain)})
    return found


def controls(rows: list[Row], preset: Preset) -> list[Row]:
    """Return the rows of the control, with the rates that were chosen without smoothing."""
    found = []
    for row in rows:
        if row["sampling"] == "poisson" and row["noise_multiplier"] in preset.controlled and row["sigma"] == 0:
            run = SmallStep(
                **asdict(replace(preset.grid.template, multiplier=row["noise_multiplier"], rate=row["rate"]))
            )
            kept = summary([made(replace(run, seed=seed), outcome) for seed in preset.grid.seeds])
            told = {key: row[key] for key in ("sampling", "noise_multiplier", "rate")}
            found.append({**told, "step_size": SMALL_STEP, **kept, "gain": gain(kept["tests"], row["tests"])})
    return found


def with_small_clip(rows: list[Row], preset: Preset) -> list[Row]:
    """Return rows without and with smoothing for a smaller clip, at the largest noise and its rate for sigma 0."""
    if preset.small_clip is None:
        return []
    plain = max((row for row in rows if row["sigma"] == 0), key=lambda row: float(row["noise_multiplier"]))
    template = replace(preset.grid.template, clip_norm=preset.small_clip, rate=plain["rate"])
    grid = replace(preset.grid, template=template, rates=(plain["rate"],))
    found = [compared(grid, ("poisson", plain["noise_multiplier"], sigma), outcome) for sigma in (0.0, 1.0)]
    return [{"clip": preset.small_clip, **row} for row in with_gains(found)]


def show_rates(rows: list[Row], multiplier: float | None) -> None:
    """Print Table H.10, ours and the paper's."""
    shown = [
        [
            f"{row['rate']:g}",
            f"{row['sigma']:g}",
            Spread(*row["test"], len(row["tests"])).show(2),
            f"{row['gain'][0]:+.2f} ± {row['gain'][1]:.2f}",
        ]
        for row in rows
    ]
    shown += [
        [f"{rate:g} (paper)", f"{sigma:g}", f"{value:.2f}", ""]
        for sigma, values in PAPER_RATES.items()
        for rate, value in values.items()
    ]
    title = f"Table H.10: z = {multiplier} here, 1.6 in the paper"
    print_table(title, ["local rate", "sigma", "test accuracy, %", "gain (standard error)"], shown)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_mutually_exclusive_group()
    for kind, meaning in {"full": "the paper's settings, for weeks", "quick": "few roles, for tests"}.items():
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=meaning)
    name = parser.parse_args(arguments).kind or "standard"
    preset = PRESETS[name]
    grid, begin = preset.grid, time.perf_counter()
    torch.set_num_threads(1)
    without_noise = compared(grid, ("poisson", 0.0, 0.0), outcome)
    rows = [with_paper(row) for row in rows_of(grid, outcome)]
    show("Table 4: an LSTM on the plays", rows)
    rates = by_rate(preset)
    show_rates(rates, preset.all_rates_at)
    controlled = controls(rows, preset)
    for row in controlled:
        console.print(
            f"Global step {SMALL_STEP}, z = {row['noise_multiplier']:g}: {row['test'][0]:.2f} %", markup=False
        )
    clipped = with_small_clip(rows, preset)
    for row in clipped:
        console.print(f"Clip {row['clip']:g}, sigma {row['sigma']:g}: {row['test'][0]:.2f} %", markup=False)
    run = grid.template
    size, theirs = (
        sum(weights.numel() for weights in model.parameters()) for model in (network(run), paper_network(run))
    )
    results = {
        "preset": name,
        "roles": run.setting.n_clients,
        "weights": size,
        "start": at_the_start(run, grid.seeds),
        "majority": commonest(data_of(run).test),
        "without_noise": without_noise,
        "noise_to_clip_at_1": math.sqrt(size) / run.per_round,
        "noise_to_clip_at_1_of_the_paper": math.sqrt(theirs) / THEIR_CLIENTS,
        "rows": rows,
        "rates": rates,
        "controls": controlled,
        "small_clip": clipped,
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(
        f"Start {results['start']:.1f} %, most common character {results['majority']:.1f} %, without noise "
        f"{Spread(*without_noise['test'], len(grid.seeds)).show(2)} %; noise on a mean update over the clip "
        f"{results['noise_to_clip_at_1']:.1f} z (paper {results['noise_to_clip_at_1_of_the_paper']:.1f} z)"
    )
    file = "fed_lstm" + ("" if name == "standard" else f"_{name}")
    write_results(file, results)
    plot(rows, file)
    return results


if __name__ == "__main__":
    main()
