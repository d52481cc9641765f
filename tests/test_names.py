"""The names that the command line knows without imports are those of the library."""

import pytest

from privet import linear, names
from privet.linear.methods import METHODS
from privet.linear.methods.iteration import SECRETS
from privet.linear.svc import HINGES


def test_the_models_have_the_names_of_their_classes():
    assert {name: kind.__name__ for name, kind in linear.MODELS.items()} == names.MODELS
    assert set(sum(names.BY_TARGET.values(), ())) <= set(names.MODELS)


def test_each_method_is_a_file_of_its_name():
    assert names.methods() == tuple(METHODS)
    with pytest.raises(ValueError, match="'gradient'"):
        names.method_value("method", "_base")


def test_settings_belong_to_the_models_that_have_them():
    for setting, users in names.USERS.items():
        assert {name for name, kind in linear.MODELS.items() if setting in kind().get_params()} == set(users)


def test_choices_are_those_of_the_library():
    assert tuple(SECRETS) == names.SECRETS
    assert tuple(HINGES) == names.HINGES


def test_every_setting_with_a_range_is_a_parameter_of_a_model():
    assert set(names.PARAMETERS) <= {name for kind in linear.MODELS.values() for name in kind().get_params()}
