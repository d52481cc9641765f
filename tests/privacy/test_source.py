"""Each kind of draw of a source: its law, its arguments, and what an audit sees of it."""

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from privet.privacy import NoiseSource
from privet.privacy.noise import source as noise
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.normals import ERROR
from privet.privacy.noise.reals import LazyNorm
from privet.privacy.noise.watch import Claim, watching

CHANCE = 1e-6


# --- orders and points ----------------------------------------------------------------------------------------------


def test_all_orders_are_equally_likely():
    source = NoiseSource(1)
    counts = {}
    for _ in range(2400):
        order = source.permutation(4)
        assert order.dtype == np.int64
        counts[tuple(order.tolist())] = counts.get(tuple(order.tolist()), 0) + 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > CHANCE
    assert source.permutation(1).tolist() == [0]


def test_a_point_is_chosen_by_the_score_of_its_run():
    source, starts, scores, end, scale = NoiseSource(2), np.array([-2, 0, 5]), np.array([0.5, -0.4, 1.0]), 7, 0.8
    points = [source.top_point(starts, scores, end, scale) for _ in range(1500)]
    assert isinstance(points[0], int)
    weights = np.exp(np.repeat(scores, [2, 5, 2]) / scale)
    counts = np.bincount(np.array(points) + 2, minlength=9)
    assert counts.size == 9
    assert stats.chisquare(counts, 1500 * weights / weights.sum()).pvalue > CHANCE


def test_one_index_is_chosen_unless_another_number_is_asked_for():
    assert NoiseSource(3).top(np.zeros(9), 1.0).size == 1
    assert NoiseSource(3).top(np.zeros(9), 1.0, 4).size == 4


# --- lattice noise --------------------------------------------------------------------------------------------------


def test_lattice_noise_is_added_to_integers_and_has_its_law():
    law, source = LatticeLaw(4, 2, 2), NoiseSource(4)
    values = np.arange(20_000, dtype=np.int64) * 1000
    noise = source.add_lattice(values, law) - values
    counts = np.bincount(noise + law.reach, minlength=2 * law.reach + 1)
    assert counts.size == 2 * law.reach + 1
    expected = law.masses() * noise.size
    assert expected.min() > 5
    assert stats.chisquare(counts, expected).pvalue > CHANCE
    with pytest.raises(ValueError, match="size must be at least 1"):
        source.lattice(0, law)


# --- the grid of K-norm noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "step"), [(2, 2.0**-20), (3, 2.0**-19), (14, 2.0**-19), (15, 2.0**-18)])
def test_the_grid_of_k_norm_noise_follows_the_root_of_the_dimension_plus_one(size, step):
    """The step is 2^-20 times sqrt(size + 1), rounded down to a power of two."""
    source = NoiseSource(12)
    released = np.array([source.add_k_norm(np.zeros(size), 1.0) for _ in range(20)]) / step
    assert released.shape == (20, size)
    assert np.array_equal(released, np.rint(released))
    assert {int(number) % 2 for number in released.ravel()} == {0, 1}


# --- approximate draws for a random linear term ---------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 4.0])
def test_approximate_gaussian_draws_have_their_standard_deviation(scale):
    drawn, _ = NoiseSource(5).real_gaussian((100, 50), scale)
    assert drawn.shape == (100, 50)
    assert stats.kstest(drawn.ravel(), stats.norm(scale=scale).cdf).pvalue > CHANCE


@pytest.mark.parametrize("d", [1, 3])
def test_approximate_k_norm_draws_have_the_radius_of_their_law(d):
    source, scale = NoiseSource(6), 0.3
    drawn = np.array([source.real_k_norm((d,), scale)[0] for _ in range(4000)])
    assert stats.kstest(np.linalg.norm(drawn, axis=1), stats.gamma(d, scale=scale).cdf).pvalue > CHANCE
    assert stats.binomtest(int(np.sum(drawn[:, 0] > 0)), 4000).pvalue > CHANCE


