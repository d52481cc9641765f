"""The server: how far one client can move the model, how much noise is added, and how failing clients are handled."""

import itertools
import os
import warnings
from collections import UserDict

import numpy as np
import pytest

from privet.denoise import JamesStein, LaplacianSmoothing, SoftThreshold, laplacian_smoothing
from privet.federated import Server, tail
from privet.plans import FixedSize, FullBatch, GradientPlan, PlanError, Poisson
from privet.privacy import Adjacency, assumed
from privet.privacy.noise.release import grid_step

CLIP = 0.7
DELTA = 1e-5
QUIET = 1e-3  # the smallest noise multiplier for which the accounting works


def everybody(n=4, rounds=3, noise=1.0, clip=CLIP):
    """Return a plan that samples every client, so that servers with the same seed differ only by their updates."""
    return GradientPlan(FullBatch(), rounds, clip, noise)


def model(d=5):
    return {"w": np.linspace(-1, 1, d), "b": np.array([0.5])}


def server(plan=None, n=4, weights=None, **options):
    return Server(plan or everybody(), weights or model(), n, delta=DELTA, random_state=11, **options)


def vector(weights):
    return np.concatenate([np.ravel(value) for value in weights.values()])


def after_one_round(updates, **options):
    """Return the global model after one round. The noise does not depend on the updates."""
    one = server(**options)
    one.sample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one.aggregate(updates)
    return vector(one.weights)


def update(value, d=5, kind=np.float64):
    return {"w": np.full(d, value, dtype=kind), "b": np.full(1, value, dtype=kind)}


EXTREMES = {
    "zero": update(0.0),
    "on the ball": {"w": np.array([CLIP, 0, 0, 0, 0]), "b": np.zeros(1)},
    "the other side": {"w": np.array([-CLIP, 0, 0, 0, 0]), "b": np.zeros(1)},
    "ties": update(CLIP / np.sqrt(6)),
    "minus ties": update(-CLIP / np.sqrt(6)),
    "huge": update(1e300),
    "largest": update(np.finfo(float).max),
    "minus largest": update(-np.finfo(float).max),
    "float32": update(3e38, kind=np.float32),
    "float16": update(6e4, kind=np.float16),
    "smallest": update(5e-324),
    "whole numbers": update(-(2**62), kind=np.int64),
    "not a number": update(np.nan),
    "infinite": update(-np.inf),
    "mixed": {"w": np.array([1e308, np.inf, 0, 0, 0]), "b": np.zeros(1)},
    "none": None,
}


# ------------------------------------------------------------------------------------------------------ sensitivity


@pytest.mark.parametrize("others", ["zero", "on the ball", "largest"])
@pytest.mark.parametrize("name", EXTREMES)
def test_adding_a_client_changes_the_sum_by_at_most_the_clipping_norm(name, others):
    """The neighbour without the client is the same sample, in which the client contributes nothing."""
    company = dict.fromkeys(range(3), EXTREMES[others])
    moved = after_one_round(company | {3: EXTREMES[name]}) - after_one_round(company)
    assert 4 * np.linalg.norm(moved) <= CLIP * (1 + 1e-12)  # 4 is the divisor


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(EXTREMES, 2)))
def test_replacing_a_client_changes_the_sum_by_at_most_twice_the_clipping_norm(one, other):
    company = dict.fromkeys(range(3), EXTREMES["ties"])
    moved = after_one_round(company | {3: EXTREMES[one]}) - after_one_round(company | {3: EXTREMES[other]})
    assert 4 * np.linalg.norm(moved) <= 2 * CLIP * (1 + 1e-12)


def test_the_bounds_on_the_sum_are_attained():
    company = dict.fromkeys(range(3), EXTREMES["ties"])
    there, here, gone = (after_one_round(company | {3: EXTREMES[name]}) for name in ("huge", "minus largest", "none"))
    assert np.isclose(4 * np.linalg.norm(there - gone), CLIP)
    assert np.isclose(4 * np.linalg.norm(there - here), 2 * CLIP)


def test_the_sum_over_clients_is_additive():
    """For all 16 sets of four clients, no client's contribution depends on the others: docs/errata.md (k)."""
    generator = np.random.default_rng(0)
    updates = {client: {"w": generator.normal(size=5), "b": generator.normal(size=1)} for client in range(4)}
    nothing, grid = after_one_round({}), grid_step(everybody().noise_std)
    single = {client: after_one_round({client: updates[client]}) - nothing for client in updates}
    for size in range(5):
        for chosen in itertools.combinations(updates, size):
            found = after_one_round({client: updates[client] for client in chosen}) - nothing
            assert np.allclose(found, sum((single[client] for client in chosen), np.zeros(6)), atol=4 * grid)


