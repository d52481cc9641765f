import itertools
import json

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.optimize import linprog
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

from privet import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privet.audit.canaries import canaries, one_run_linear
from privet.audit.one_run import OneRun, epsilon_from_guesses, one_run, p_value
from privet.privacy import Adjacency, Guarantee, NoiseSource
from privet.privacy.events import ApproximateRelease


def randomised_response(m, epsilon, rng):
    """Return coins, and the answers of randomised response, the mechanism that reveals most at epsilon."""
    coins = rng.random(m) < 0.5
    return coins, np.where(rng.random(m) < 1 / (1 + np.exp(-epsilon)), coins, ~coins).astype(float)


# ------------------------------------------------------------------------------------------------------ the p-value


def worst_chance(m, r, v, epsilon, delta):
    """Return the largest probability of v right guesses among r, over all (epsilon, delta)-DP maps from m coins.

    A linear programme over all such maps. It has one variable for each combination of coins and guesses, and one for
    each excess over e^epsilon times the probability of the same guesses after one coin is flipped. The excesses of each
    pair of neighbouring coins sum to at most delta.
    """
    coins = list(itertools.product([-1, 1], repeat=m))
    guesses = [g for g in itertools.product([-1, 0, 1], repeat=m) if np.count_nonzero(g) == r]
    size = len(guesses)
    pairs = [
        (s, t) for s, t in itertools.permutations(range(len(coins)), 2) if np.sum(np.not_equal(coins[s], coins[t])) == 1
    ]
    right = np.array([[np.sum(np.multiply(s, g) == 1) >= v for g in guesses] for s in coins])
    chances = len(coins) * size
    one = sparse.eye(size)
    upper, bound, equal = (
        [],
        [],
        sparse.hstack(
            [
                sparse.kron(sparse.eye(len(coins)), np.ones((1, size))),
                sparse.csr_matrix((len(coins), len(pairs) * size)),
            ]
        ),
    )
    for place, (s, t) in enumerate(pairs):
        row = sparse.kron(sparse.csr_matrix(([1.0, -np.exp(epsilon)], ([0, 0], [s, t])), shape=(1, len(coins))), one)
        excess = sparse.kron(sparse.csr_matrix(([1.0], ([0], [place])), shape=(1, len(pairs))), one)
        upper.append(sparse.hstack([row, -excess]))
        bound.append(np.zeros(size))
        total = sparse.kron(sparse.csr_matrix(([1.0], ([0], [place])), shape=(1, len(pairs))), np.ones((1, size)))
        upper.append(sparse.hstack([sparse.csr_matrix((1, chances)), total]))
        bound.append([delta])
    value = np.concatenate([right.ravel() / len(coins), np.zeros(len(pairs) * size)])
    solved = linprog(-value, sparse.vstack(upper), np.concatenate(bound), equal, np.ones(len(coins)))
    assert solved.status == 0
    return -solved.fun


SMALL = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize(("m", "r"), SMALL)
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_p_value_is_the_largest_probability_over_all_mechanisms(m, r, epsilon, delta):
    for v in range(1, r + 1):
        assert worst_chance(m, r, v, epsilon, delta) == pytest.approx(p_value(v, r, m, epsilon, delta), abs=1e-9)


@pytest.mark.parametrize(("m", "r"), SMALL)
def test_no_mechanism_exceeds_the_p_value_for_large_delta(m, r):
    for v, epsilon in itertools.product(range(1, r + 1), [0.3, 1.5]):
        assert worst_chance(m, r, v, epsilon, 0.2) <= p_value(v, r, m, epsilon, 0.2) + 1e-9


def published(v, r, m, epsilon, delta):
    """Return the p-value of Theorem 5.2 of Steinke, Nasr and Jagielski as printed."""
    law = stats.binom(r, 1 / (1 + np.exp(-epsilon)))
    i = np.arange(1, v + 1)
    return law.sf(v - 1) + 2 * m * delta * np.max((law.sf(v - i - 1) - law.sf(v - 1)) / i)


