"""Pictures of additive models: every curve is drawn, with its band, in every form."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from privet import PrivateAdditiveClassifier, PrivateLogisticRegression, TableModel, TableSchema
from privet.cli import main
from privet.report.shapes import chart_of, charts_of, shapes_of, write_plot


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    age, sex = generator.uniform(0, 100, 600), generator.choice(["f", "m & others"], 600)
    state = np.where(np.abs(age - 50) + generator.normal(0, 9, 600) > 25, "ill", "well")
    frame = pd.DataFrame({"age": age, "sex": sex, "state": state})
    schema = TableSchema.from_options(bounds=["age=0:100"], levels=["sex=f,m & others"], target="state")
    return TableModel(schema, PrivateAdditiveClassifier(4.0, pairs=[("age", "sex")], random_state=0)).fit(frame)


def test_charts_are_valid_and_in_the_order_of_importance(table):
    shapes = shapes_of(table)
    assert [shape.importance for shape in shapes] == sorted((each.importance for each in shapes), reverse=True)
    charts = charts_of(table)
    assert [title for title, _ in charts] == [shape.name for shape in shapes]
    for _, svg in charts:
        ET.fromstring(svg)


def test_the_band_of_a_curve_has_two_standard_deviations_on_each_side(table):
    shape = table.estimator.shapes_["age"]
    low, high = shape.band()
    assert np.allclose(high - shape.values, 2 * shape.noise) and np.allclose(shape.values - low, 2 * shape.noise)
    (points,) = re.findall(r'<polygon class="area" points="([^"]*)"', chart_of(shape))
    assert len(points.split()) == 4 * len(shape.values)


def test_pictures_are_written_in_three_forms(table, tmp_path):
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("html", b"<!DOCTYPE")):
        write_plot(table, tmp_path / f"curves.{ending}")
        assert (tmp_path / f"curves.{ending}").read_bytes().startswith(start)
    text = (tmp_path / "curves.html").read_text(encoding="utf-8")
    assert text.count("<figure>") == 3 and "http" not in text.replace("http://www.w3.org", "")
    with pytest.raises(ValueError, match="must end with"):
        write_plot(table, tmp_path / "curves.gif")


def test_one_curve_can_be_drawn_by_its_name(table):
    assert table.estimator.plot(column="age").get_xlabel() == "age"
    assert table.estimator.plot(column="age").get_ylabel() == "score of 1"
    assert table.plot().get_xlabel()
    assert all("score of well" in svg for _, svg in charts_of(table))  # which class a rising curve means
    with pytest.raises(ValueError, match="no curve 'town'"):
        table.estimator.plot(column="town")


def test_the_command_draws_saved_models_and_refuses_others(table, tmp_path, monkeypatch, capsys):
    table.save(tmp_path / "model.json")
    linear = PrivateLogisticRegression(random_state=0).fit(np.eye(4), [0, 1, 0, 1])
    linear.save(tmp_path / "linear.json")
    for name, output, code, words in (
        ("model.json", "curves.svg", 0, "3 curves"),
        ("linear.json", "other.svg", 2, "has no curves"),
        ("model.json", "curves.gif", 2, "must end with"),
    ):
        monkeypatch.setattr("sys.argv", ["privet", "plot", str(tmp_path / name), "-o", str(tmp_path / output)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == code
        captured = capsys.readouterr()
        assert words in captured.out + captured.err
        assert (tmp_path / output).exists() == (code == 0)


def test_the_report_shows_the_curves(table, tmp_path):
    text = table.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Curves" in text and 'class="area"' in text