@pytest.mark.parametrize("d", [1, 40])
@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_the_error_of_approximate_draws_is_bounded_as_in_the_proof_and_not_much_larger(d, scale):
    """The bounds are those of docs/proofs.md, section 26."""
    values, error = NoiseSource(7).real_gaussian((d,), scale)
    least = scale * ERROR * math.sqrt(d) + 2.0**-53 * float(np.linalg.norm(values))
    assert least <= error <= 1.2 * least
    values, error = NoiseSource(7).real_k_norm((d,), scale)
    stream = NoiseSource(7)._normals()
    norm, direction = (float(np.linalg.norm(stream.take(size).spend())) for size in (d + 1, d))
    norm_error = ERROR * math.sqrt(d + 1) + 2.0**-51 * norm
    least = scale * (norm_error * direction + ERROR * math.sqrt(d) * norm)
    assert 2 * least <= error <= 2.5 * least  # twice, which covers the rounding of products


def test_approximate_k_norm_draws_lie_within_their_error_of_the_ideal_draw():
    values, error = NoiseSource(8).real_k_norm((30,), 0.7)
    stream = NoiseSource(8)._normals()
    others, drawn = stream.take(31), stream.take(30)
    norm = LazyNorm([others.real(position) for position in range(31)]).bounds()
    squares = Fraction(0)
    for position, value in enumerate(values):
        ends = [one * other for one in norm for other in drawn.real(position).bounds()]
        squares += max(abs(Fraction(value) - Fraction(0.7) * end) for end in ends) ** 2
    assert squares < Fraction(error) ** 2


@pytest.mark.parametrize("draw", ["real_gaussian", "real_k_norm"])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_approximate_draws_need_a_positive_scale(draw, scale):
    with pytest.raises(ValueError, match="must be"):
        getattr(NoiseSource(1), draw)((2,), scale)


# --- draws in advance -----------------------------------------------------------------------------------------------


def test_more_prepared_draws_than_values_are_refused():
    source = NoiseSource(9)
    prepared = source.normals(11, 2.0)
    with pytest.raises(ValueError, match="11 draws were prepared for 10 values"):
        source.add_gaussian(np.zeros(10), 2.0, prepared=prepared)
    assert source.add_gaussian(np.zeros(11), 2.0, prepared=prepared).all()  # none of them was used before


def test_prepared_draws_are_made_for_the_grid_on_which_they_are_used():
    source = NoiseSource(9)
    prepared = source.normals(3000, 2.0, 0.25)
    released = source.add_gaussian(np.zeros(3000), 2.0, 0.25, prepared)
    np.testing.assert_array_equal(released, NoiseSource(9).add_gaussian(np.zeros(3000), 2.0, 0.25))


def test_a_limited_number_of_draws_is_made_in_advance(monkeypatch):
    monkeypatch.setattr(noise, "_MOST_PREPARED", 1000)
    assert len(NoiseSource(1).normals(999, 1.0)) == 999
    assert len(NoiseSource(1).normals(10**12, 1.0)) == 1000


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ((-1, 1.0), "size must"),
        ((3, 0.0), "std must"),
        ((3, 1.0, 0.3), "power of two"),
        ((3, 1.0, 2.0**-43), "too fine"),
    ],
)
def test_impossible_preparations_are_refused(arguments, cause):
    with pytest.raises(ValueError, match=cause):
        NoiseSource(1).normals(*arguments)


@pytest.mark.parametrize("kind", ["prepared by another source", "of another stream"])
def test_draws_of_another_stream_are_not_used(kind):
    source, other = NoiseSource(10), NoiseSource(10 if kind == "of another stream" else 11)
    released = source.add_gaussian(np.zeros(20), 1.0, prepared=other.normals(20, 1.0))
    np.testing.assert_array_equal(released, NoiseSource(10).add_gaussian(np.zeros(20), 1.0))
    assert other.normals(1, 1.0).stream is not source._normals()


# --- releases without noise -----------------------------------------------------------------------------------------


def test_a_release_without_noise_is_a_copy_of_finite_values():
    values = np.array([[0.1, 2.0]])
    released = NoiseSource(1).without_noise(values)
    np.testing.assert_array_equal(released, values)
    released[:] = 9
    assert values.tolist() == [[0.1, 2.0]]
    for bad in (np.array([math.nan]), np.array([0.0, math.inf])):
        with pytest.raises(ValueError, match="finite numbers only"):
            NoiseSource(1).without_noise(bad)
    with pytest.raises(ValueError, match="float32 or float64"):
        NoiseSource(1).without_noise(np.array([1]))