def test_the_published_term_for_delta_fails_for_few_correct_guesses():
    """A symmetric mechanism on two coins, which uses its delta to avoid that both guesses are wrong."""
    epsilon, delta = 1.5, 0.05
    both = (1 + np.exp(-epsilon) * delta) / (1 + np.exp(-epsilon)) ** 2
    one = np.exp(-epsilon) * both
    none = np.exp(-epsilon) * (one - delta)
    assert both + 2 * one + none == pytest.approx(1)
    # Flipping a coin changes (both, one) right guesses to (one, none). This is private, and the second uses up delta.
    assert max(both - np.exp(epsilon) * one, 0) + max(one - np.exp(epsilon) * none, 0) == pytest.approx(delta)
    assert 1 - none > published(1, 2, 2, epsilon, delta) + 0.004
    assert 1 - none == pytest.approx(p_value(1, 2, 2, epsilon, delta))


@pytest.mark.parametrize(
    ("v", "r", "m", "delta", "printed"), [(75, 100, 1000, 1e-4, 0.673), (1439, 1510, 100_000, 1e-5, 2.675)]
)
def test_the_papers_own_figures_are_improved_on(v, r, m, delta, printed):
    """The bounds in appendix D and section 7 follow from the printed term, and the exact term gives larger ones."""
    assert published(v, r, m, printed - 1e-3, delta) < 0.05 < published(v, r, m, printed + 2e-3, delta)
    assert (
        printed < epsilon_from_guesses(v, r, m, delta, 0.95) < epsilon_from_guesses(v, r, m, 0.0, 0.95) < printed + 0.2
    )


