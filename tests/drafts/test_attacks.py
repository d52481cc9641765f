"""Attacks on private drafts: all neighbours of tiny tables, replays, games, and bugs that these must notice."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from privet.audit import distinguish, replay
from privet.drafts import answers, from_rows, to_toml
from privet.drafts.answers import ask
from privet.drafts.plan import DraftPlan, HistogramStability, Questions
from privet.drafts.recognition import Cells, Kind
from privet.preprocessing.quantiles import QuantilePlan
from privet.privacy import Adjacency, Budget, NoiseSource, compose, gdp_mu
from privet.privacy.events import GaussianRelease, NearlyGaussian
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.noise.release import grid_step

CELLS = ("", "1", "2.0", "a", "31/12/2020", "nan")


def cells(*texts):
    return Cells.of(pd.Series(texts, dtype=object))


def neighbours(alphabet, n):
    """Yield all pairs of columns of n cells that differ in one cell."""
    for rest in itertools.combinations_with_replacement(alphabet, n - 1):
        for one, other in itertools.combinations(alphabet, 2):
            yield (*rest, one), (*rest, other)


# ---------------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("n", [1, 2])
def test_a_replaced_cell_moves_the_counts_of_kinds_by_the_square_root_of_two(n):
    moves = {np.linalg.norm(cells(*one).by_kind() - cells(*other).by_kind()) for one, other in neighbours(CELLS, n)}
    assert max(moves) == pytest.approx(HistogramStability(1).sensitivity, rel=1e-15)


def test_a_replaced_record_moves_the_counts_of_all_columns_by_the_claimed_sensitivity():
    for d in (1, 2, 3, 7, 50):
        one, other = np.tile(cells("1").by_kind(), d), np.tile(cells("a").by_kind(), d)
        assert np.linalg.norm(one - other) == pytest.approx(HistogramStability(d).sensitivity, rel=1e-15)
        assert HistogramStability(d).sensitivity ** 2 >= 2 * d * (1 - 1e-16)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_replaced_cell_moves_the_levels_by_the_square_root_of_two_and_adds_at_most_one_level(n):
    largest = 0.0
    for one, other in neighbours(CELLS, n):
        first, second = cells(*one).levels(), cells(*other).levels()
        union = first.keys() | second.keys()
        largest = max(largest, np.linalg.norm([first.get(level, 0) - second.get(level, 0) for level in union]))
        assert len(first.keys() - second.keys()) <= 1
        assert len(second.keys() - first.keys()) <= 1
    assert largest == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("share", [0.01, 0.25])
def test_a_replaced_cell_moves_the_scores_of_quantiles_by_at_most_one_even_if_it_is_not_a_number(share):
    """The tallies contain the numbers only, so their size changes if a number is replaced by something else."""
    plan = QuantilePlan(1, (share, 1 - share), 5, 1.0, is_pure=False)

    def scores(texts, q):
        values, counts = cells(*texts).tally(Kind.NUMBER)
        choices = plan.choices(answers._tally(values.astype(np.int64), counts), q)
        return np.repeat(choices.scores, choices.sizes)

    moves = [
        np.abs(scores(one, q) - scores(other, q)).max()
        for n in (1, 2, 3)
        for one, other in neighbours(("", "0", "2", "5"), n)
        for q in (share, 1 - share)
    ]
    assert 1 - share <= max(moves) <= 1


@pytest.mark.parametrize("column", ["1 1", "a a", "1e308 -1e308", "5e-324 nan", "x 1", "nan nan"])
def test_two_rows_of_anything_get_answers(column):
    plan = DraftPlan(1, 1.0, 1e-6)
    (answer,) = ask({"x": cells(*column.split())}, None, plan, NoiseSource(1))
    assert set(answer.counts) == set(Kind)


@pytest.mark.parametrize("kind", ["NUMBER", "DATE", "TEXT"])
def test_questions_are_answered_even_if_no_cell_is_of_the_kind_that_the_noise_suggests(kind, monkeypatch):
    """Noise can make an empty column look full. Its quantiles are then uniformly random, and no level is found."""
    monkeypatch.setattr(answers.Answer, "is_sure", lambda self, *kinds: kinds == (Kind[kind],))
    monkeypatch.setattr(answers.Answer, "number", lambda self, *kinds: 1e9 if kinds == (Kind[kind],) else 0.0)
    (answer,) = ask({"x": cells("", "")}, None, DraftPlan(1, 1.0, 1e-6), NoiseSource(1))
    assert answer.levels == {} if kind == "TEXT" else answer.bounds is not None


# ----------------------------------------------------------------------------------------------- cost and threshold


@pytest.mark.parametrize("n_columns", [1, 4, 30])
@pytest.mark.parametrize("budget", [(0.1, 1e-8), (1.0, 1e-6), (8.0, 1e-5)])
def test_all_questions_together_cost_what_the_plan_accounts_for(n_columns, budget):
    plan = DraftPlan.for_budget(budget, n_columns)
    assert 0.999 * budget[0] <= plan.guarantee().epsilon <= budget[0]
    for n_levels in range(n_columns + 1):
        asked = plan.questions(n_levels, n_columns - n_levels)
        mus = [plan.kinds().event.mu, *([asked.levels().event.mu] if n_levels else [])]
        mus += [asked.bounds(len(CELLS)).event.mu] * asked.n_bounds
        assert 0.999999 * plan.mu <= math.hypot(*mus) <= plan.mu
        assert math.sqrt(asked.cost() + mus[0] ** 2) == pytest.approx(math.hypot(*mus))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_draft_leaves_room_for_models_in_a_ledger(epsilon):
    """The total variation of the threshold costs delta in proportion to e^epsilon of the total."""
    mu = gdp_mu(Budget(1.0, 1e-6))
    models = [Guarantee.of(GaussianRelease(mu), Adjacency.REPLACE_ONE, 1e-6, released="a model")] * 20
    draft = DraftPlan.for_budget((epsilon, 1e-6), 10).guarantee()
    of_budget = Guarantee.of(
        GaussianRelease(gdp_mu(Budget(epsilon, 1e-6))), Adjacency.REPLACE_ONE, 1e-6, released="a model"
    )
    assert compose([draft, *models], 1e-6).epsilon <= 1.01 * compose([of_budget, *models], 1e-6).epsilon


@pytest.mark.parametrize("n_levels", [1, 3])
@pytest.mark.parametrize("distance", [1e-12, 1e-3, 0.1])
def test_noise_alone_reaches_the_threshold_as_often_as_the_plan_accounts_for(n_levels, distance):
    asked = DraftPlan(3, 0.5, distance).questions(n_levels, 0)
    std = asked.levels().scale
    chance = stats.norm.sf((asked.threshold - grid_step(std) / 2) / std)
    assert 0.999 * distance <= n_levels * chance <= distance


def test_the_noise_has_the_scale_that_the_guarantee_rests_on():
    plan, source = DraftPlan(200, 1.0, 1e-6), NoiseSource(2)
    drawn = ask({str(place): cells("") for place in range(200)}, None, plan, source)
    noise = [each.counts[kind] for each in drawn for kind in Kind if kind is not Kind.MISSING]
    std = math.sqrt(2 * 200) / (1.0 * math.sqrt(0.25))
    assert stats.kstest(np.array(noise) / std, "norm").pvalue > 1e-3


# ----------------------------------------------------------------------------------------- games, and planted bugs


def play(mechanism, first, second, event, delta, runs=300):
    claim = Guarantee.of(event, Adjacency.REPLACE_ONE, delta, released="a draft")
    return distinguish(mechanism, first, second, guarantee=claim, runs=runs, source=NoiseSource(5))


PLAN = DraftPlan(1, 1.0, 0.001)
FEW = {"x": cells("a", *["b"] * 99)}, {"x": cells("", *["b"] * 99)}
MANY = {"x": cells(*["a"] * 50, *["b"] * 50)}, {"x": cells(*["a"] * 49, *["b"] * 51)}


def kinds_of(columns, source):
    (answer,) = ask(columns, None, PLAN, source)
    return list(answer.counts.values())


def levels_of(columns, source):
    (answer,) = ask(columns, None, PLAN, source)
    return [answer.levels.get(level, 0.0) for level in "ab"]


def kinds_game():
    return play(kinds_of, *FEW, GaussianRelease(PLAN.mu * math.sqrt(0.25)), 1e-6)


def levels_game():
    return play(levels_of, *MANY, GaussianRelease(PLAN.mu * math.sqrt(0.75)), 1e-6)  # the threshold is far away


def threshold_game():
    rare = {"x": cells("a", *["b"] * 99)}, {"x": cells(*["b"] * 100)}
    return play(lambda *given: [float(levels_of(*given)[0] != 0)], *rare, NearlyGaussian(PLAN.mu, PLAN.distance), 0.05)


@pytest.mark.parametrize("game", [kinds_game, levels_game, threshold_game])
def test_a_draft_cannot_be_told_apart_better_than_claimed(game):
    assert not game().is_violation


@pytest.mark.parametrize("game", [kinds_game, levels_game])
def test_counting_one_moved_cell_instead_of_two_is_noticed(game, monkeypatch):
    monkeypatch.setattr(HistogramStability, "sensitivity", property(lambda self: math.sqrt(self.n_columns) / 2))
    assert game().is_violation


@pytest.mark.parametrize("game", [kinds_game, levels_game])
def test_half_of_the_noise_is_noticed(game, monkeypatch):
    exact = NoiseSource.add_gaussian
    monkeypatch.setattr(
        NoiseSource, "add_gaussian", lambda self, values, std, *others: exact(self, values, std / 2, *others)
    )
    assert game().is_violation


@pytest.mark.parametrize("threshold", [-100.0, 2.0])
def test_a_low_threshold_is_noticed(threshold, monkeypatch):
    """The right one is above 5. At 2, noise lifts a level of one record above it in every fourth run."""
    monkeypatch.setattr(Questions, "threshold", property(lambda self: threshold))
    assert threshold_game().is_violation


# ----------------------------------------------------------------------------------------------------------- replay


def table(n=600):
    place = np.arange(n)
    return pd.DataFrame(
        {
            "age": (place % 70).astype(str),
            "sex": np.where(place % 2, "female", "male"),
            "since": [f"20{year:02d}-01-01" for year in place % 20],
            "ill": (place % 3 == 0).astype(int).astype(str),
        }
    )


def train(frame):
    draft, guarantee = from_rows(frame, 9.0, 1e-4, target="ill", random_state=3)
    return to_toml(draft), guarantee


@pytest.mark.parametrize(
    "row",
    [
        ("1e300", "female", "2001-01-01", "0"),
        ("", "", "", ""),
        ("-5e-324", "male", "31.12.9999", "1"),
        ("nan", "male", "?", "NaN"),
        ("x", "female", "1/2/2003", "1"),
    ],
    ids=str,
)
def test_a_replay_on_a_table_with_one_other_row_finds_nothing(row):
    """A new level would change how many levels get noise. The threshold pays for this, and no replay sees it."""
    first = table()
    second = first.copy()
    second.iloc[7] = row
    found = replay(train, first, second)
    assert not found.is_violation, found.verdict
    assert found.moved
    assert found.largest <= 1
    assert 0 < found.spent <= 1


def test_a_replay_notices_that_one_moved_cell_is_counted_instead_of_two(monkeypatch):
    first = table()
    second = first.copy()
    second.iloc[7] = ("", "male", "2001-01-01", "0")
    monkeypatch.setattr(HistogramStability, "sensitivity", property(lambda self: math.sqrt(self.n_columns) / 2))
    assert replay(train, first, second).is_violation


def test_a_replay_notices_bounds_that_are_read_off_the_rows():
    first = table()
    second = first.copy()
    second.iloc[7] = ("1e6", "male", "2001-01-01", "0")

    def leaking(frame):
        return *train(frame), frame["age"].astype(float).max()

    assert replay(leaking, first, second).is_violation


def test_a_column_is_read_cell_by_cell_whatever_the_other_cells_are():
    """In a column of Python objects, True and 1 are equal, and a missing whole number makes floats of the others."""
    objects = pd.Series([True, 1, "1", 1.0, None], dtype=object)
    whole, absent = pd.Series([2**53 + 1, 1]), pd.Series([2**53 + 1, None])
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 2, 3, 4]):
        assert Cells.of(objects.iloc[order]).levels() == {"1": 3, "True": 1}
    assert next(iter(Cells.of(absent).levels())) in Cells.of(whole).levels()


def test_the_budget_is_the_least_that_its_answers_support():
    budget = Budget(1.0, 1e-6)
    assert DraftPlan.for_budget(budget, 3).mu > 0.95 * DraftPlan.for_budget(Budget(1.0, 2e-6), 3).mu
