"""The error for a name that is not there."""

from __future__ import annotations

import pytest

from fad.errors.missing_names import no_name


def test_what_it_says():
    assert (
        str(no_name("fad", "sinn", "", ["sin", "cos"])) == "fad has no 'sinn': did you mean 'sin'?"
    )
    assert str(no_name("fad", "x", "write y", ["xx"])) == "fad has no 'x': write y"
    assert str(no_name("fad", "quite_other", "", ["sin"])) == "fad has no 'quite_other'"


def test_the_error_knows_its_name():
    with pytest.raises(AttributeError) as caught:
        raise no_name("fad", "x", "")
    assert caught.value.name == "x"
