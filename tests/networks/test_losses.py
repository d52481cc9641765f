import pytest

torch = pytest.importorskip("torch", reason="networks need torch: install the extra deep")

from torch import nn  # noqa: E402

from privet.networks import check_losses, per_example  # noqa: E402


def test_a_torch_loss_is_copied_without_its_average():
    loss = nn.MSELoss()
    unreduced = per_example(loss)
    assert unreduced(torch.zeros(3), torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert loss.reduction == "mean"


def test_a_callable_is_returned_unchanged():
    def loss(outputs, targets):
        return (outputs - targets).square()

    assert per_example(loss) is loss


@pytest.mark.parametrize("shape", [(), (4,), (3, 1)])
def test_losses_of_another_shape_are_rejected(shape):
    with pytest.raises(ValueError, match="one value per example"):
        check_losses(torch.zeros(shape), 3)
    check_losses(torch.zeros(3), 3)