# ------------------------------------------------------------------------------------------------ divisor and noise


@pytest.mark.parametrize(
    ("plan", "n", "divisor"),
    [
        (GradientPlan(Poisson(0.25), 200, CLIP, 1.3, public_n=40), 40, 10),
        (GradientPlan(Poisson(0.25), 200, CLIP, 1.3, public_n=80), 40, 20),
        (GradientPlan(FixedSize(10, 40), 200, CLIP, 1.3), 40, 10),
        (GradientPlan(FullBatch(), 200, CLIP, 1.3), 40, 40),
        (GradientPlan(FullBatch(), 200, CLIP, 1.3, Adjacency.ADD_OR_REMOVE, public_n=50), 40, 50),
    ],
)
def test_the_noise_is_that_of_the_plan_divided_by_its_constant(plan, n, divisor):
    made = Server(plan, {"w": np.zeros(5000)}, n, delta=DELTA)
    before = made.weights["w"]
    for _ in range(20):
        made.sample()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.aggregate({})
    drawn = made.weights["w"] - before
    assert abs(drawn.std() / (np.sqrt(20) * 1.3 * CLIP / divisor) - 1) < 0.04  # four standard errors of 5000 draws
    assert abs(drawn.mean()) < 4 * np.sqrt(20 / 5000) * 1.3 * CLIP / divisor


def test_a_poisson_round_divides_by_the_same_constant_for_any_sample_size():
    plan = GradientPlan(Poisson(0.5), 60, 1e3, QUIET, public_n=20)
    made = Server(plan, {"w": np.zeros(1)}, 20, delta=DELTA, random_state=4)
    sizes = []
    for _ in range(40):
        before, chosen = made.weights["w"][0], made.sample()
        made.aggregate({int(client): {"w": np.array([1000.0])} for client in chosen})
        sizes.append(len(chosen))
        assert abs((made.weights["w"][0] - before) - 100.0 * len(chosen)) < 1.0
    assert len(set(sizes)) > 4


def test_a_round_without_clients_adds_noise_and_is_spent():
    plan = GradientPlan(Poisson(1e-9), 2, CLIP, 1.0, public_n=10**9)
    made = Server(plan, model(), 5, delta=DELTA)
    assert made.sample().size == 0
    before = vector(made.weights)
    made.aggregate({})
    assert (vector(made.weights) != before).all()
    assert made.rounds_spent == 1


def test_samples_follow_the_plan():
    fixed = Server(GradientPlan(FixedSize(3, 9), 40, CLIP, 1.0), model(), 9, delta=DELTA, random_state=0)
    seen = set()
    for _ in range(40):
        chosen = fixed.sample()
        assert len(set(chosen.tolist())) == 3
        seen |= set(chosen.tolist())
        fixed.aggregate({int(client): update(0.0) for client in chosen})
    assert seen == set(range(9))
    assert server().sample().tolist() == [0, 1, 2, 3]


def test_two_servers_have_different_noise():
    unseeded = [Server(everybody(), model(), 4, delta=DELTA) for _ in range(2)]
    for each in unseeded:
        each.sample()
        each.aggregate({client: update(0.0) for client in range(4)})
    assert not np.allclose(vector(unseeded[0].weights), vector(unseeded[1].weights))
    assert np.array_equal(after_one_round({}), after_one_round({}))


# ----------------------------------------------------------------------------------------------------------- faults


class Refuses:
    def __array__(self, *args, **kwargs):
        raise OSError("gone")


class Unreadable(UserDict):
    def __iter__(self):
        raise OSError("gone")


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (None, "no answer"),
        (update(np.nan), "not finite"),
        (update(np.inf), "not finite"),
        (update(0.1, d=6), "shape"),
        ({"w": np.zeros(5)}, "other names"),
        ({"w": np.zeros(5), "c": np.zeros(1)}, "other names"),
        ({"w": Refuses(), "b": np.zeros(1)}, "not an array"),
        ({"w": np.array(["a"] * 5), "b": np.zeros(1)}, "type"),
        ("garbage", "not a dictionary"),
        (Unreadable(), "cannot be read"),
    ],
)
def test_a_failed_client_counts_as_zero_and_the_round_continues(bad, cause):
    good = {client: update(0.1) for client in range(3)}
    expected = after_one_round(good | {3: update(0.0)})
    one = server()
    one.sample()
    with pytest.warns(UserWarning, match=cause):
        one.aggregate(good | {3: bad})
    assert np.array_equal(vector(one.weights), expected)
    assert one.guarantee.epsilon < server().guarantee.epsilon  # one round of three, paid in full


