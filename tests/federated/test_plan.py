import itertools
import math

import pytest

from privet.federated import client_plan, paper_plan
from privet.federated.plan import check_plan, epsilon_after
from privet.plans import Descent, FixedOrder, FixedSize, FullBatch, GradientPlan, OutputPlan, Poisson
from privet.privacy import Adjacency, Budget, Unit
from privet.privacy.analyses.subsampling_lemmas import SideConditionError

TABLE_2 = {"n_clients": 1000, "clients_per_round": 50, "rounds": 30, "clip_norm": 0.3}


@pytest.mark.parametrize(
    ("sampling", "sampler", "adjacency"),
    [("poisson", Poisson(0.05), Adjacency.ADD_OR_REMOVE), ("uniform", FixedSize(50, 1000), Adjacency.REPLACE_ONE)],
)
def test_a_client_plan_stays_within_its_budget(sampling, sampler, adjacency):
    plan = client_plan(Budget(6.0, 5e-4), sampling=sampling, **TABLE_2)
    promised = plan.guarantee(5e-4, unit=Unit.CLIENT)
    assert plan.sampler == sampler
    assert plan.adjacency is adjacency
    assert plan.divisor(1000) == 50
    assert 0.99 * 6 < promised.epsilon <= 6
    assert "for each client" in promised.statement(verbose=True)


def test_the_divisor_does_not_depend_on_the_clients_that_take_part():
    plan = client_plan(Budget(6.0, 5e-4), **TABLE_2)
    assert plan.divisor(3) == plan.divisor(5000) == 50


@pytest.mark.parametrize("n_clients", [1000, 100_000])
def test_the_default_delta_is_computed_from_the_declared_number_of_clients(n_clients):
    plan = client_plan(6.0, **TABLE_2 | {"n_clients": n_clients})
    assert plan.delta == min(1e-6, 0.01 / n_clients)


@pytest.mark.parametrize(("sampling", "constant", "n"), [("uniform", 14, 1000), ("poisson", 2, 500)])
@pytest.mark.parametrize("epsilon", [6.0, 7.0, 8.0, 9.0])
def test_paper_plan_has_the_least_noise_of_the_theorem_and_a_smaller_epsilon(sampling, constant, n, epsilon):
    """Theorems 1 and 2 apply to the budgets of Table 2 if alpha is taken as printed: docs/errata.md (h)."""
    arguments = TABLE_2 | {"n_clients": n, "clients_per_round": n // 20}
    budget = Budget(epsilon, n**-1.1)
    plan = paper_plan(budget, sampling=sampling, rounded_order=False, **arguments)
    least = min(
        0.05 * 0.3 / epsilon * math.sqrt(constant * 30 / split * (-math.log(budget.delta) / (1 - split) + epsilon))
        for split in (step / 1000 for step in range(1, 1000))
    )
    assert plan.noise_std >= 0.995 * least  # never below the formula at its best split
    assert plan.guarantee(budget.delta, unit=Unit.CLIENT).epsilon < epsilon
    assert plan.noise_multiplier > client_plan(budget, sampling=sampling, **arguments).noise_multiplier


def test_paper_plan_raises_if_no_split_meets_the_side_conditions():
    with pytest.raises(SideConditionError):
        paper_plan(Budget(4.0, 500**-1.1), rounded_order=False, **TABLE_2 | {"n_clients": 500, "clients_per_round": 25})


@pytest.mark.parametrize(
    ("plan", "cause"),
    [
        (GradientPlan(FixedOrder(10), None, 1.0, 1.0), "Poisson, FixedSize or FullBatch"),
        (GradientPlan(FullBatch(), 3, 1.0, 1.0, tasks=2), "one task"),
        (GradientPlan(Poisson(0.1), 3, 1.0, 1.0), "public_n"),
        (
            GradientPlan(FullBatch(), 3, 1.0, 1.0, release="last", descent=Descent(0.1, smoothness=1.0)),
            "Every round releases a global model",
        ),
    ],
)
def test_unsupported_plans_are_refused(plan, cause):
    with pytest.raises(ValueError, match=cause):
        check_plan(plan)


def test_a_plan_of_another_type_is_refused():
    with pytest.raises(TypeError, match="client_plan"):
        check_plan(OutputPlan.__new__(OutputPlan))


@pytest.mark.parametrize(
    ("change", "cause"),
    [({"sampling": "shuffled"}, "poisson, uniform"), ({"clients_per_round": 2000}, "exceeds n_clients")],
)
def test_invalid_sampling_is_refused(change, cause):
    with pytest.raises(ValueError, match=cause):
        client_plan(Budget(1.0, 1e-3), **TABLE_2 | change)


def test_epsilon_grows_with_the_rounds():
    plan = GradientPlan(FullBatch(), 9, 1.0, 4.0)
    spent = [epsilon_after(plan, rounds, 1e-5) for rounds in range(10)]
    assert spent[0] == 0
    assert all(one < other for one, other in itertools.pairwise(spent))
    assert spent[9] == plan.guarantee(1e-5).epsilon
