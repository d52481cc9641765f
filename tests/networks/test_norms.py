import pytest
import torch

from privet.networks.norms import lengths


@pytest.mark.parametrize("odd", [float("nan"), 1e30, 0.0])
def test_the_norm_of_one_row_does_not_depend_on_other_rows(odd):
    values = torch.randn(3, 20_000, generator=torch.Generator().manual_seed(0))
    others = values.clone()
    others[1] = odd
    assert torch.equal(lengths(values)[[0, 2]], lengths(others)[[0, 2]])