@pytest.mark.parametrize("m", [100, 5000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_exact_term_is_smaller_for_typical_audits(m, epsilon):
    for r in (m, m // 4):
        v = min(r, int(stats.binom.isf(0.05, r, 1 / (1 + np.exp(-epsilon)))) + 1)
        least = p_value(v, r, m, epsilon, 0.0)
        gains = [chance(v, r, m, epsilon, 1e-7) - least for chance in (p_value, published)]
        assert gains[0] < gains[1]


def best_place(v, r, m, epsilon, delta):
    """Return the bound of the proof before log-concavity is used: the largest over all places j for delta."""
    law = stats.binom(r, 1 / (1 + np.exp(-epsilon)))
    j = np.arange(1, r + 1)
    gains = law.sf(np.maximum(j, v) - 1) * law.cdf(np.minimum(j, v) - 1) / (j * law.pmf(j))
    return law.sf(v - 1) + m * delta * gains.max()


def test_the_p_value_by_its_definition():
    for r, epsilon in itertools.product((1, 7, 40), (0.0, 0.7, 3.0)):
        for v in range(1, r + 1):
            expected = min(1, best_place(v, r, 50, epsilon, 1e-3))
            assert p_value(v, r, 50, epsilon, 1e-3) == pytest.approx(expected, rel=1e-9)
    assert p_value(0, 20, 50, 0.7, 1e-3) == 1
    assert p_value(20, 20, 50, 60.0, 1e-3) == 1  # nothing contradicts such a large epsilon
    assert p_value(20, 20, 50, 1e4, 1e-3) == 1
    assert p_value(10**5, 10**5, 10**5, 0.0, 1e-3) == pytest.approx(1e-3)  # the tail is 2^-100000


def test_without_delta_the_bound_inverts_the_binomial_tail():
    found = epsilon_from_guesses(80, 100, 500, 0.0, 0.95)
    assert stats.binom.sf(79, 100, 1 / (1 + np.exp(-found))) == pytest.approx(0.05, rel=1e-6)
    assert epsilon_from_guesses(80, 100, 500, 1e-5, 0.95) < found
    assert epsilon_from_guesses(50, 100, 500, 0.0, 0.95) == 0
    assert epsilon_from_guesses(0, 100, 500, 0.0, 0.95) == 0


# --------------------------------------------------------------------------------------------- validity and power


@pytest.mark.parametrize(("m", "guesses"), [(200, None), (1000, None), (1000, 1000), (1000, (300, 0))])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_bound_exceeds_the_truth_no_more_often_than_it_says(m, guesses, epsilon):
    rng = np.random.default_rng(m)
    runs = 400
    wrong = 0
    for _ in range(runs):
        coins, scores = randomised_response(m, epsilon, rng)
        wrong += one_run(scores, coins, delta=0.0, guesses=guesses).lower_bound > epsilon
    assert wrong <= stats.binom.ppf(0.9999, runs, 0.05)


def test_the_bound_is_valid_where_coins_are_revealed_with_chance_delta():
    rng = np.random.default_rng(1)
    m, epsilon, delta, runs = 300, 0.5, 0.02, 400
    wrong = 0
    for _ in range(runs):
        coins, scores = randomised_response(m, epsilon, rng)
        sure = rng.random(m) < delta
        scores = np.where(sure, np.where(coins, 2.0, -1.0), scores)
        wrong += one_run(scores, coins, delta=delta).lower_bound > epsilon
    assert wrong <= stats.binom.ppf(0.9999, runs, 0.05)


@pytest.mark.parametrize(("epsilon", "share"), [(0.5, 0.7), (1.0, 0.85), (2.0, 0.9), (4.0, 0.85)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_most_of_epsilon_is_found_for_randomised_response(epsilon, share, delta):
    coins, scores = randomised_response(10_000, epsilon, np.random.default_rng(3))
    found = one_run(scores, coins, delta=delta, claimed=epsilon)
    assert share * epsilon < found.lower_bound <= epsilon
    assert found.verdict == "consistent"


def test_abstaining_helps_if_most_scores_are_uninformative():
    rng = np.random.default_rng(4)
    coins = rng.random(10_000) < 0.5
    scores = rng.normal(size=10_000) + np.where(coins, 1, -1)
    few, all_of_them = one_run(scores, coins, delta=1e-6), one_run(scores, coins, delta=1e-6, guesses=10_000)
    assert few.guesses < 10_000
    assert few.lower_bound > all_of_them.lower_bound + 0.5
    assert few.tried == 7


def test_random_scores_prove_nothing():
    rng = np.random.default_rng(5)
    found = one_run(rng.normal(size=500), rng.random(500) < 0.5, delta=1e-5, claimed=0.1)
    assert found.lower_bound == 0
    assert not found.is_violation
    assert one_run(np.zeros(500), rng.random(500) < 0.5, delta=1e-5).lower_bound == 0


def test_a_model_that_reveals_everything_gives_the_largest_possible_bound():
    coins = np.random.default_rng(6).random(1000) < 0.5
    found = one_run(coins.astype(float), coins, delta=0.0, guesses=None, claimed=1.0)
    assert (found.correct, found.guesses, found.tried) == (1000, 1000, 5)
    assert found.lower_bound == pytest.approx(np.log(1 / (0.01 ** (-1 / 1000) - 1)))
    assert found.is_violation
    assert "VIOLATION" in str(found)


def test_guesses_are_split_as_asked():
    coins = np.array([True, True, False, True, False, False])
    scores = np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert one_run(scores, coins, delta=0.0, guesses=(2, 0)).correct == 2
    assert one_run(scores, coins, delta=0.0, guesses=(3, 1)).correct == 3
    assert one_run(scores, coins, delta=0.0, guesses=5).correct == 4
    assert one_run(scores, coins, delta=0.0).guesses == 6
    assert one_run([1.0], [True], delta=0.0).canaries == 1


# ------------------------------------------------------------------------------------------------- canaries


def test_canaries_are_orthogonal_with_full_norm_and_fair_coins():
    made = canaries(1000, norm=2.0, source=NoiseSource(0))
    gram = (made.rows @ made.rows.T).toarray()
    np.testing.assert_array_equal(gram, 4 * np.eye(1000))
    assert 430 < made.included.sum() < 570
    assert set(made.labels) == {0, 1}
    assert (made.labels != made.other_labels).all()
    assert (canaries(1000, source=NoiseSource(0)).included == made.included).all()
    assert (canaries(1000).included != canaries(1000).included).any()


@pytest.mark.parametrize("counterpart", ["opposite", "zero"])
def test_flipping_a_coin_replaces_one_record(counterpart):
    made = canaries(40, counterpart=counterpart, labels=["a", "b", "c"], source=NoiseSource(1))
    rows, labels = made.table()
    coins = made.included.copy()
    coins[7] = ~coins[7]
    other = type(made)(made.rows, made.labels, made.other_labels, coins, counterpart).table()
    different = (rows != other[0]).toarray().any(axis=1) | (labels != other[1])
    assert np.flatnonzero(different).tolist() == [7]
    assert rows.shape == other[0].shape == (40, 40)


def test_canaries_without_counterpart_are_left_out():
    made = canaries(40, counterpart="nothing", source=NoiseSource(1))
    rows, labels = made.table()
    assert rows.shape == (made.included.sum(), 40)
    assert len(labels) == made.included.sum()


# ------------------------------------------------------------------------------------------------- one fitted model


def data(n=300, classes=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) / 4
    return X, np.digitize(X[:, 0], [0, 0.2][: classes - 1])


PRIVATE = [
    PrivateLogisticRegression,
    PrivateLinearSVC,
    PrivateRidge,
    PrivateHuberRegressor,
]


@pytest.mark.parametrize("counterpart", ["opposite", "zero"])
@pytest.mark.parametrize("kind", PRIVATE)
def test_private_models_are_consistent_with_their_claims(kind, counterpart):
    X, y = data()
    for epsilon in (0.5, 4.0):
        found = one_run_linear(kind(epsilon), X, y, number=500, counterpart=counterpart, confidence=0.9999)
        assert found.claimed == pytest.approx(epsilon, rel=1e-3)
        assert not found.is_violation
        assert found.name == kind.__name__


@pytest.mark.parametrize("method", ["gradient", "iteration", "output", "objective", "minimiser"])
def test_every_method_is_consistent(method):
    X, y = data()
    model = PrivateLogisticRegression(2.0, method=method, alpha=1e-2)
    assert not one_run_linear(model, X, y, number=500, confidence=0.9999).is_violation


@pytest.mark.parametrize("counterpart", ["opposite", "zero"])
@pytest.mark.parametrize(
    "model", [LogisticRegression(C=1e6), Ridge(1e-3), LinearRegression(fit_intercept=False)], ids=repr
)
def test_models_without_noise_are_caught(model, counterpart):
    X, y = data()
    found = one_run_linear(
        model, X, y, number=500, counterpart=counterpart, delta=1e-6, claimed=1.0, source=NoiseSource(0)
    )
    assert found.is_violation
    assert found.lower_bound > 4
    unclaimed = one_run_linear(model, X, y, number=500, counterpart=counterpart, delta=1e-6, source=NoiseSource(0))
    assert unclaimed.lower_bound == found.lower_bound
    assert "nothing is claimed" in unclaimed.verdict


def test_too_little_noise_is_caught():
    """A model trained with epsilon 30 claims an epsilon of 0.5."""
    X, y = data()
    model = PrivateLogisticRegression(30.0, 1e-6, fit_intercept=False, random_state=0)
    found = one_run_linear(model, X, y, number=1000, claimed=0.5, source=NoiseSource(0))
    assert found.is_violation
    assert not one_run_linear(model, X, y, number=1000, source=NoiseSource(0)).is_violation


def test_an_opposite_counterpart_shows_more_than_a_row_of_zeros():
    X, y = data()
    model = PrivateLogisticRegression(8.0, 1e-6, fit_intercept=False, random_state=0)
    bounds = [
        one_run_linear(model, X, y, number=2000, counterpart=kind, source=NoiseSource(0)).lower_bound
        for kind in ("opposite", "zero")
    ]
    assert bounds[0] > 1.5 * bounds[1] > 0


def test_several_classes_text_labels_and_sparse_rows_can_be_audited():
    X, y = data(classes=3)
    words = np.array(["low", "mid", "top"])[y]
    for counterpart in ("opposite", "zero"):
        found = one_run_linear(
            LogisticRegression(C=1e6), sparse.csr_matrix(X), words, number=300, counterpart=counterpart, delta=1e-6
        )
        assert found.correct > 0.9 * found.guesses
        assert not one_run_linear(
            PrivateLogisticRegression(1.0), X, words, number=300, counterpart=counterpart, confidence=0.9999
        ).is_violation


def test_another_delta_is_compared_with_the_epsilon_at_that_delta():
    X, y = data()
    found = one_run_linear(PrivateLogisticRegression(2.0, 1e-6), X, y, number=100, delta=1e-3)
    assert found.delta == 1e-3
    assert found.claimed < 1.9


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [1.0, float("nan"), 0.0]}, "scores must be finite"),
        ({"scores": []}, "at least one number"),
        ({"scores": [1.0, 2.0]}, "one bool per score, 2 in total"),
        ({"included": [1, 0, 1]}, "one bool per score"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"delta": float("nan")}, "delta must be finite"),
        ({"confidence": 0.0}, "confidence must lie in"),
        ({"guesses": 4}, "at most the number of canaries, 3"),
        ({"guesses": 0}, "guesses must be at least 1"),
        ({"guesses": (2, 2)}, "between 1 and the number of canaries, 3"),
        ({"guesses": (0, 0)}, "between 1 and"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    fields = {"scores": [1.0, 2.0, 3.0], "included": [True, False, True], "delta": 1e-5, **change}
    with pytest.raises(ValueError, match=message):
        one_run(fields.pop("scores"), fields.pop("included"), **fields)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="must satisfy 0 <= correct <= guesses <= canaries"):
        p_value(5, 4, 10, 1.0, 0.0)
    with pytest.raises(ValueError, match="must satisfy 0 <= correct <= guesses <= canaries"):
        p_value(1, 4, 3, 1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 0}, "number must be at least 1"),
        ({"norm": -1.0}, "norm must be positive"),
        ({"labels": [1]}, "at least two labels, all different"),
        ({"labels": [1, 1]}, "at least two labels, all different"),
        ({"counterpart": "half"}, "counterpart must be"),
    ],
)
def test_impossible_canaries_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        canaries(**{"number": 10, **change})


