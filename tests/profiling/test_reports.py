"""What is made of a profile: tables, memory over time, traces for viewers, pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import profile, record_function
from fad.errors import ArgumentError
from fad.profiling.reports import Row, Rows, in_bytes, in_time


def leaf(data: Any) -> Any:
    return fad.tensor(data, requires_grad=True)


# Tables


def rows() -> Rows:
    made = [
        Row("a", "operation", "eager", calls=1, python=1_000, xla=2_000, made=5),
        Row("b", "backward", "grad", calls=30, python=9_000_000, compiling=3, failed=2),
        Row("c", "range", "", calls=2, total=2_500_000_000, made=1_500_000),
    ]
    return Rows(made)


def test_tables_are_sorted_and_cut() -> None:
    def names(*args: Any, **kwargs: Any) -> list[str]:
        return [line[0] for line in rows().table(*args, **kwargs).splitlines()[2:]]

    assert names() == names("own") == names("self_cpu_time_total") == ["b", "a", "c"]
    assert names("total") == names("cpu_time_total") == ["c", "a", "b"]
    assert names("calls") == names("count") == ["b", "c", "a"]
    assert names("made") == ["c", "a", "b"] and names("name") == ["a", "b", "c"]
    assert rows().table("name", row_limit=1).splitlines()[-1] == "... and 2 more rows"
    assert names(row_limit=-1) == names(row_limit=3) == ["b", "a", "c"]
    with pytest.raises(ArgumentError, match="expected one of own, total"):
        rows().table("size")


def test_columns_stand_below_each_other() -> None:
    lines = rows().table("name").splitlines()
    assert lines[0].split()[:4] == ["Name", "Kind", "Level", "Calls"]
    assert "30, 2 failed" in lines[3] and "2.5 s" in lines[4] and "1.5 MB" in lines[4]
    assert len({len(line) for line in lines if line.endswith(("0", "d", "-"))}) == 1


def test_times_and_bytes_in_words() -> None:
    assert [in_time(x) for x in (0, 250, 12_345, 3.21e6, 1e9, 4e12)] == [
        "0", "0.25 µs", "12.3 µs", "3.21 ms", "1 s", "4000 s"
    ]  # fmt: skip
    assert [in_bytes(x) for x in (0, 12, 999, 1_000, 2.34e6, 3e9, 10**12)] == [
        "0", "12 B", "999 B", "1 kB", "2.34 MB", "3 GB", "1e+03 GB"
    ]  # fmt: skip


# Bytes and memory


def test_bytes_made_and_saved() -> None:
    x = leaf(np.ones(100, np.float32))
    with autograd.compiled(False), profile() as p:
        y = fnp.exp(x)
        z = y * x
        z.sum().backward()
    rows = {(r.name, r.kind): r for r in p.key_averages()}
    assert rows["exp", "operation"].made == 400 and rows["exp", "operation"].saved == 400
    assert rows["multiply", "operation"].saved == 800 and rows["sum", "operation"].saved == 0
    assert rows["sum", "operation"].made == 4
    assert rows["multiply_vjp", "operation"].made == 800


def test_memory_over_time() -> None:
    x = fad.tensor(np.ones(1000, np.float32))
    with profile() as p:
        y = x + 1.0
        with record_function("block"):
            z = y * 2.0
            del y
        w = z - 1.0
    memory = p.memory()
    assert (memory.peak, memory.peak_name, memory.alive[-1]) == (8000, "multiply", 8000)
    assert memory.alive == [0, 4000, 8000, 4000, 8000] and set(memory.kept) == {0}
    ((name, begin, end),) = memory.blocks
    assert name == "block" and begin <= memory.peak_time <= end
    assert memory.times == sorted(memory.times) and w.shape == z.shape
    assert str(memory).splitlines()[0].startswith("peak 8 kB at ")


def test_what_graphs_keep_is_released_by_the_backward_pass(replay_mode: None) -> None:
    x = leaf(np.ones(2_000_000, np.float32))  # too large to be replayed
    with profile() as p:
        y = fnp.sin(fnp.exp(x)).sum()
        held = p.memory().kept[-1]
        y.backward()
    assert held == 8_000_000  # what exp gave and sin got is one array
    assert p.memory().kept[-1] == 0
    with profile() as p:
        y = fnp.sin(fnp.exp(x))
        assert p.memory().kept[-1] == 8_000_000
        del y
    assert p.memory().kept[-1] == 0 and p.memory().alive[-1] == 0


# Files


def test_the_trace_is_what_viewers_read(tmp_path: Path) -> None:
    x = leaf(np.ones(10, np.float32))
    with autograd.compiled(False), profile() as p:
        with record_function("step π"):
            (fnp.sin(x) * x).sum().backward()
    p.save(tmp_path / "trace.json")
    p.export_chrome_trace(str(tmp_path / "other"))
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert json.loads((tmp_path / "other").read_text(encoding="utf-8")) == trace
    events = trace["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in spans] == [e.name for e in p.events()] and spans[0][
        "name"
    ] == "step π"
    assert all([e["dur"] >= 0 and 0 <= e["ts"] <= p.duration / 1000 for e in spans])
    first = spans[0]
    for e in spans[1:]:  # all of it is inside of the range
        assert first["ts"] <= e["ts"] and e["ts"] + e["dur"] <= first["ts"] + first["dur"] + 1e-3
    starts = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == 3
    assert all([starts[k] < ends[k] for k in starts])
    counters = [e["args"] for e in events if e["ph"] == "C"]
    assert max([c["alive"] for c in counters]) == p.memory().peak
    by_name = {e["name"]: e["args"] for e in spans}
    assert by_name["sin"]["seq"] == by_name["SinBackward"]["seq"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} >= {"fad"}


def test_pictures_of_memory(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    x = leaf(np.ones(1000, np.float32))
    with profile() as p, record_function("a step"):
        (fnp.sin(x) * x).sum().backward()
    with profile() as empty:
        pass
    for found in (p, empty):
        for suffix, begins in (("svg", b"<?xml"), ("png", b"\x89PNG")):
            path = tmp_path / f"memory.{suffix}"
            found.save(path)
            assert path.read_bytes().startswith(begins)


def test_a_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with profile() as p:
        pass
    with pytest.raises(ImportError, match="pip install matplotlib, or print"):
        p.save(tmp_path / "memory.svg")
