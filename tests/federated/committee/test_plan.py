"""The plan of rounds with a committee: its noise, its two guarantees, sensitivities by brute force, and prices."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="federated learning needs torch: install the extra deep")
from torch import nn

from privet.audit import replay
from privet.federated import Committee, CommitteePlan, Server, client_plan, committee_plan, simulate, trained_weights
from privet.federated.committee import FederatedStudy, RoundPrice
from privet.plans import FullBatch, PlanError
from privet.privacy import Adjacency, Budget, NoiseSource, Unit, gaussian_epsilon
from privet.privacy.noise.laplace import ratio
from privet.privacy.noise.source import NoiseSource as Source

DELTA = 1e-5
SETTINGS = {"n_clients": 40, "clients_per_round": 10, "rounds": 6, "clip_norm": 0.5, "dimension": 5}


def plan_of(**options):
    return committee_plan(Budget(4.0, DELTA), **{**SETTINGS, **options})


@pytest.mark.parametrize(("trust", "servers"), [("one", 2), ("one", 5), ("majority", 3)])
def test_the_noise_is_that_of_the_committee(trust, servers):
    plan = plan_of(committee=Committee(trust, servers), dimension=4000)
    step = next(plan.run(40, NoiseSource(3)))
    drawn = step.noisy(np.zeros(4000, dtype=np.int64))
    expected = plan.sums.noise_std * (math.sqrt(servers) if trust == "one" else 1.0)
    assert plan.noise_std == pytest.approx(expected)
    assert drawn.std() == pytest.approx(expected, rel=0.04)
    with pytest.raises(PlanError, match="one noisy sum per round"):
        step.noisy(np.zeros(4000, dtype=np.int64))


def test_the_guarantee_towards_servers_is_that_of_one_noise_composed_over_all_rounds():
    plan = plan_of(committee=Committee("one", 3))
    promised = plan.guarantee()
    assert 0.99 * 4 < promised.epsilon <= 4
    assert (promised.adjacency, promised.unit) == (Adjacency.REPLACE_ONE, Unit.CLIENT)
    # A Gaussian of the same size is at most a little more private than noise and rounding on the lattice.
    ideal = gaussian_epsilon(2 * 0.5 * math.sqrt(6), plan.noise_std / math.sqrt(3), DELTA)
    assert 0.85 * ideal < 3.5 < ideal * 1.2 and ideal <= promised.epsilon
    assert "at least one of the 3 servers" in promised.statement()
    assert "without amplification" in " ".join(promised.statement().split())
    assert plan.truncated(3).guarantee().epsilon < 0.75 * promised.epsilon


@pytest.mark.parametrize(("sampling", "adjacency"), [("poisson", "add-or-remove"), ("uniform", "replace-one")])
def test_outsiders_get_the_amplified_guarantee_of_the_sampler_with_one_servers_noise(sampling, adjacency):
    plan = plan_of(sampling=sampling)
    outside = plan.for_outsiders()
    assert outside.adjacency == adjacency
    # The same rounds with a trusted server whose Gaussian noise is that of one server of the committee.
    multiplier = plan.sums.noise_std / 0.5
    central = client_plan(
        noise_multiplier=multiplier, delta=DELTA, sampling=sampling, **{k: SETTINGS[k] for k in list(SETTINGS)[:4]}
    )
    ideal = central.guarantee(DELTA, unit=Unit.CLIENT).epsilon
    assert ideal < outside.epsilon < 1.25 * ideal
    assert outside.epsilon < 0.6 * plan.guarantee().epsilon
    assert any("outsiders cannot find out" in each.text for each in outside.assumptions if not each.is_enforced)


@pytest.mark.parametrize(("trust", "servers"), [("one", 2), ("majority", 3)])
@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_pure_epsilon_is_that_of_composition_towards_everybody(trust, servers, sampling):
    """Nothing is amplified, so the guarantee towards outsiders has the adjacency of that towards servers."""
    plan = committee_plan(Budget(4.0, 0.0), **SETTINGS, committee=Committee(trust, servers), sampling=sampling)
    sums, shift = plan.sums, 2 * 0.5 * plan.sums.scale + math.sqrt(5)  # rounding moves each coordinate by up to 1
    if trust == "one":
        expected = 6 * shift / sums.law.scale
    else:
        expected = 6 * math.sqrt(5) * shift * math.log1p(float(ratio(sums.law.chances) - 1))
    assert expected <= plan.guarantee().epsilon <= 4.0 < 1.001 * expected
    for promised in (plan.guarantee(), plan.for_outsiders()):
        assert (promised.epsilon, promised.delta) == (plan.guarantee().epsilon, 0.0)
        assert (promised.adjacency, promised.unit) == (Adjacency.REPLACE_ONE, Unit.CLIENT)
        assert "without amplification" in " ".join(promised.statement().split())
    assert plan.truncated(3).for_outsiders(DELTA).epsilon == pytest.approx(plan.guarantee().epsilon / 2)


@pytest.mark.parametrize(("trust", "servers"), [("one", 2), ("majority", 3)])
def test_pure_noise_hides_the_extreme_replacements_of_an_update(trust, servers):
    """The lengths that the noise is made for, l2 for K-norm and l1 for Laplace noise, are nearly attained."""
    settings = {**SETTINGS, "n_clients": 2, "clients_per_round": 2, "dimension": 2}
    plan = committee_plan(Budget(4.0, 0.0), **settings, committee=Committee(trust, servers))
    edge = 0.5 / math.sqrt(2)
    extremes = [-1e300, -edge, -1e-9, 0.0, 0.5 / plan.sums.scale, edge, 1e300]
    found = [plan.contribution(np.array(values)) for values in itertools.product(extremes, repeat=2)]
    order, bound = (2, plan.sums.shift) if trust == "one" else (1, math.sqrt(2) * plan.sums.shift)
    longest = max(np.linalg.norm(one - other, order) for one, other in itertools.combinations(found, 2))
    assert 0.95 * bound < longest <= bound
    per_unit = 1 / plan.sums.law.scale if trust == "one" else plan.sums.law.epsilon
    assert longest * per_unit * 6 <= plan.guarantee().epsilon <= 4.0


def test_a_run_with_pure_epsilon_spends_its_rounds_and_draws_the_noise_of_all_servers():
    for committee in (Committee("one", 2), Committee("majority", 3)):
        plan = committee_plan(Budget(4.0, 0.0), **{**SETTINGS, "rounds": 2, "dimension": 3000}, committee=committee)
        server = Server(plan, {"a": np.zeros(3000)}, 40, random_state=1)
        for spent in (1, 2):
            before = server.weights["a"]
            updates = {client: {"a": np.zeros(3000)} for client in server.sample().tolist()}
            server.aggregate(updates)
            moved = (server.weights["a"] - before) * plan.divisor(40)
            # The length of K-norm noise varies by a factor of 1 + 1/sqrt(3000).
            assert moved.std() == pytest.approx(plan.noise_std, rel=0.15)
            assert server.guarantee.epsilon == server.outsiders.epsilon == pytest.approx(2.0 * spent, rel=1e-3)
            assert server.outsiders.delta == 0.0


def test_servers_that_must_draw_noise_together_need_noise_that_they_can():
    sums = committee_plan(Budget(4.0, 0.0), **SETTINGS).sums
    with pytest.raises(ValueError, match="cannot be drawn jointly"):
        CommitteePlan(sums, FullBatch(), 0.5, Committee("majority", 3), 40)


def test_a_round_that_could_not_be_opened_keeps_its_clients_and_is_counted_once():
    """Servers still hold the shares of these clients. Newly sampled ones would join them in one sum."""
    plan = plan_of()
    server = Server(plan, {"a": np.zeros(5)}, 40, random_state=1)
    server.sample()

    def lost(number):
        raise ConnectionError("a server did not answer")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            server.aggregate_opened(lost)
        with pytest.raises(PlanError, match="called twice in one round"):
            server.sample()
    assert (server.rounds_spent, server.rounds_done) == (1, 0)
    asked = []
    server.aggregate_opened(lambda number: asked.append(number) or np.full(5, 7))
    assert (server.rounds_spent, server.rounds_done, asked) == (1, 1, [0])
    assert np.array_equal(server.weights["a"] * plan.divisor(40), np.full(5, 7) / plan.sums.scale)
    server.sample()


def test_the_number_of_clients_must_be_secret_towards_outsiders():
    conditions = [each.text for each in plan_of().for_outsiders().assumptions if not each.is_enforced]
    assert any("how many do, and whether they were too few" in each for each in conditions)
    assert any("once for each sum" in each for each in conditions)


def test_if_everybody_takes_part_nothing_is_amplified():
    plan = plan_of(clients_per_round=40, sampling="uniform")
    assert plan.for_outsiders().epsilon == pytest.approx(plan.guarantee().epsilon, rel=1e-6)


def test_no_replacement_of_an_update_moves_the_sum_further_than_the_claim():
    plan = plan_of(n_clients=2, clients_per_round=2, dimension=3)
    edge = 0.5 / math.sqrt(3)
    extremes = [-1e300, -edge, -1e-9, 0.0, 0.5 / plan.sums.scale, edge, 1e300]
    found = [plan.contribution(np.array(values)) for values in itertools.product(extremes, repeat=3)]
    moves = [np.linalg.norm(one - other) for one, other in itertools.combinations(found, 2)]
    assert max(moves) <= plan.sums.claim().bound
    assert max(moves) > 0.95 * plan.sums.claim().bound


@pytest.mark.parametrize("committee", [Committee("one", 2), Committee("majority", 3)])
def test_a_simulation_differs_from_the_exact_sum_by_the_noise_alone(committee, softmax, local, clients, monkeypatch):
    drawn = []
    original = Source.lattice
    monkeypatch.setattr(Source, "lattice", lambda *given: drawn.append(original(*given)) or drawn[-1])
    plan = committee_plan(
        Budget(4.0, DELTA), **{**SETTINGS, "n_clients": 20, "rounds": 1, "dimension": 21}, committee=committee
    )
    server = Server(plan, trained_weights(softmax), 20, random_state=1)
    chosen = server.sample().tolist()
    updates = {client: {"weight": np.full((3, 6), 0.3 * client), "bias": np.ones(3)} for client in chosen}
    updates[chosen[0]]["bias"] = np.full(3, np.nan)
    with pytest.warns(UserWarning, match="not finite"):
        server.aggregate(updates)
    vectors = [np.concatenate([each["weight"].ravel(), each["bias"]]) for each in updates.values()]
    expected = sum(v * min(1, 0.5 / np.linalg.norm(v)) for v in vectors if np.isfinite(v).all())
    noise = sum(drawn) / plan.sums.scale
    moved = np.concatenate([layer.ravel() for layer in server.weights.values()]) * plan.divisor(20)
    assert len(drawn) == committee.noises
    assert np.abs(moved - noise - expected).max() < len(chosen) * (0.5 / plan.sums.scale + 1e-5)


def test_simulate_states_both_guarantees_and_a_price(softmax, local, clients):
    options = {"rounds": 2, "clients_per_round": 5, "clip_norm": 0.5, "loss": nn.CrossEntropyLoss(), "local": local}
    result = simulate(softmax, clients, budget=Budget(3.0, DELTA), committee=Committee(), verbose=False, **options)
    assert isinstance(result.plan, CommitteePlan)
    assert 2.97 < result.guarantee.epsilon <= 3.0
    assert result.outsiders.epsilon < result.guarantee.epsilon
    assert result.history[0].epsilon < result.history[1].epsilon == result.guarantee.epsilon
    assert result.price.noise_factor == pytest.approx(math.sqrt(2))
    trusted = simulate(softmax, clients, budget=Budget(3.0, DELTA), verbose=False, **options)
    assert trusted.outsiders is None and trusted.price is None
    with pytest.raises(ValueError, match="already determines committee"):
        simulate(softmax, clients, plan=result.plan, committee=Committee(), loss=options["loss"], local=local)


def test_a_replay_finds_nothing_but_the_noisy_sums(local, clients):
    fleet = [clients[i] for i in range(6)]
    settings = {"n_clients": 6, "clients_per_round": 3, "rounds": 2, "clip_norm": 0.5, "dimension": 21}
    plan = committee_plan(Budget(2.0, DELTA), **settings, sampling="uniform")

    def train(fleet):
        model = nn.Linear(6, 3)
        nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
        options = {"loss": nn.CrossEntropyLoss(), "local": local, "engine": "sequential", "verbose": False}
        return simulate(model, fleet, plan=plan, **options)

    found = replay(train, fleet, [*fleet[:-1], clients[7]])
    assert not found.is_violation, found
    assert found.releases > 0


def test_the_price_counts_shares_keys_and_joint_bits():
    one = RoundPrice.of(plan_of(committee=Committee("one", 3), dimension=1000))
    assert one.bytes_per_client == 8001 + 2 * 33 + 3 * 53  # one share in full, two keys, three headers
    assert one.bytes_per_server == round(10 * one.bytes_per_client / 3)
    assert one.bytes_between_servers == 6 * (8001 + 24 * 10)
    majority = RoundPrice.of(plan_of(committee=Committee("majority", 3), dimension=1000))
    assert majority.bytes_per_client == 3 * (8001 + 53)
    assert majority.bytes_between_servers > 50 * one.bytes_between_servers  # some 250 joint bits per weight
    bits = 1000 * plan_of(committee=Committee("majority", 3), dimension=1000).sums.law.recipe().bits_drawn
    assert (majority.bytes_between_servers - one.bytes_between_servers) % (10 * bits) == 0  # 5/3 numbers for 6 pairs
    assert majority.noise_factor == 1 < one.noise_factor
    assert "bytes from each client" in str(one)
    assert min(one.seconds()) > 0
    assert majority.seconds()[1] > 0.4  # some 2 microseconds per joint bit
    pure = committee_plan(Budget(4.0, 0.0), **{**SETTINGS, "dimension": 100_001})  # beyond what is measured
    assert min(RoundPrice.of(pure).seconds()) > 0


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match='trust = "majority" needs 3 to 7 servers, got 2'):
        plan_of(committee=Committee("majority", 2))
    with pytest.raises(ValueError, match="cannot add a given noise_multiplier"):
        committee_plan(noise_multiplier=1.0, **SETTINGS)
    with pytest.raises(ValueError, match="clients_per_round=41 exceeds n_clients=40"):
        plan_of(clients_per_round=41)
    plan = plan_of()
    with pytest.raises(ValueError, match="for a model of 5 weights, but this one has 6"):
        Server(plan, {"a": np.zeros(6)}, 40)
    with pytest.raises(ValueError, match="for 40 clients, but there are 39"):
        Server(plan, {"a": np.zeros(5)}, 39)
    with pytest.raises(ValueError, match="need more"):
        CommitteePlan(plan.sums, plan.sampler, 0.6, plan.committee, 40)
    with pytest.raises(TypeError, match="must be a Committee"):
        plan_of(committee=True)
    with pytest.raises(ValueError, match="has 2 servers, got 1 addresses"):
        FederatedStudy("x", plan, [("127.0.0.1", 9100)])
    with pytest.raises(ValueError, match="server 0 and server 1 have adjacent ports"):
        FederatedStudy("x", plan, [("127.0.0.1", 9100), ("127.0.0.1", 9101)])
    server = Server(
        client_plan(Budget(1.0, DELTA), **{k: SETTINGS[k] for k in list(SETTINGS)[:4]}), {"a": np.zeros(5)}, 40
    )
    server.sample()
    with pytest.raises(TypeError, match="Only the plan of a committee"):
        server.aggregate_opened(lambda number: np.zeros(5, dtype=np.int64))


def test_studies_differ_if_any_setting_differs():
    addresses = [("127.0.0.1", 9100), ("127.0.0.1", 9200)]
    studies = [
        FederatedStudy("x", plan_of(), addresses),
        FederatedStudy("y", plan_of(), addresses),
        FederatedStudy("x", plan_of(rounds=7), addresses),
        FederatedStudy("x", plan_of(clip_norm=0.6), addresses),
        FederatedStudy("x", plan_of(), addresses[::-1]),
        FederatedStudy("x", plan_of(), addresses, fewest=2),
    ]
    assert len({each.digest for each in studies}) == len(studies)
    assert FederatedStudy("x", plan_of(), addresses).digest == studies[0].digest