# --- what a guarantee and an audit see ------------------------------------------------------------------------------


def test_the_origin_of_secure_noise_is_a_detail_and_a_seed_is_not():
    assert NoiseSource().assumption().is_detail
    assert not NoiseSource(1).assumption().is_detail
    assert not NoiseSource().is_seeded
    assert NoiseSource(0).is_seeded
    assert NoiseSource(1, "training").purpose == "training"
    assert NoiseSource(1).purpose == ""


class Witness:
    """A watcher that keeps every request, and draws as if it were not there."""

    def __init__(self):
        self.seen = []

    def sample(self, source, kind, n, draw):
        self.seen.append((source, kind, n))
        return draw()

    def release(self, request, draw):
        self.seen.append(request)
        return draw()

    tilt = release


VALUES, CLAIM, OBJECTIVE = np.array([1.0, 2.0]), Claim(0.5, n=3), SimpleNamespace(gradient=None)
LAW = LatticeLaw(4, 2, 2)
RELEASES = {
    "Gaussian noise": (lambda s: s.add_gaussian(VALUES, 2.0, claim=CLAIM), VALUES, 2.0),
    "K-norm noise": (lambda s: s.add_k_norm(VALUES, 2.0, CLAIM), VALUES, 2.0),
    "no noise": (lambda s: s.without_noise(VALUES, CLAIM), VALUES, 0.0),
    "lattice noise": (lambda s: s.add_lattice(np.array([3]), LAW, CLAIM), [3], LAW.std),
    "choice": (lambda s: s.top(VALUES, 2.0, 1, CLAIM), VALUES, 2.0),
    "choice of a point": (lambda s: s.top_point(np.array([0, 4]), VALUES, 9, 2.0, CLAIM), ([0, 4], VALUES), 2.0),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_an_audit_sees_each_release_with_its_values_scale_and_claim(kind):
    release, values, scale = RELEASES[kind]
    source, witness = NoiseSource(1), Witness()
    expected = release(NoiseSource(1))
    with watching(witness):
        np.testing.assert_array_equal(release(source), expected)
    (request,) = witness.seen
    assert (request.source, request.kind, request.scale, request.claim) == (source, kind, scale, CLAIM)
    assert request.objective is None
    if kind == "choice of a point":
        assert [list(each) for each in request.values] == [list(each) for each in values]
    else:
        np.testing.assert_array_equal(request.values, values)


@pytest.mark.parametrize(("draw", "kind"), [("real_gaussian", "Gaussian noise"), ("real_k_norm", "K-norm noise")])
def test_an_audit_sees_each_linear_term_with_its_objective(draw, kind):
    source, witness = NoiseSource(1), Witness()
    with watching(witness):
        values, error = getattr(source, draw)((3,), 2.0, CLAIM, OBJECTIVE)
    assert (values.shape, error > 0) == ((3,), True)
    (request,) = witness.seen
    assert (request.source, request.kind, request.values, request.scale) == (source, kind, None, 2.0)
    assert request.claim is CLAIM
    assert request.objective is OBJECTIVE


@pytest.mark.parametrize(
    ("draw", "kind", "n"),
    [
        (lambda s: s.index(np.ones(7)), "index", 7),
        (lambda s: s.below(9), "number", 9),
        (lambda s: s.poisson_batch(30, 0.5), "Poisson batch", 30),
        (lambda s: s.fixed_batch(30, 4), "batch", 30),
        (lambda s: s.permutation(12), "order", 12),
    ],
)
def test_an_audit_sees_each_sample_with_the_number_of_units(draw, kind, n):
    source, witness = NoiseSource(1), Witness()
    expected = draw(NoiseSource(1))
    with watching(witness):
        np.testing.assert_array_equal(draw(source), expected)
    assert witness.seen == [(source, kind, n)]


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
def test_orders_need_a_number_of_units(n):
    with pytest.raises(ValueError, match="n must"):
        NoiseSource(1).permutation(n)
