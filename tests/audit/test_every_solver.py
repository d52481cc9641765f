"""Every solver, estimator and method is attacked, and none reveals more than it claims.

``PRIVET_AUDIT=long`` makes more runs with several seeds, and writes ``docs/results/audit.json``. It takes hours, so
each finished audit is kept in ``.audit_cache.json`` and is not repeated while the code that it depends on stays the
same. ``PRIVET_AUDIT_TIMES`` (default 4) and ``PRIVET_AUDIT_SEEDS`` (default 4) make it shorter. One seed after the
other is possible as well: with more seeds, only the new ones are run.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from privet import PrivateRidge, solvers
from privet.audit import Distinguished, from_outputs
from privet.audit.distinguish import summary
from privet.linear.methods import METHODS
from privet.privacy import NoiseSource
from privet.privacy.analyses.accounting import gaussian_mu
from privet.privacy.events import ApproximateRelease
from privet.solvers import Release

sys.path.insert(0, str(Path(__file__).parent))

from kept_audits import Kept
from scenarios import HAS_PARTIES, HAS_TORCH, methods_of, missing, required, scenarios, solvers_of

IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
SEEDS = range(int(os.environ.get("PRIVET_AUDIT_SEEDS", "4"))) if IS_LONG else range(1)
TIMES = int(os.environ.get("PRIVET_AUDIT_TIMES", "4")) if IS_LONG else 1
# With a quarter of the runs the limits are wider, so half of the share is enough, and small shares are not demanded.
DEMANDED = 0.8 if TIMES >= 4 else 0.5
LEAST_SEEN = 0.2 if TIMES >= 4 else 0.3
SCENARIOS = scenarios()
# 95 % for all audits together. Long audits have room for the usual four seeds, so that results can be kept.
CONFIDENCE = 1 - 0.05 / (len(SCENARIOS) * max(len(SEEDS), 4 if IS_LONG else 1))
KEPT = Kept(Path(__file__).parents[2] / ".audit_cache.json" if IS_LONG else None, TIMES, CONFIDENCE)
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "audit.json"


@pytest.fixture(scope="module")
def found():
    """Collect the results of all audits. The long suite writes them to a file."""
    audits: dict[str, list[Distinguished]] = {}
    yield audits
    if IS_LONG and len(audits) == len(SCENARIOS):
        write(audits)


def write(audits):
    medians = {name: sorted(each, key=lambda audit: audit.lower_bound)[len(each) // 2] for name, each in audits.items()}
    print("\n" + summary(medians))
    rows = {
        name: {
            "claimed": medians[name].claimed,
            "delta": medians[name].delta,
            "measured": float(np.mean([audit.lower_bound for audit in each])),
            "largest": max(audit.lower_bound for audit in each),
            "runs": medians[name].runs,
            "audits": len(each),
        }
        for name, each in audits.items()
    }
    fields = {
        "confidence_of_all": 0.95,
        "audits": sum(map(len, audits.values())),
        "audits_per_scenario": sorted({len(each) for each in audits.values()}),
        "times_the_runs_of_the_short_suite": TIMES,
        "false_alarms": 0,  # each audit was asserted, at a confidence corrected for their number
        "scenarios": rows,
    }
    RESULTS.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def audited(scenario, seed):
    """Return the audit of one scenario at 95 %, and the violations that it shows at the confidence of all audits."""
    source = NoiseSource(seed, purpose=scenario.name)
    runs = range(TIMES * scenario.runs)
    outputs = [np.array([np.ravel(scenario.mechanism(data, source)) for _ in runs]) for data in scenario.pair]
    claims = {id(claim): claim for claim in (scenario.guarantee, stated(scenario.guarantee))}.values()
    checks = [from_outputs(*outputs, guarantee=claim, confidence=CONFIDENCE, name=scenario.name) for claim in claims]
    reached = from_outputs(*outputs, guarantee=stated(scenario.guarantee), name=scenario.name)
    return reached, [str(check) for check in checks if check.is_violation]


def stated(guarantee):
    """Return the claim at its own delta only, if it is neither Gaussian nor pure.

    Such a claim can be compared with error rates at other deltas too, but there it is so small that a share of it says
    nothing.
    """
    if guarantee.delta == 0 or gaussian_mu(guarantee.event, guarantee.adjacency) is not None:
        return guarantee
    return replace(guarantee, event=ApproximateRelease(guarantee.epsilon, guarantee.delta))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_mechanism_reveals_more_than_it_claims_and_the_attack_finds_most_of_it(scenario, found):
    reached = []
    for seed in SEEDS:
        audit, violations = KEPT.get(scenario, seed) or KEPT.put(scenario, seed, *audited(scenario, seed))
        assert not violations, "\n".join(violations)
        reached.append(audit)
    found[scenario.name] = reached
    share = np.mean([audit.lower_bound for audit in reached]) / scenario.guarantee.epsilon
    demanded = DEMANDED * scenario.share if scenario.share >= LEAST_SEEN else 0.0
    assert share >= demanded, "\n".join(map(str, reached))


# ------------------------------------------------------------------------------------------------ completeness


def test_every_solver_estimator_and_method_has_a_scenario():
    assert missing(required(), SCENARIOS) == set()
    assert {("noisy_gradient_descent",), ("PrivateRidge", "output", "pure"), ("PrivateScaler", "moments")} < required()


def test_scenario_names_are_unique_and_small_shares_have_a_reason():
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert all(scenario.why for scenario in SCENARIOS if scenario.share < 0.5)


def test_a_solver_without_a_scenario_is_noticed():
    def brand_new_descent(problem) -> Release:
        raise NotImplementedError

    def helper(problem) -> float:
        raise NotImplementedError

    module = SimpleNamespace(__all__=["brand_new_descent", "helper", "Release"], Release=Release, helper=helper)
    module.brand_new_descent = brand_new_descent
    assert missing(solvers_of(module), SCENARIOS) == {("brand_new_descent",)}


def test_a_solver_with_its_annotation_in_quotes_is_noticed():
    def quoted(problem) -> "Release":
        raise NotImplementedError

    assert solvers_of(SimpleNamespace(__all__=["quoted"], quoted=quoted)) == {("quoted",)}


def test_an_estimator_or_a_method_without_a_scenario_is_noticed(monkeypatch):
    class PrivateNovelty(PrivateRidge):
        pass

    kinds = {"PrivateRidge": PrivateRidge, "PrivateNovelty": PrivateNovelty}
    lacking = missing(methods_of(kinds.values()), SCENARIOS)
    assert {name for name, *_ in lacking} == {"PrivateNovelty"}
    monkeypatch.setitem(METHODS, "novel", replace(METHODS["gradient"], name="novel"))
    assert missing(methods_of([PrivateRidge]), SCENARIOS) == {("PrivateRidge", "novel")}


def test_a_sparse_solver_or_method_without_a_scenario_is_noticed(monkeypatch):
    kinds = {"PrivateSparseLogisticRegression", "PrivateSparseRegression"}
    methods = [name for name, method in METHODS.items() if method.is_sparse]
    assert {(kind, method) for kind in kinds for method in methods} < required()
    assert {("hard_threshold",), ("peeled_threshold",), ("student_of",)} < required()
    kept = [scenario for scenario in SCENARIOS if scenario.about != ("PrivateSparseRegression", "peeling")]
    assert missing(required(), kept) == {("PrivateSparseRegression", "peeling")}
    monkeypatch.setitem(METHODS, "novel", replace(METHODS["peeling"], name="novel"))
    assert missing(required(), SCENARIOS) == {(kind, "novel") for kind in kinds}


@pytest.mark.skipif(not HAS_TORCH, reason="deep networks need torch: install the extra deep")
def test_an_estimate_of_deep_networks_or_a_way_to_train_them_without_a_scenario_is_noticed():
    from deep_scenarios import entries_of, kinds_of, trainings_of

    from privet import deep
    from privet.deep.gradient_estimators import Fresh, GradientEstimator, Recursive

    class Novel(Fresh):
        pass

    class Draft(GradientEstimator):  # cannot be made yet
        pass

    def brand_new(model) -> deep.PrivateTraining:
        raise NotImplementedError

    assert {("make_private", "Fresh"), ("make_private", "Recursive")} <= required()
    assert {Fresh, Recursive, Novel} <= kinds_of(GradientEstimator)
    assert not {GradientEstimator, Draft} & kinds_of(GradientEstimator)
    assert missing(trainings_of(entries_of(deep), [Fresh, Recursive, Novel]), SCENARIOS) == {("make_private", "Novel")}
    module = SimpleNamespace(__all__=["brand_new", "RecursiveMomentum"], brand_new=brand_new, RecursiveMomentum=int)
    assert missing(trainings_of(entries_of(module), [Fresh]), SCENARIOS) == {("brand_new", "Fresh")}


@pytest.mark.skipif(not HAS_TORCH, reason="deep networks need torch: install the extra deep")
def test_a_removed_scenario_of_deep_networks_is_noticed():
    kept = [scenario for scenario in SCENARIOS if scenario.about != ("make_private", "Recursive")]
    assert missing(required(), kept) == {("make_private", "Recursive")}


@pytest.mark.skipif(not HAS_PARTIES, reason="several parties need MPyC: install the extra multiparty")
def test_a_method_of_several_parties_without_a_scenario_is_noticed():
    from multiparty_scenarios import methods_of as methods_of_parties

    async def joint_novelty(problem, aggregator) -> Release:
        raise NotImplementedError

    def local_novelty(problems) -> "Release":
        raise NotImplementedError

    def _private(problems) -> Release:
        raise NotImplementedError

    named = {each.__name__: each for each in (joint_novelty, local_novelty, _private)}
    novel = methods_of_parties([SimpleNamespace(__name__=__name__, missing=missing, Release=Release, **named)])
    assert novel == {("joint_novelty",), ("local_novelty",)}
    assert {("joint_gradient_descent",), ("joint_output_perturbation",), ("pathak",)} < required()
    kept = [scenario for scenario in SCENARIOS if scenario.about != ("joint_gradient_descent",)]
    assert missing(required(), kept) == {("joint_gradient_descent",)}


@pytest.mark.skipif(not HAS_TORCH, reason="federated rounds need torch: install the extra deep")
def test_a_way_to_train_over_clients_without_a_scenario_is_noticed():
    from federated_scenarios import trainings_of

    from privet.federated import FederatedResult
    from privet.privacy import Guarantee

    def brand_new(clients) -> FederatedResult:
        raise NotImplementedError

    def helper(clients) -> float:
        raise NotImplementedError

    class Coordinator:
        @property
        def guarantee(self) -> Guarantee:
            raise NotImplementedError

    class Starter:
        def start(self) -> FederatedResult:
            raise NotImplementedError

    named = {each.__name__: each for each in (brand_new, helper, Coordinator, Starter, FederatedResult)}
    novel = trainings_of([SimpleNamespace(__name__=__name__, **named)])
    assert missing(novel, SCENARIOS) == {("brand_new",), ("Coordinator",), ("Starter",)}
    assert {("simulate",), ("Server",)} < required()
    kept = [scenario for scenario in SCENARIOS if scenario.about != ("simulate",)]
    assert missing(required(), kept) == {("simulate",)}


def test_a_removed_scenario_is_noticed():
    kept = [scenario for scenario in SCENARIOS if scenario.about != ("random_round",)]
    assert missing(required(), kept) == {("random_round",)}


def test_the_solvers_found_are_those_that_release():
    names = {name for (name,) in solvers_of(solvers)}
    assert {"recursive_momentum", "adaptive_gradient_descent", "projected_sgd"} <= names
    assert not names & {"descent_of", "Problem", "Release", "Progress"}


def test_a_mechanism_with_too_little_noise_is_found_out():
    """The average of twenty runs has less than a quarter of the noise of one run."""
    honest = next(scenario for scenario in SCENARIOS if scenario.about == ("output_perturbation",))
    source = NoiseSource(0)
    outputs = [
        np.array([np.mean([honest.mechanism(data, source) for _ in range(20)], axis=0) for _ in range(200)])
        for data in honest.pair
    ]
    assert from_outputs(*outputs, guarantee=honest.guarantee, confidence=CONFIDENCE).is_violation
