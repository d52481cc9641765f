"""Noise in place of a budget, and a denoiser in the clients' local steps."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from privet.denoise import LaplacianSmoothing
from privet.federated import ClientTrainer, LocalTraining, client_plan, order_source, simulate, trained_weights
from privet.networks import LayerDenoiser
from privet.plans import FullBatch, GradientPlan
from privet.privacy import AttackRate, NoiseMultiplier, Unit
from privet.privacy.noise.orders import OrderSource

SIZES = {"n_clients": 20, "clients_per_round": 5, "rounds": 3, "clip_norm": 0.5}
NONE = "No differential privacy: the noise multiplier is 0, so no client is protected."


# --- noise in place of a budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_a_plan_has_the_given_noise_and_states_what_it_costs(sampling):
    plan = client_plan(noise_multiplier=1.5, delta=1e-4, sampling=sampling, **SIZES)
    assert (plan.noise_multiplier, plan.noise_std, plan.delta) == (1.5, 0.75, 1e-4)
    epsilon = plan.guarantee(unit=Unit.CLIENT).epsilon
    again = client_plan((epsilon, 1e-4), sampling=sampling, **SIZES)
    assert again.noise_multiplier == pytest.approx(1.5, rel=0.01)
    assert client_plan(NoiseMultiplier(1.5), sampling=sampling, **SIZES).delta == 1e-6


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_a_plan_may_be_calibrated_to_a_rate_of_attacks_on_a_client(sampling):
    plan = client_plan(AttackRate(0.01, 0.05), sampling=sampling, **SIZES)
    assert 0.0495 < plan.guarantee(unit=Unit.CLIENT).tpr(0.01) <= 0.05


def run(model, clients, local, **options):
    fields = {"loss": nn.CrossEntropyLoss(), "random_state": 5, "verbose": False, "delta": 1e-3} | options
    sizes = {name: value for name, value in SIZES.items() if name != "n_clients"}
    return simulate(model, clients, local=local, **fields, **({} if "plan" in options else sizes))


@pytest.mark.filterwarnings("ignore:Some updates count as zero")
def test_simulate_adds_the_noise_of_the_multiplier(local):
    wide = nn.Linear(40, 25)
    nn.init.zeros_(wide.weight)
    result = run(wide, [None] * 20, local, noise_multiplier=2.0)
    assert np.std(result.weights["weight"]) == pytest.approx(2.0 * 0.5 / 5 * math.sqrt(3), rel=0.1)
    assert result.plan == client_plan(noise_multiplier=2.0, **SIZES)
    assert result.guarantee.epsilon == result.plan.guarantee(1e-3, unit=Unit.CLIENT).epsilon


def test_without_noise_a_round_is_the_average_of_the_clients_and_nothing_is_private(clients, softmax, local, tmp_path):
    plan = GradientPlan(FullBatch(), 1, 50.0, 0.0, delta=1e-3)
    options = {"plan": plan, "delta": None, "engine": "sequential", "save": tmp_path / "run.npz"}
    result = run(softmax, clients, local, **options)
    trainer = ClientTrainer(softmax, nn.CrossEntropyLoss(), local, 50.0)
    weights = trained_weights(softmax)
    updates = [trainer.update(weights, clients[client], 0, order_source(5, 0, client)) for client in range(20)]
    for name, layer in result.weights.items():
        assert np.allclose(layer, np.mean([update[name] for update in updates], axis=0), atol=1e-12)
    again = run(softmax, clients, local, resume=True, **options)
    for each in (result, again):
        assert str(each.guarantee).splitlines()[0] == NONE
        assert each.history[-1].epsilon == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": 0, "budget": (1.0, 1e-3), "delta": None}, "Give one of budget, epsilon and noise"),
        ({"noise_multiplier": 1.0, "epsilon": 1.0}, "Give one of budget, epsilon and noise_multiplier"),
        ({"noise_multiplier": 0, "plan": GradientPlan(FullBatch(), 1, 0.5, 1.0)}, "determines noise_multiplier"),
        ({}, "also needs budget .or epsilon and delta, or noise_multiplier."),
        ({"noise_multiplier": -1.0}, "noise_multiplier must not be negative"),
    ],
)
def test_both_a_budget_and_noise_or_neither_are_refused(options, message, clients, softmax, local):
    with pytest.raises(ValueError, match=message):
        run(softmax, clients, local, **options)


# --- a denoiser in local steps -------------------------------------------------------------------------------------


def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("order", ["OIHW", "OHWI"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.3}])
def test_an_update_equals_that_of_torch_sgd_with_denoised_gradients(clients, options, order):
    local = LocalTraining(0.1, batch_size=7, epochs=2, denoiser=LaplacianSmoothing(1.5), order=order, **options)
    model, (X, y) = convolution(), clients[3]
    X, y = X.float(), y.long()
    trainer = ClientTrainer(model, nn.CrossEntropyLoss(), local, math.inf)
    found = trainer.update(trained_weights(model), (X, y), 0, OrderSource(5))
    plain, smooth = copy.deepcopy(model), LayerDenoiser(LaplacianSmoothing(1.5), order)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, **options)
    for rows in local.schedule(len(y), OrderSource(5)):
        chosen = torch.from_numpy(rows[rows >= 0])
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(X[chosen]), y[chosen]).backward()
        for parameter in plain.parameters():
            parameter.grad = smooth(parameter.grad)
        optimizer.step()
    for name, parameter in plain.named_parameters():
        moved = parameter.detach() - model.get_parameter(name).detach()
        assert np.allclose(found[name], moved.numpy(), atol=2e-6)


@pytest.mark.parametrize("kind", ["convolution", "softmax", "softmax with few examples"])
def test_clients_that_are_trained_together_are_denoised_separately(kind, clients, softmax):
    model = convolution() if kind == "convolution" else softmax
    fleet = [tuple(part[:5] for part in clients[i]) for i in range(20)] if "few" in kind else clients
    local = LocalTraining(0.5, batch_size=2, steps=4, denoiser=LaplacianSmoothing(2.0), order="OWHI", momentum=0.5)
    alone, together = (
        run(model, fleet, local, noise_multiplier=0.01, engine=each).weights for each in ("sequential", "batched")
    )
    rough = LocalTraining(0.5, batch_size=2, steps=4, momentum=0.5)
    other = run(model, fleet, rough, noise_multiplier=0.01, engine="sequential").weights
    for name, layer in alone.items():
        assert np.allclose(layer, together[name], atol=1e-5)
    assert any(not np.allclose(layer, other[name], atol=1e-2) for name, layer in alone.items())


def test_an_unknown_order_of_local_steps_is_refused():
    with pytest.raises(ValueError, match="order must be one of OIHW"):
        LocalTraining(0.1, 5, epochs=1, order="HWIO")