def test_the_warning_counts_each_kind_of_fault():
    one = server()
    one.sample()
    with pytest.warns(UserWarning, match=r"no answer \(3\); .*not finite.* \(1\)\."):
        one.aggregate({0: None, 2: update(np.nan)})  # clients 1 and 3 are missing
    one.sample()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.aggregate({client: update(0.1) for client in range(4)})  # nothing to warn of


def test_only_the_first_answer_of_a_sampled_client_counts():
    plan = GradientPlan(FixedSize(2, 4), 3, CLIP, 1.0)
    one, other = server(plan), server(plan)
    chosen = [int(client) for client in one.sample()]
    assert chosen == other.sample().tolist()
    (stranger, *_) = set(range(4)) - set(chosen)
    one.aggregate({client: update(0.1) for client in chosen})
    with pytest.warns(UserWarning, match=r"sent twice or by a client that was not sampled \(3\)"):
        other.aggregate([(client, update(0.1)) for client in [*chosen, *chosen, stranger]])
    assert np.array_equal(vector(one.weights), vector(other.weights))


def test_an_error_while_reading_answers_releases_nothing():
    def answers():
        yield 0, update(0.1)
        raise ConnectionError("the network is gone")

    one = server()
    one.sample()
    with pytest.raises(ConnectionError):
        one.aggregate(answers())
    assert one.rounds_spent == 0
    assert np.array_equal(vector(one.weights), vector(model()))


def test_an_interrupted_round_is_repeated_with_the_same_clients():
    plan = GradientPlan(FixedSize(2, 4), 3, CLIP, 1.0)
    one = server(plan)
    chosen = one.sample().tolist()
    with pytest.raises(ZeroDivisionError):
        one.aggregate((client, 1 / 0) for client in chosen)
    with pytest.raises(PlanError, match="called twice in one round"):
        one.sample()  # otherwise clients could be sampled until a round succeeds
    one.aggregate({client: update(0.1) for client in chosen})
    other = server(plan)
    other.aggregate({client: update(0.1) for client in other.sample().tolist()})
    assert np.array_equal(vector(one.weights), vector(other.weights))


def test_the_global_model_cannot_be_modified_from_outside():
    one = server()
    one.weights["w"][:] = 99
    one.output["w"][:] = 99
    assert np.array_equal(vector(one.weights), vector(model()))


# -------------------------------------------------------------------------------------------------- post-processing


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(), SoftThreshold(0.5)])
def test_the_denoiser_is_given_layers_of_the_noisy_mean_and_their_noise_level(denoiser):
    updates = {client: update(0.1) for client in range(4)}
    noisy = after_one_round(updates) - vector(model())
    found = after_one_round(updates, denoiser=denoiser) - vector(model())
    expected = np.concatenate([denoiser(noisy[:5], CLIP / 4), denoiser(noisy[5:], CLIP / 4)])
    assert np.allclose(found, expected, atol=1e-13)


def test_the_order_of_weights_is_passed_to_the_denoiser():
    weights = {"conv": np.zeros((2, 3, 4, 5))}
    plain, smoothed = (
        Server(everybody(), weights, 4, delta=DELTA, random_state=1, order="OHWI", denoiser=denoiser)
        for denoiser in (None, LaplacianSmoothing(1.0))
    )
    for each in (plain, smoothed):
        each.sample()
        each.aggregate({client: {"conv": np.zeros((2, 3, 4, 5))} for client in range(4)})
    expected = laplacian_smoothing(plain.weights["conv"].transpose(0, 2, 3, 1).copy(), 1.0).transpose(0, 3, 1, 2)
    assert np.allclose(smoothed.weights["conv"], expected, atol=1e-13)


def test_the_step_size_scales_updates_and_may_depend_on_the_round():
    updates = {client: update(0.1) for client in range(4)}
    one = after_one_round(updates) - vector(model())
    assert np.allclose(after_one_round(updates, step_size=2.5) - vector(model()), 2.5 * one)
    falling = server(step_size=lambda done: 1.0 / (1 + done))
    plain = server()
    steps = []
    for each in (falling, plain):
        places = [vector(each.weights)]
        for _ in range(3):
            each.sample()
            each.aggregate(updates)
            places.append(vector(each.weights))
        steps.append(np.diff(places, axis=0))
    assert np.allclose(steps[0] * np.array([[1], [2], [3]]), steps[1])


