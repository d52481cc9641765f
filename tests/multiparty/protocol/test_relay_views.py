"""What the public, a holder of the state and a coalition learn from a relay: claims, attacked by exact laws and runs.

With clipped squared losses and targets far away, a record's gradient is always as long as the clip allows, and the
states of a relay are sums of such gradients and noise. Their law is known exactly, and so is the mu of every view.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.audit import from_outputs, replay
from privet.multiparty import JointProblem
from privet.multiparty.protocol.relay import Owner, simulated_relay
from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.objectives import L2, Logistic, Squared
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, gdp_epsilon
from privet.privacy.events import GaussianRelease

BUDGET = Budget(2.0, 1e-3)
FAR = 1e6  # target of a record


def relay_plan(counts, *, alpha=0.1, budget=BUDGET, **options):
    problem = JointProblem(Squared(), L2(alpha), tuple(counts), 1.0, 0.0, 1)
    return RelayPlan.for_budget(problem, budget, **{"order": range(len(counts)), "clip_norm": 1.0, **options})


def parties(plan, flipped=None, alpha=0.1):
    """Return the problems of all parties. All records pull upwards, except those of the owner in ``flipped``."""
    problem = JointProblem(Squared(), L2(alpha), plan.counts, 1.0, 0.0, 1)
    return [
        problem.local(np.ones((count, 1)), np.full(count, -FAR if index == flipped else FAR)) if count else None
        for index, count in enumerate(plan.counts)
    ]


def contraction_of(plan):
    """Return the factor by which a step moves points closer to one another if gradients do not depend on the point."""
    return 1 - plan.plan.descent.step_size * 0.1


def exact_mu(plan, turns, owner, place, holders):
    """Return the mu of a record in step ``place`` of an owner's turns, against holders together with the public.

    The holders know the noise of their own steps. What they see is jointly Gaussian.
    """
    factor = contraction_of(plan)
    shifts, noise, seen = [], [], []
    for turn in turns:
        if turn in holders and shifts:
            seen.append(len(shifts))
        for step in range(plan.steps(turn)):
            shifts.append(1.0 if (turn, step) == (owner, place) else 0.0)
            noise.append(0.0 if turn in holders else plan.plan.noise_multiplier / 2)
    seen.append(len(shifts))
    steps = np.arange(len(shifts))
    carried = np.array([np.where(steps < end, factor ** np.maximum(end - 1.0 - steps, 0), 0.0) for end in seen])
    covariance = carried @ np.diag(np.square(noise)) @ carried.T
    apart = carried @ shifts
    assert np.allclose(covariance @ np.linalg.pinv(covariance, rcond=1e-12) @ apart, apart)  # nothing without noise
    return math.sqrt(apart @ np.linalg.pinv(covariance, rcond=1e-12) @ apart)


# -------------------------------------------------------------------------------------------------------- exact attacks


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("counts", [(2, 3), (1, 4, 2), (3, 0, 1, 2)])
def test_no_view_reveals_more_than_is_claimed(counts, passes):
    plan = relay_plan(counts, passes=passes)
    for owner in plan.order:
        others = [each for each in plan.order if each != owner]
        for size in range(len(others) + 1):
            for holders in itertools.combinations(others, size):
                claim = plan.mu(owner, plan.turns, holders)
                exact = [exact_mu(plan, plan.turns, owner, place, holders) for place in range(plan.steps(owner))]
                assert max(exact) <= claim
                assert claim <= plan.next_holder_mu
                # Only the nearest holder after the owner matters, for as long as the relay goes on.
                place = plan.order.index(owner)
                nearest = [each for each in (*plan.order[place:], *plan.order[:place]) if each in holders][:1]
                assert claim == pytest.approx(plan.mu(owner, plan.turns, nearest), rel=1e-9)


def test_the_claims_are_attained_by_owners_of_one_record():
    plan = relay_plan((1, 1, 1), passes=2)
    visible = 2 / plan.plan.noise_multiplier
    for owner in plan.order:
        others = {*plan.order} - {owner}
        seen = exact_mu(plan, plan.turns, owner, plan.steps(owner) - 1, others)
        assert seen == pytest.approx(visible * math.sqrt(2), rel=1e-9)
        assert seen <= plan.mu(owner, plan.turns, others) <= plan.next_holder_mu <= seen * 1.001
    assert plan.next_holder_mu == pytest.approx(plan.mu(0, plan.turns, [1]), rel=1e-9)  # the next owner alone
    one_pass = relay_plan((2, 3, 2))  # Nothing hides the last record of the last owner from the public.
    assert one_pass.mu(2, one_pass.turns) == pytest.approx(one_pass.next_holder_mu, rel=1e-8)


def test_earlier_owners_are_hidden_better_and_earlier_records_too():
    plan = relay_plan((4, 4, 4), alpha=1e-9, passes=2)
    z, n = plan.plan.noise_multiplier, 12
    for owner, end in ((0, 4), (1, 8), (2, 12)):
        closed_form = 2 / z * math.sqrt(1 / n + 1 / (n - end + 1))
        charged = plan.plan.event.rounding_mu()
        assert plan.mu(owner, plan.turns) == pytest.approx(closed_form + charged, rel=1e-6)
    exact = [exact_mu(plan, plan.turns, 0, place, {1}) for place in range(4)]
    assert exact == sorted(exact)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_two_analyses_of_what_is_published_agree(batch):
    plan = relay_plan((30, 12, 21), passes=3, batch=batch)
    for owner in plan.order:
        assert plan.mu(owner, plan.turns) == pytest.approx(plan._last_state_mu(owner, plan.turns), rel=1e-9)


def test_the_promise_holds_whoever_is_skipped_in_whichever_turns():
    plan = relay_plan((2, 3, 1), passes=2, can_skip=True)
    assert plan.guarantee().epsilon <= BUDGET.epsilon
    for taken in itertools.product([False, True], repeat=len(plan.turns)):
        turns = [owner for owner, took in zip(plan.turns, taken, strict=True) if took]
        for owner in {*turns}:
            exact = [exact_mu(plan, turns, owner, place, ()) for place in range(plan.steps(owner))]
            assert max(exact) <= plan.mu(owner, turns) <= plan.worst_mu(owner) * (1 + 1e-9)
            assert plan.worst_mu(owner) <= plan.next_holder_mu
        if turns:
            assert plan.guarantee(turns).epsilon <= plan.guarantee().epsilon <= BUDGET.epsilon


def test_the_promise_without_skips_does_not_hold_for_skips():
    """The test above would notice a plan that promised as much for skips as for a whole relay."""
    plan = relay_plan((2, 3, 1), passes=2)
    assert plan.mu(2, [2, 2]) > 1.1 * plan.mu(2, plan.turns)
    assert relay_plan((2, 3, 1), passes=2, can_skip=True).plan.noise_multiplier > 1.1 * plan.plan.noise_multiplier


def test_the_steps_of_the_code_move_neighbours_as_far_as_the_exact_law_says():
    """Without noise, the real steps on neighbouring tables are apart by the shifts that the mus above rest on."""
    plan = relay_plan((2, 1, 2), passes=2)
    silent = replace(plan, plan=replace(plan.plan, noise_multiplier=0.0))

    def last_state(problems):
        owners = {index: Owner(silent, index, problem, NoiseSource(0)) for index, problem in enumerate(problems)}
        state = problems[0].start()
        for index in silent.turns:
            state = owners[index].turn(state)
        return float(state[0])

    factor, size = contraction_of(plan), plan.plan.descent.step_size
    ends = [index for index, owner in enumerate([0, 0, 1, 2, 2] * 2) if owner == 1]
    expected = 2 * size * sum(factor ** (9 - end) for end in ends)
    found = last_state(parties(plan)) - last_state(parties(plan, flipped=1))
    assert expected * (1 - 2e-4) <= found <= expected  # Clipping leaves some room for its own rounding.


# ----------------------------------------------------------------------------------------------------- attacks by runs


@pytest.fixture(scope="module")
def long_relay():
    """Return the plan of a relay with many passes, and its states after every turn on neighbouring tables."""
    plan = relay_plan((1, 1, 1), passes=1500, step_size=0.2, budget=Budget(200.0, 1e-3))
    return plan, [simulated_relay(plan, parties(plan, flipped), [NoiseSource(5)] * 3)[1] for flipped in (None, 1)]


def turned(plan, states, first, last):
    """Return by how much each pass moved the state, from after the turn ``first`` to after the turn ``last``."""
    factor, moved = contraction_of(plan), np.ravel(states)
    return [moved[k + last] - factor ** (last - first) * moved[k + first] for k in range(0, len(moved) - last, 3)]


@pytest.mark.parametrize(
    ("view", "first", "last", "holders"),
    [("the owners before and after", 0, 1, [0, 2]), ("the owner before, two turns later", 0, 2, [0])],
)
def test_the_view_of_a_holder_in_one_pass_stays_within_its_mu_and_no_smaller_one(
    long_relay, view, first, last, holders
):
    """Given the state before, every pass is a new run of what is seen in one pass."""
    plan, worlds = long_relay
    one_pass = [turned(plan, states, first, last) for states in worlds]
    claim = plan.mu(1, plan.turns, holders) / math.sqrt(plan.passes)
    for share, is_refuted in ((1.0, False), (0.7, True)):
        event = GaussianRelease(claim * share)
        guarantee = Guarantee.of(event, Adjacency.REPLACE_ONE, 1e-3, released=view)
        outputs = [np.reshape(each, (-1, 1)) for each in one_pass]
        assert from_outputs(*outputs, guarantee=guarantee, name=view).is_violation is is_refuted


def test_a_replay_finds_nothing_but_what_the_plan_allows():
    problem = JointProblem(Logistic(), L2(0.1), (4, 3), 1.0, 0.5, 2)
    plan = RelayPlan.for_budget(problem, BUDGET, order=range(2), passes=2, batch=2)
    rng = np.random.default_rng(3)
    rows = [rng.uniform(-0.7, 0.7, (count, 2)) for count in plan.counts]
    labels = [np.zeros(count) for count in plan.counts]
    other = [rows[0].copy(), rows[1]]
    other[0][1] *= -1

    def train(tables):
        problems = [problem.local(*each) for each in zip(tables, labels, strict=True)]
        return simulated_relay(plan, problems, [NoiseSource(), NoiseSource()])[0]

    found = replay(train, rows, other)
    assert not found.is_violation, found


# ------------------------------------------------------------------------------------------------------------- in words


def test_the_guarantee_says_what_holds_towards_whom():
    plan = relay_plan((4, 0, 5), passes=3, can_skip=True)
    said = plan.guarantee(plan.turns, ["north", "registry", "south"])
    for owner, name in ((0, "north"), (2, "south")):
        epsilon = gdp_epsilon(plan.mu(owner, plan.turns), plan.delta)
        shown = float(said.released.split(f" for {name}")[0].split()[-1])
        assert epsilon <= shown <= epsilon * 1.001
    assert "registry" not in said.released
    handed = gdp_epsilon(plan.next_holder_mu, plan.delta)
    shown = float(said.released.split("to the next owner only: epsilon ")[1].split()[0])
    assert handed <= shown <= handed * 1.001
    assert said.epsilon == pytest.approx(gdp_epsilon(plan.mu(2, plan.turns), plan.delta), rel=1e-6)
    assert [each.text for each in said.assumptions if not each.is_enforced][1:] == [
        "whether an owner fails and is skipped does not depend on anybody's rows"
    ]
    assert "party 2" in plan.guarantee().released
    assert Guarantee.from_json(plan.guarantee([0, 0]).to_json()) == plan.guarantee([0, 0])


def test_an_owner_with_fewer_rows_than_a_step_takes_is_named():
    with pytest.raises(ValueError, match=r"Party 2 has 3 rows, but a step takes 4\. Choose a smaller batch\."):
        relay_plan((8, 0, 3), batch=4)
    with pytest.raises(ValueError, match="The plan has a turn for party 1, which has no rows here"):
        simulated_relay(plan := relay_plan((2, 2)), [parties(plan)[0], None], [NoiseSource(0)] * 2)
