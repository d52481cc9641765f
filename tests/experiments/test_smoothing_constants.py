"""The constants of Laplacian smoothing are those that the paper prints."""

import json


def test_closed_forms_agree_with_sums_and_with_the_paper(opened, tmp_path):
    results = opened("smoothing_constants").main()
    assert json.loads((tmp_path / "results" / "smoothing_constants.json").read_text())["rows"] == results["rows"]
    assert len(results["rows"]) == 30
    assert all(row["off_sum"] < 1e-12 for row in results["rows"])
    assert all(row["off_paper"] < 5e-4 for row in results["rows"])  # the paper prints three digits