def test_the_output_is_the_average_of_the_models():
    one = server(average=tail(3, 0.67))
    places = [vector(one.weights)]
    while not one.is_done:
        one.sample()
        one.aggregate({client: update(0.3) for client in range(4)})
        places.append(vector(one.weights))
    assert np.allclose(vector(one.output), np.mean(places[2:], axis=0))
    assert not np.allclose(vector(one.output), vector(one.weights))
    assert np.array_equal(vector(server().output), vector(model()))


# ------------------------------------------------------------------------------------------ guarantees and refusals


def test_the_guarantee_names_the_unit_and_what_is_enforced():
    text = server(assumptions=[assumed("the auditor is independent")]).guarantee.statement(verbose=True)
    assert "for each client" in text
    assert "replacing one client by any other" in text
    assert "the global model of every round" in text
    assert "Enforced: the server clips each client's update to l2 norm 0.7" in text
    assert "Enforced: sums are divided by the constant 4" in text
    assert "Assumed:  the auditor is independent" in text
    assert "seed stays secret" in text
    unseeded = Server(everybody(), model(), 4, delta=DELTA).guarantee
    assert not unseeded.is_conditional


def test_the_guarantee_grows_until_it_equals_that_of_the_plan():
    one = server(everybody(rounds=3))
    whole = one.guarantee.epsilon
    assert whole == one.plan.guarantee(DELTA).epsilon
    spent = []
    for _ in range(3):
        one.sample()
        one.aggregate({client: update(0.0) for client in range(4)})
        spent.append(one.guarantee.epsilon)
    assert spent[0] < spent[1] < spent[2] == whole


def test_the_server_makes_only_the_planned_rounds():
    one = server(everybody(rounds=1))
    one.sample()
    with pytest.raises(PlanError, match="aggregate"):
        one.sample()
    one.aggregate({client: update(0.0) for client in range(4)})
    with pytest.raises(PlanError, match="once"):
        one.aggregate({})
    assert one.is_done
    with pytest.raises(PlanError, match="are spent"):
        one.sample()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"weighting": "samples"}, "change the sum by more than the clipping norm"),
        ({"plan": GradientPlan(FixedSize(2, 5), 3, CLIP, 1.0)}, "made for n = 5"),
        ({"plan": GradientPlan(Poisson(0.5), 3, CLIP, 1.0)}, "public_n"),
        ({"n": 0}, "n_clients"),
        ({"weights": {"w": np.array([np.nan])}}, "not finite"),
        ({"order": "HWIO"}, "order must be"),
        ({"step_size": 0.0}, "step_size"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_spent(options, cause):
    with pytest.raises(ValueError, match=cause):
        server(**options)


def test_the_old_name_of_the_random_state_still_works():
    with pytest.warns(DeprecationWarning, match="seed"):
        old = Server(everybody(), model(), 4, delta=DELTA, seed=11)
    for each in (old, new := server()):
        each.sample()
        each.aggregate({client: update(0.1) for client in range(4)})
    assert np.array_equal(vector(old.weights), vector(new.weights))
    assert old.guarantee.is_conditional


def test_the_step_size_is_one_and_all_clients_count_equally_unless_stated():
    updates = {client: update(0.1) for client in range(4)}
    plain = after_one_round(updates)
    assert np.array_equal(plain, after_one_round(updates, step_size=1.0, weighting="equal"))


def test_rounds_are_counted_from_zero():
    one = server(step_size=float)  # a step size of 0 in the first round
    one.sample()
    assert (one.rounds_done, one.rounds_spent, one.is_done) == (0, 0, False)
    one.aggregate({client: update(0.1) for client in range(4)})
    assert np.array_equal(vector(one.weights), vector(model()))
    assert (one.rounds_done, one.rounds_spent, one.is_done) == (1, 1, False)


@pytest.mark.parametrize("delta", [1.0, -0.1, float("nan")])
def test_an_invalid_delta_is_refused_before_the_first_round(delta):
    with pytest.raises(ValueError, match="delta"):
        Server(everybody(), model(), 4, delta=delta)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_server_in_a_forked_process_is_refused():
    one = server()
    one.sample()
    child = os.fork()
    if child == 0:
        try:
            one.aggregate({})
        except PlanError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
