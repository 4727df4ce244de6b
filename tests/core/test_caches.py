"""A bounded table: what is dropped, and what several threads put."""

from __future__ import annotations

from fad.core import caches


def test_the_least_recently_used_entry_is_dropped_first() -> None:
    cache = caches.Cache(2)
    for key in "ab":
        cache.put(key, key.upper())
    assert cache.get("a") == "A"
    cache.put("c", "C")
    assert cache.get("b") is None and cache.values() == ["A", "C"]
    cache.drop("a")
    assert cache.values() == ["C"]
    cache.clear()
    assert cache.get("c") is None and cache.values() == []


def test_the_first_value_of_a_key_is_kept() -> None:
    cache = caches.Cache()
    assert cache.put("a", 1) == 1
    assert cache.put("a", 2) == 1 == cache.get("a")


def test_a_table_that_is_full_is_emptied() -> None:
    table = caches.Table(2)
    assert [table.put(k, k) for k in "ab"] == ["a", "b"] and table.put("a", 1) == "a"
    assert table.put("c", 2) == 2 and table == {"c": 2}
