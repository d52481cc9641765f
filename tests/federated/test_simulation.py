"""Whole runs in simulation."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from privet.denoise import LaplacianSmoothing
from privet.federated import ClientTrainer, LocalTraining, Partitioned, Server, accuracy, client_plan, simulate, tail
from privet.federated.engines.forked import can_fork
from privet.federated.local_training import order_source
from privet.federated.partition import iid
from privet.federated.simulation import _check_fit
from privet.networks import trained_weights
from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson
from privet.privacy import Budget

DELTA = 1e-3
QUIET = 1e-3  # the smallest noise multiplier for which the accounting works


def run(model, clients, local, plan=None, **options):
    options = {"loss": nn.CrossEntropyLoss(), "delta": DELTA, "random_state": 5, "verbose": False} | options
    return simulate(model, clients, local=local, plan=plan or GradientPlan(FixedSize(6, 20), 4, 0.5, 0.5), **options)


def same(one, other, atol=0.0):
    return all(np.allclose(one.weights[name], other.weights[name], rtol=0, atol=atol) for name in one.weights)


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_a_federation_learns_within_its_budget(sampling, blobs, softmax, local):
    X, y = blobs
    clients = Partitioned(blobs, iid(600, 300, np.random.default_rng(1)))
    result = simulate(
        softmax,
        clients,
        loss=nn.CrossEntropyLoss(),
        local=local,
        budget=Budget(8.0, DELTA),
        rounds=15,
        clients_per_round=60,
        clip_norm=0.5,
        sampling=sampling,
        denoiser=LaplacianSmoothing(0.1),
        evaluate=accuracy(X, y),
        verbose=False,
    )
    assert result.history[-1].score > 0.85
    assert result.history[-1].score == accuracy(X, y)(result.model)
    assert 0.99 * 8 < result.guarantee.epsilon <= 8
    assert result.guarantee.epsilon == result.history[-1].epsilon
    assert [report.number for report in result.history] == list(range(1, 16))
    assert result.history[0].epsilon < result.history[7].epsilon < result.history[14].epsilon
    text = result.guarantee.statement(verbose=True)
    assert "for each client" in text
    assert ("the number of clients, which determines the sampling rate and the divisor, is public" in text) == (
        sampling == "poisson"
    )
    assert torch.equal(softmax.weight, torch.zeros(3, 6))  # the given model is not modified


def test_one_round_without_noise_averages_the_clients(clients, softmax, local):
    """With full participation, a large clipping norm and little noise, a round is plain federated averaging."""
    plan = GradientPlan(FullBatch(), 1, 50.0, QUIET)
    result = run(softmax, clients, local, plan)
    trainer = ClientTrainer(softmax, nn.CrossEntropyLoss(), local, 50.0)
    updates = [
        trainer.update(trained_weights(softmax), clients[client], 0, order_source(5, 0, client)) for client in range(20)
    ]
    for name in result.weights:
        mean = np.mean([update[name] for update in updates], axis=0)
        assert np.abs(result.weights[name] - mean).max() < 6 * 50.0 * QUIET / 20
    assert np.abs(result.weights["weight"]).max() > 0.2


def test_the_denoiser_is_applied_to_each_layer_of_the_noisy_mean(clients, softmax, local):
    """The model starts at zero, so after one round it is the noisy mean itself."""
    plan, denoiser = GradientPlan(FullBatch(), 1, 0.5, 0.5), LaplacianSmoothing(1.0)
    plain, smoothed = run(softmax, clients, local, plan), run(softmax, clients, local, plan, denoiser=denoiser)
    assert not same(plain, smoothed, atol=1e-3)
    for name, layer in plain.weights.items():
        assert np.allclose(smoothed.weights[name], denoiser(layer, 0.5 * 0.5 / 20), rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 100])
def test_accuracy_is_the_share_of_examples_that_the_model_classifies_correctly(batch_size):
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
    inputs = np.eye(3)[[0, 1, 2, 1, 0]]  # The model's answer is the place of the one.
    assert accuracy(inputs, [0, 1, 0, 1, 2], batch_size)(model) == 3 / 5
    assert accuracy(inputs, [0, 1, 2, 1, 0], batch_size)(model) == 1.0
    assert accuracy(inputs, [1, 2, 0, 2, 1], batch_size)(model) == 0.0


def test_the_average_determines_the_released_model(clients, softmax, local):
    last, averaged = run(softmax, clients, local), run(softmax, clients, local, average=tail(4))
    assert not same(last, averaged)
    one = run(softmax, clients, local, average=lambda t: float(t == 4))
    assert same(last, one)


def test_evaluate_every_selects_the_rounds_with_a_score(clients, softmax, local):
    seen = []
    result = run(softmax, clients, local, evaluate=lambda model: seen.append(model) or 1.0, evaluate_every=3)
    assert [report.score for report in result.history] == [None, None, 1.0, 1.0]
    assert len(seen) == 2
    assert not seen[0].training


# -------------------------------------------------------------------------------------------- engines and repetition


def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def test_all_engines_give_the_same_model(clients, local):
    model, local = convolution(), replace(local, denoiser=LaplacianSmoothing(0.5), order="OWHI")
    plan = GradientPlan(Poisson(0.3), 3, 0.2, 0.5, public_n=20)
    engines = ["sequential", "batched", "processes", *["batched_processes"] * can_fork()]
    found = [
        run(model, clients, local, plan, engine=engine, workers=1, denoiser=LaplacianSmoothing(1.0), order="OHWI")
        for engine in engines
    ]
    assert [result.engine for result in found] == engines
    assert all(same(found[0], result, atol=1e-5) for result in found[1:])


def test_random_layers_are_repeatable_and_the_same_in_all_engines(clients, local):
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    one, other = (run(model, clients, local, engine=engine) for engine in ("sequential", "batched"))
    assert same(one, other)
    assert not same(one, run(model.eval(), clients, local, engine="sequential", random_state=6))


def test_random_state_makes_a_run_repeatable(clients, softmax, local):
    assert same(run(softmax, clients, local), run(softmax, clients, local))
    assert not same(run(softmax, clients, local), run(softmax, clients, local, random_state=6))
    unseeded = [run(softmax, clients, local, random_state=None) for _ in range(2)]
    assert not same(*unseeded)
    assert "seed stays secret" in run(softmax, clients, local).guarantee.statement(verbose=True)
    assert "ChaCha20" in unseeded[0].guarantee.statement(verbose=True)


# ----------------------------------------------------------------------------------------------- clients and faults


class Guarded:
    """Clients that record which of them were accessed, and some of which fail."""

    def __init__(self, clients, faults=None):
        self.clients, self.faults, self.asked = clients, faults or {}, []

    def __len__(self):
        return len(self.clients)

    def __getitem__(self, client):
        self.asked.append(client)
        fault = self.faults.get(client, "fine")
        if isinstance(fault, Exception):
            raise fault
        return self.clients[client] if isinstance(fault, str) else fault


@pytest.mark.parametrize("engine", ["sequential", "batched", "processes"])
def test_only_sampled_clients_are_accessed(engine, clients, softmax, local):
    plan = GradientPlan(FixedSize(3, 20), 2, 0.5, 1.0)
    drawn = Server(plan, trained_weights(softmax), 20, delta=DELTA, random_state=5)
    sampled = []
    for _ in range(2):
        sampled += [int(client) for client in drawn.sample()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            drawn.aggregate({})
    forbidden = {client: AssertionError("touched") for client in range(20) if client not in sampled}
    guarded = Guarded(clients, forbidden)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an error of a client would cause a warning
        run(softmax, guarded, local, plan, engine=engine, workers=1)
    assert sorted(guarded.asked) == sorted(sampled)


X_BAD = torch.randn(5, 6)
FAULTS = {
    "gone": None,
    "raises": OSError("unreachable"),
    "not a number": (torch.full((5, 6), float("nan")), torch.zeros(5, dtype=torch.long)),
    "other shapes": (torch.zeros(5, 9), torch.zeros(5, dtype=torch.long)),
    "labels out of range": (X_BAD, torch.full((5,), 77)),
    "infinite": (torch.full((5, 6), float("inf")), torch.zeros(5, dtype=torch.long)),
    "targets missing": (X_BAD,),
}


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_client_counts_as_a_zero_update(fault, engine, clients, softmax, local):
    plan = GradientPlan(FullBatch(), 2, 0.5, 0.5)
    empty = (torch.zeros(0, 6), torch.zeros(0, dtype=torch.long))
    expected = run(softmax, Guarded(clients, {7: empty}), local, plan, engine=engine)
    with pytest.warns(UserWarning, match="count as zero"):
        found = run(softmax, Guarded(clients, {7: FAULTS[fault]}), local, plan, engine=engine)
    assert same(found, expected, atol=1e-6)
    assert found.guarantee == expected.guarantee


def test_a_huge_update_is_clipped(clients, softmax, local):
    plan = GradientPlan(FullBatch(), 1, 0.5, QUIET)
    huge = (1e6 * torch.randn(30, 6), torch.zeros(30, dtype=torch.long))
    empty = (torch.zeros(0, 6), torch.zeros(0, dtype=torch.long))
    one, other = (run(softmax, Guarded(clients, {7: data}), local, plan) for data in (huge, empty))
    moved = np.sqrt(sum(((one.weights[name] - other.weights[name]) ** 2).sum() for name in one.weights))
    assert np.isclose(20 * moved, 0.5, rtol=1e-5)


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_a_model_that_does_not_fit_the_clients_is_refused_before_they_are_accessed(engine, clients, local):
    def untouched(self, chosen):
        raise AssertionError("touched")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="cannot be applied to the clients'"):
        patch.setattr(Partitioned, "together", untouched)
        run(nn.Linear(7, 3), clients, local, engine=engine)


def test_classes_may_be_numbered_from_one(blobs, local):
    X, y = blobs
    numbered = Partitioned((X, y + 1), iid(600, 20, np.random.default_rng(1)))

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets - 1, reduction="none")

    _check_fit(ClientTrainer(nn.Linear(6, 3), loss, local, 0.5), numbered)
    with pytest.raises(RuntimeError, match="and examples of ones fail, too"):
        _check_fit(ClientTrainer(nn.Linear(7, 3), nn.CrossEntropyLoss(), local, 0.5), numbered)


def test_the_check_on_zeros_sees_transformed_examples_and_changes_no_random_numbers(blobs, local):
    X, y = blobs
    parts = iid(600, 20, np.random.default_rng(1))
    longer = Partitioned((X, y), parts, lambda data: (torch.cat([data[0], data[0]], 1), data[1]))
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(12, 3))
    state = torch.get_rng_state()
    ClientTrainer(model, nn.CrossEntropyLoss(), local, 0.5).check(longer.transformed(longer.blank(2)))
    assert torch.equal(state, torch.get_rng_state())
    run(model, longer, local)


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("failing", [range(20), range(19)])
def test_whether_all_clients_of_the_first_round_fail_is_not_visible(engine, failing, clients, softmax, local):
    """An exception would reveal that the one client that can work does not take part, or fails as well."""
    guarded = Guarded(clients, {client: OSError("unreachable") for client in failing})
    with pytest.warns(UserWarning, match="count as zero"):
        result = run(softmax, guarded, local, GradientPlan(FullBatch(), 2, 0.5, 0.5), engine=engine)
    assert result.history[-1].spent == 2


def test_later_rounds_continue_even_if_all_clients_fail(clients, softmax, local):
    class Ends(Guarded):
        def __getitem__(self, client):
            if len(self.asked) >= 20:
                self.faults = {client: OSError("unreachable") for client in range(20)}
            return super().__getitem__(client)

    with pytest.warns(UserWarning, match=r"All 20 clients of a round failed\. The first error was OSError"):
        result = run(softmax, Ends(clients), local, GradientPlan(FullBatch(), 3, 0.5, 0.5))
    assert result.history[-1].spent == 3


def test_assumptions_do_not_reveal_the_number_of_clients(clients, softmax, local):
    """The guarantee is published, so it must not say whether ``public_n`` is exact."""
    plans = [GradientPlan(Poisson(0.3), 2, 0.5, 0.5, public_n=n) for n in (20, 21)]
    first, second = ([each.text for each in run(softmax, clients, local, plan).guarantee.assumptions] for plan in plans)
    assert [text for text in first if "divided by" not in text] == [text for text in second if "divided by" not in text]
    assert not any("number of clients" in text for text in first)


def test_the_guarantee_of_the_batched_engine_assumes_stable_rounding(clients, softmax, local):
    together, apart = (run(softmax, clients, local, engine=engine) for engine in ("batched", "sequential"))
    assert "rounding errors" in together.guarantee.statement(verbose=True)
    assert "rounding errors" not in apart.guarantee.statement(verbose=True)


# ------------------------------------------------------------------------------------------------ files and display


def test_a_saved_run_is_resumed(clients, softmax, local, tmp_path):
    path = tmp_path / "run"
    result = run(softmax, clients, local, save=path, evaluate=lambda model: 0.5)
    again = run(softmax, clients, local, save=path, resume=True)
    assert same(result, again)
    assert again.history == result.history
    assert again.guarantee.epsilon == result.guarantee.epsilon
    with pytest.raises(ValueError, match="resume=True"):
        run(softmax, clients, local, save=path)


def test_the_bar_shows_round_score_and_epsilon(clients, softmax, local, capsys):
    result = run(softmax, clients, local, evaluate=lambda model: 0.875, verbose=True)
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "4/4" in shown
    assert "score 0.875" in shown
    assert f"epsilon {result.guarantee.epsilon:.3g}" in shown


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"weighting": "samples"}, "Weights by number of examples"),
        ({"engine": "gpu"}, "engine must be"),
        ({"rounds": 3}, "plan already determines rounds"),
        ({"delta": None}, "has no delta"),
        ({"resume": True}, "save="),
        ({"plan": GradientPlan(FixedSize(6, 30), 4, 0.5, 0.5)}, "made for n = 30"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"order": "abc"}, "order must be"),
    ],
)
def test_invalid_arguments_are_refused(options, cause, clients, softmax, local):
    plan = options.pop("plan", None)
    with pytest.raises(ValueError, match=cause):
        run(softmax, clients, local, plan, **options)


def test_missing_clients_or_arguments_are_refused(clients, softmax, local):
    with pytest.raises(ValueError, match="no clients"):
        run(softmax, [], local)
    with pytest.raises(ValueError, match="also needs clients_per_round, clip_norm"):
        simulate(softmax, clients, loss=nn.CrossEntropyLoss(), local=local, budget=Budget(1.0, DELTA), rounds=3)


@pytest.mark.parametrize("given", [{"budget": (8.0, DELTA)}, {"epsilon": 8.0, "delta": DELTA}])
def test_a_budget_may_be_a_pair_or_epsilon_and_delta(given, clients, softmax, local):
    settings = {"loss": nn.CrossEntropyLoss(), "local": local, "rounds": 2, "clients_per_round": 4, "clip_norm": 0.5}
    results = [
        simulate(softmax, clients, **settings, **each, random_state=5, verbose=False)
        for each in ({"budget": Budget(8.0, DELTA)}, given)
    ]
    assert results[0].plan == results[1].plan
    assert results[0].guarantee == results[1].guarantee


def test_a_plan_made_for_a_budget_brings_its_delta(clients, softmax, local):
    plan = client_plan(8.0, n_clients=20, clients_per_round=4, rounds=2, clip_norm=0.5)
    result = run(softmax, clients, local, plan, delta=None)
    assert result.guarantee.delta == plan.delta


def test_deprecated_names_still_work(clients, softmax, local):
    with pytest.warns(DeprecationWarning, match="'random_state'"):
        seeded = run(softmax, clients, local, random_state=None, seed=5)
    assert same(seeded, run(softmax, clients, local))
    with pytest.warns(DeprecationWarning, match="verbose"):
        run(softmax, clients, local, progress=False)


def test_progress_is_called_after_each_round(clients, softmax, local):
    calls = []
    run(softmax, clients, local, progress=lambda spent, planned: calls.append((spent, planned)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_model_may_have_several_inputs(local):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, a, b):
            return self.layer(torch.cat([a, b], dim=1))

    torch.manual_seed(0)
    model = Two()
    data = [(torch.randn(9, 3), torch.randn(9, 1), torch.randint(2, (9,))) for _ in range(4)]
    plan = GradientPlan(FullBatch(), 2, 0.5, 0.5)
    assert same(*(run(model, data, local, plan, engine=engine) for engine in ("sequential", "batched")), atol=1e-5)


def test_any_callable_loss_works():
    generator = torch.Generator().manual_seed(0)
    data = [(x := torch.randn(20, 2, generator=generator), x @ torch.tensor([1.0, -1.0])) for _ in range(10)]
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Flatten(0))
    result = simulate(
        model,
        data,
        loss=lambda outputs, targets: (outputs - targets).square(),
        local=LocalTraining(0.1, batch_size=5, epochs=1),
        plan=GradientPlan(FullBatch(), 15, 0.5, 0.01),
        delta=DELTA,
        verbose=False,
        engine="sequential",
    )
    assert np.allclose(result.weights["0.weight"], [[1.0, -1.0]], atol=0.05)


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision_are_trained_and_their_updates_summed_in_double_precision(dtype, engine, blobs):
    X, y = blobs
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    clients = Partitioned((X, y), iid(600, 20, np.random.default_rng(1)))
    result = run(model, clients, LocalTraining(0.1, batch_size=10, epochs=1), engine=engine)
    assert all(weight.dtype == np.float64 and np.isfinite(weight).all() for weight in result.weights.values())
    assert not np.allclose(result.weights["0.weight"], trained_weights(model)["0.weight"])
