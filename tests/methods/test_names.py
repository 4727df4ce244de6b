"""The tables of methods: what stands in them is there."""

from __future__ import annotations

from fad.methods.names import COPIES, ELEMENTWISE, IN_PLACE_ALONE, METHODS, find, say


def test_each_name_stands_once_and_is_a_function() -> None:
    tables = [COPIES, ELEMENTWISE, IN_PLACE_ALONE, METHODS]
    assert len({name for t in tables for name in t}) == sum(map(len, tables))
    for where in {w for t in tables for w in t.values()}:
        assert callable(find(where)) and hasattr(find(where), "op"), where
        assert where[1] in say(where)