def test_models_that_cannot_be_audited_are_refused():
    X, y = data()
    with pytest.raises(ValueError, match="has no guarantee"):
        one_run_linear(LogisticRegression(), X, y, number=20)
    with pytest.raises(TypeError, match="has no coef_"):
        one_run_linear(KNeighborsClassifier(), X, y, number=20, delta=1e-5)
    with pytest.raises(ValueError, match=r"replace-one adjacency.*Use counterpart='opposite' or 'zero'"):
        one_run_linear(PrivateLogisticRegression(), X, y, number=20, counterpart="nothing")
    with pytest.raises(ValueError, match="the same length"):
        one_run_linear(LogisticRegression(), X, y[:5], number=20, delta=1e-5)
    with pytest.raises(ValueError, match="finite numbers"):
        one_run_linear(LogisticRegression(), X * np.nan, y, number=20, delta=1e-5)


def test_counterparts_are_refused_under_add_or_remove():
    class Promised(LogisticRegression):
        def fit(self, X, y):
            super().fit(X, y)
            event = ApproximateRelease(1.0, 1e-5)
            self.guarantee_ = Guarantee.of(event, Adjacency.ADD_OR_REMOVE, 1e-5, released="weights")
            return self

    X, y = data()
    for counterpart in ("opposite", "zero"):
        with pytest.raises(ValueError, match=r"add-or-remove adjacency.*Use counterpart='nothing'"):
            one_run_linear(Promised(), X, y, number=20, counterpart=counterpart)
    assert one_run_linear(Promised(C=1e6), X, y, number=500, counterpart="nothing").is_violation


def test_a_result_can_be_written_as_json():
    found = OneRun(0.5, 1e-5, 0.95, 100, 50, 40, 3, 1.0, "model")
    fields = json.loads(json.dumps(found.to_dict()))
    assert fields["lower_bound"] == 0.5
    assert fields["is_violation"] is False
    assert "40 of 50 guesses were right (80.0%), with 100 canaries; 3 choices of the number of guesses" in str(found)
