import pytest
import torch

from privet.federated.engines.thread_limit import one_thread


def test_the_number_of_threads_is_restored_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(OSError, match="gone"), one_thread():
            assert torch.get_num_threads() == 1
            raise OSError("gone")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
