"""What guarantees and models show in a notebook, and their plots."""

import numpy as np
import pytest
import samples
from sklearn import config_context

from privet import PrivateLogisticRegression
from privet.privacy import Adjacency, Guarantee
from privet.privacy.events import GaussianRelease, Noiseless

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib: install the extra report")
from matplotlib.figure import Figure  # noqa: E402


def guarantee(event=None):
    event = GaussianRelease(0.5) if event is None else event
    return Guarantee.of(event, Adjacency.REPLACE_ONE, 1e-6, released="a <noisy> sum")


def test_a_guarantee_shows_its_figures_and_escapes_its_words():
    shown = guarantee()._repr_html_()
    assert "differential privacy for each record" in shown
    assert "at most 59.9" in shown  # Phi(mu / 2) = 0.5987, rounded up
    assert "a &lt;noisy&gt; sum" in shown
    assert "<noisy>" not in shown


def test_a_release_without_noise_shows_that_there_is_no_privacy():
    shown = guarantee(Noiseless())._repr_html_()
    assert "No differential privacy" in shown
    assert "coin toss" not in shown


def test_an_estimator_shows_the_diagram_of_scikit_learn_and_its_guarantee_after_a_fit():
    model = PrivateLogisticRegression(1.0, delta=1e-6)
    before = model._repr_html_()
    assert "sk-top-container" in before
    assert "privet-guarantee" not in before
    model.fit(samples.np.random.default_rng(0).normal(size=(100, 3)) / 4, np.arange(100) % 2)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "sk-top-container" in shown
        assert "differential privacy for each record" in shown
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")


def test_a_table_model_shows_its_guarantee():
    shown = samples.table_model()._repr_html_()
    assert "TableModel of PrivateLogisticRegression" in shown
    assert "At most" in shown or "at most" in shown


def test_an_unfitted_table_model_shows_its_name():
    from privet.linear import TableModel

    assert TableModel(samples.SCHEMA, PrivateLogisticRegression())._repr_html_() == "<p>TableModel</p>"


def test_the_plot_of_a_guarantee_is_its_trade_off_curve():
    promise = guarantee()
    curve, guess = promise.plot().lines
    fpr, tpr = curve.get_data()
    assert np.allclose(tpr, promise.tpr(fpr), rtol=0, atol=2e-3)
    assert guess.get_label() == "guessing"
    ax = Figure().subplots()
    assert promise.plot(ax) is ax


@pytest.mark.parametrize("method", ["output", "gradient"])
def test_the_plot_of_a_model_shows_its_effects_and_their_noise_if_it_is_known(method):
    model = samples.table_model(method=method)
    ax = model.plot()
    assert len(ax.patches) == 3
    assert ("not known" in ax.get_xlabel()) == (method == "gradient")
    assert bool(ax.collections) == (method == "output")
    assert model.estimator.plot(Figure().subplots()).patches


def test_an_unfitted_model_cannot_be_drawn():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        PrivateLogisticRegression().plot()
