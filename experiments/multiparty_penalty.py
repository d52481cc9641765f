"""Why MPC Out-P is not above Local Obj-P on Bike in figures 6.2, 6.5 and 6.6 of L. Wang's dissertation.

python experiments/multiparty_penalty.py [--quick] [--seeds N]

multiparty.py --paper trains all methods with lambda = 0.001, as the chapter does. Local Obj-P does not keep to that:
its budget requires a penalty that grows as parties have fewer rows, so it trains with a larger one. Here MPC Out-P is
also given the penalty with which Local Obj-P trains, and nothing else is changed. (This penalty depends on public
numbers only.) Both are judged by the objective with lambda = 0.001, as in the figures, with 10 seeds of the noise.

Two parts of the error of MPC Out-P are shown as well. One is the optimality gap of its average without noise. The
other is what noise of deviation s adds where the loss is quadratic, s^2/2 times the trace of the Hessian: at most
s^2/2 (B + d lambda) for a loss of smoothness B, where s is 4.9 times 2/(n lambda) at this budget.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from multiparty_comparisons import afforded_alpha
from multiparty_data import FILES, NAMES, Study, load, party_counts
from multiparty_methods import LOCAL_OBJ, MPC_OUT, Deal, Knobs, mpc_output, train
from support import Spread, data_file, print_table, write_results

from multiparty import ALPHA, BUDGET, Judge
from privet.privacy import NoiseSource
from privet.solvers.objective_perturbation import objective_plan

OWN, GIVEN, LOCAL = f"{MPC_OUT}, lambda 0.001", f"{MPC_OUT}, penalty of {LOCAL_OBJ}", LOCAL_OBJ


def examined(study: Study, parties: int, seeds: int) -> list[dict[str, Any]]:
    """Return the gap and the loss of both methods on a study that is divided among parties."""
    deal = Deal(study, parties)
    problem, party = deal.pooled(ALPHA), deal.party(ALPHA)
    judge = Judge(study, problem)
    penalty = objective_plan(party, BUDGET, added_alpha=afforded_alpha(party, BUDGET)).modulus
    rows = []
    for name, method, alpha, trained in (
        (OWN, MPC_OUT, ALPHA, ALPHA),
        (GIVEN, MPC_OUT, penalty, penalty),
        (LOCAL, LOCAL_OBJ, ALPHA, penalty),
    ):
        runs = [train(method, deal, BUDGET, Knobs(alpha), source(seed, name, deal)) for seed in range(seeds)]
        weights = [run.path[1] for run in runs]
        row: dict[str, Any] = {"dataset": study.name, "parties": parties, "rows_each": deal.rows_each, "method": name}
        row |= {"penalty": trained, "epsilon": runs[0].epsilon, "noise_std": runs[0].noise_std}
        row |= {"gap_of_zero_weights": judge.gap(problem.start()), "loss_of_zero_weights": judge.loss(problem.start())}
        for key, measure in (("gap", judge.gap), ("loss", judge.loss)):
            row[key] = asdict(Spread.of([measure(each) for each in weights]))
        if method == MPC_OUT:
            bound = problem.objective.smoothness(1.0) + deal.d * ALPHA
            row["gap_without_noise"] = judge.gap(mpc_output(deal, BUDGET, Knobs(alpha), None).path[1])
            row["gap_of_quadratic_noise"] = runs[0].noise_std ** 2 / 2 * bound
        rows.append(row)
    return rows


def source(seed: int, name: str, deal: Deal) -> NoiseSource:
    """Return the noise of a run."""
    return NoiseSource(seed, purpose=f"penalty, {deal.study.name}, {deal.parties} parties, {name}")


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    lines = []
    for row in rows:
        gap, loss = (Spread(**row[key]).show(4) for key in ("gap", "loss"))
        parts = [f"{row[key]:.4f}" if key in row else "" for key in ("gap_without_noise", "gap_of_quadratic_noise")]
        what = f"{row['dataset']}, {row['parties']:,}, {row['method']}"
        lines.append([what, f"{row['penalty']:.4g}", f"{row['noise_std']:.3f}", gap, *parts, loss])
    columns = ["data set, parties, method", "penalty", "noise", "gap", "without noise", "noise at most", "test loss"]
    print_table("MPC Out-P and Local Obj-P", columns, lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the comparison, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only Bike, and two seeds")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args(arguments)
    names, seeds = (("Bike",), 2) if options.quick else (NAMES, options.seeds)
    for name in names:
        data_file(FILES[name])
    rows = [row for name in names for count in party_counts(name) for row in examined(load(name), count, seeds)]
    show(rows)
    results = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "lambda": ALPHA, "rows": rows}
    write_results("multiparty_penalty" + ("_quick" if options.quick else ""), results)
    return results


if __name__ == "__main__":
    main()
