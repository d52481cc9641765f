import pytest

torch = pytest.importorskip("torch", reason="networks need torch: install the extra deep")

from torch import nn  # noqa: E402

from privet.networks import LocalSGD, TensorDisplacement  # noqa: E402


def _start(seed):
    generator = torch.Generator().manual_seed(seed)
    return {"weight": torch.randn(3, 2, generator=generator), "bias": torch.randn(2, generator=generator)}


def _steps(sgd, start, gradients):
    moved = TensorDisplacement.zero(start)
    velocity = TensorDisplacement.zero(start) if sgd.momentum else None
    for gradient in gradients:
        sgd.step(moved, velocity, gradient)
    return moved


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)])
def test_steps_are_those_of_torch_sgd(momentum, weight_decay):
    start, gradients = _start(0), [_start(seed) for seed in (1, 2, 3)]
    parameters = {name: nn.Parameter(value.clone()) for name, value in start.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for gradient in gradients:
        for name, parameter in parameters.items():
            parameter.grad = gradient[name].clone()
        optimizer.step()
    moved = _steps(LocalSGD(0.1, momentum, weight_decay), start, gradients)
    here = {name: torch.empty_like(value) for name, value in start.items()}
    moved.write_weights(here)
    for name, parameter in parameters.items():
        torch.testing.assert_close(here[name], parameter.detach())


def test_the_displacement_never_exceeds_the_radius():
    sgd = LocalSGD(1.0, momentum=0.5, radius=0.3)
    assert float(_steps(sgd, _start(0), [_start(seed) for seed in (1, 2, 3)]).lengths()) == pytest.approx(0.3)
    assert float(_steps(LocalSGD(1e-3, radius=10.0), _start(0), [_start(1)]).lengths()) < 0.1


def test_a_displacement_that_is_not_finite_leaves_other_models_alone():
    start, gradient = _start(0), _start(1)
    stacked = TensorDisplacement.zero(start, models=2)
    pair = {name: torch.stack([value, torch.full_like(value, torch.nan)]) for name, value in gradient.items()}
    sgd = LocalSGD(1.0, radius=0.3)
    sgd.step(stacked, None, pair)
    alone = _steps(sgd, start, [gradient])
    for name, value in alone.values.items():
        torch.testing.assert_close(stacked.values[name][0], value)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_stacked_models_move_as_single_ones(momentum):
    sgd = LocalSGD(0.2, momentum, weight_decay=0.05, radius=0.5)
    start, gradients = _start(0), [[_start(10 * step + model) for model in range(3)] for step in range(1, 4)]
    stacked = TensorDisplacement.zero(start, models=3)
    velocity = TensorDisplacement.zero(start, models=3) if momentum else None
    for step in gradients:
        sgd.step(stacked, velocity, {name: torch.stack([each[name] for each in step]) for name in start})
    for model in range(3):
        alone = _steps(sgd, start, [step[model] for step in gradients])
        for name, value in alone.values.items():
            torch.testing.assert_close(stacked.values[name][model], value)


def test_the_first_models_share_memory_with_all():
    moved = TensorDisplacement.zero(_start(0), models=3)
    moved.first(2).add_gradient({name: torch.ones(2, *value.shape) for name, value in moved.start.items()}, 1.0)
    assert moved.values["bias"].sum(1).tolist() == [2.0, 2.0, 0.0]
