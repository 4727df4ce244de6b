"""Profiles: what they report is what the program did, and nothing is left behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import profile, record_function
from fad.core.primitive import Primitive
from fad.errors import ArgumentError
from fad.profiling.collector import collector
from fad.profiling.events import Event
from fad.tape.anomaly import mode
from fad.tape.recorder import RootLevel


def leaf(data: Any) -> Any:
    return fad.tensor(data, requires_grad=True)


def named(p: profile, kind: str) -> list[str]:
    """The names of the events of one kind, in order."""
    return [e.name for e in p.events() if e.kind == kind]


def is_clean() -> bool:
    """Whether there is no observer."""
    functions = (Primitive.execute, RootLevel.process, fad.Tensor.__getitem__)
    replaced = any([hasattr(f, "__wrapped__") for f in functions])
    return collector() is None and mode.observer is None and not mode.nodes and not replaced


# Forward and backward


def test_forward_and_backward_have_one_sequence_number(replay_mode: None) -> None:
    x = leaf([1.0, 2.0])
    with profile() as p:
        y = fnp.sin(x) * x
        number, thread = (
            y.grad_fn.sequence_nr,
            y.grad_fn.thread_id,
        )  # which is read, so it is recorded
        y.sum().backward()
    found = {f.name: (f, ran) for f, ran in p.pairs()}
    forward, ran = found["multiply"]
    assert forward.sequence == (number, thread) == (y.grad_fn._sequence_nr(), forward.thread)
    for name, (forward, ran) in found.items():
        for e in ran:
            assert e.name == f"{name.capitalize()}Backward" and e.sequence == forward.sequence
    assert {"sin", "multiply"} <= set(found) and is_clean()


def test_each_node_that_ran_is_paired() -> None:
    x = leaf(np.linspace(0.0, 1.0, 4, dtype=np.float32))
    with autograd.compiled(False), profile() as p:
        y = x
        for _ in range(5):
            y = fnp.sin(y) * x
        y.sum().backward()
    pairs = p.pairs()
    assert [f.name for f, _ in pairs] == ["sin", "multiply"] * 5 + ["sum"]
    assert all([len(ran) == 1 for _, ran in pairs])
    rows = {(r.name, r.kind): r for r in p.key_averages()}
    assert rows["multiply", "operation"].calls == rows["MultiplyBackward", "backward"].calls == 5
    assert rows["AccumulateGrad", "backward"].calls == 1
    assert rows["sin", "operation"].backward == rows["SinBackward", "backward"].total > 0


def test_a_second_pass_is_paired_too() -> None:
    x = leaf(2.0)
    with autograd.compiled(False), profile() as p:
        y = x * x
        y.backward(retain_graph=True)
        y.backward()
    ((forward, ran),) = p.pairs()
    assert forward.name == "multiply" and [e.name for e in ran] == ["MultiplyBackward"] * 2


def test_counts_are_those_of_pytorch(torch: Any) -> None:
    data = np.linspace(0.1, 1.0, 6, dtype=np.float32)

    def program(x: Any, sin: Any) -> None:
        y = x
        for _ in range(4):
            y = sin(y) * x
        y.sum().backward()

    with torch.autograd.profiler.profile() as theirs:
        program(torch.tensor(data, requires_grad=True), torch.sin)
    counts = {e.key: e.count for e in theirs.key_averages()}
    with autograd.compiled(False), profile() as p:
        program(leaf(data), fnp.sin)
    rows = {(r.name, r.kind): r.calls for r in p.key_averages()}
    assert rows["sin", "operation"] == counts["SinBackward0"] == 4
    assert rows["SinBackward", "backward"] == counts["SinBackward0"]
    assert rows["MultiplyBackward", "backward"] == counts["MulBackward0"]
    sequence = [e.sequence_nr for e in theirs.function_events if e.name == "SinBackward0"]
    assert len(sequence) == len({f.sequence for f, _ in p.pairs() if f.name == "sin"})


def test_a_recorded_backward_pass_has_forward_operations() -> None:
    x = leaf(0.5)
    with autograd.compiled(False), profile() as p:
        (g,) = autograd.grad(fnp.sin(x), x, create_graph=True)
        g.backward()
    inside = [e for e in p.events() if e.parent is not None and e.parent.name == "SinBackward"]
    assert "sin_vjp" in [e.name for e in inside]
    (vjp,) = [ran for f, ran in p.pairs() if f.name == "sin_vjp"]
    assert [e.name for e in vjp] == ["SinVjpBackward"]


# Blocks


def test_ranges_nest_and_name_what_is_in_them() -> None:
    x = fad.tensor([1.0, 2.0])

    @record_function("inner")
    def inner() -> Any:
        return x * x

    assert inner().tolist() == [1.0, 4.0]
    with profile() as p:
        with record_function("outer"):
            inner()
            inner()
            _ = x + x
    path = [(e.name, e.parent.name if e.parent else None) for e in p.events()]
    assert path == [
        ("outer", None),
        *[("inner", "outer"), ("multiply", "inner")] * 2,
        ("add", "outer"),
    ]
    outer = p.events()[0]
    assert outer.kind == "range" and outer.xla == 0 and outer.duration > outer.inner > 0


def test_an_exception_in_the_block_leaves_nothing_behind() -> None:
    x = fad.tensor([1.0, 2.0])
    with pytest.raises(ZeroDivisionError), profile() as p:
        with record_function("fails"):
            _ = x * x
            1 / 0
    assert is_clean() and {e.name: e.failed for e in p.events()} == {
        "fails": True,
        "multiply": False,
    }

    class Broken(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            raise KeyError("broken")

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(KeyError), profile() as p:
        Broken.apply(leaf([1.0]))
    assert is_clean() and [e.failed for e in p.events() if e.kind == "function"] == [True]
    assert "1, 1 failed" in p.table()
    with profile() as p:
        _ = x * x
    assert [e.parent for e in p.events()] == [None]


def test_a_hook_that_raises_ends_the_node() -> None:
    x = leaf([1.0, 2.0])
    y = fnp.sin(x)
    y.grad_fn.register_hook(lambda *grads: 1 / 0)
    with pytest.raises(ZeroDivisionError), profile() as p:
        y.sum().backward()
    assert is_clean() and [e.name for e in p.events() if e.failed] == ["SinBackward"]


def test_a_profile_in_a_profile_sees_its_own_block() -> None:
    x = fad.tensor([1.0, 2.0])
    with profile() as outer:
        _ = x + x
        with record_function("block"):
            with profile() as inner:
                _ = x * x
        _ = x - x
        assert not is_clean()
    names = [e.name for e in outer.events()]
    assert names == ["add", "block", "multiply", "subtract"] and is_clean()
    assert [e.name for e in inner.events()] == ["multiply"]
    (shared,) = inner.events()
    assert inner.outside() == pytest.approx(inner.duration - shared.duration, abs=1)


def test_a_profile_that_begins_in_an_operation() -> None:
    seen = []

    def hook(g: Any) -> None:
        with profile() as p:
            _ = g * 2.0
        seen.append(p)

    x = leaf([1.0, 2.0])
    y = fnp.sin(x)
    y.register_hook(hook)
    with profile() as outer:
        y.sum().backward()
    assert named(seen[0], "operation") == ["multiply"] and is_clean()
    (multiply,) = [e for e in outer.events() if e.name == "multiply"]
    assert multiply.parent is not None and multiply.parent.name == "SinBackward"
    assert seen[0].outside() >= 0 and seen[0].events()[0].parent is multiply.parent


def test_nothing_happens_in_the_block(tmp_path: Path) -> None:
    with profile() as p:
        pass
    assert p.events() == [] and p.pairs() == [] and p.key_averages() == []
    assert p.table().splitlines()[0].split() == [
        *"Name Kind Level Calls Total Python XLA Compile Made Saved Backward".split()
    ]
    for suffix in ("json", "txt"):
        p.save(tmp_path / f"p.{suffix}")
    assert str(p.memory()).startswith("peak 0 at 0 ms (-)") and repr(p).startswith(
        "<profile of 0 ev"
    )


def test_ten_thousand_operations() -> None:
    x = leaf([1.0, 2.0])
    with autograd.compiled(False), profile() as p:
        y = x
        for _ in range(3_333):
            y = y * 1.0001
        y.sum().backward()
    rows = {r.name: r.calls for r in p.key_averages()}
    assert rows["multiply"] == rows["multiply_vjp"] == rows["MultiplyBackward"] == 3_333
    assert len(p.pairs()) == 3_334 and len(p.table().splitlines()) < 20


def test_threads_are_seen_with_their_numbers() -> None:
    xs = [leaf([1.0 + k]) for k in range(3)]
    together = threading.Barrier(3)

    def work(x: Any) -> None:
        together.wait()
        with autograd.compiled(False):
            for _ in range(20):
                (fnp.sin(x) * x).sum().backward()

    with profile() as p:
        threads = [threading.Thread(target=work, args=(x,)) for x in xs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    by_thread: dict[int, list[Event]] = {}
    for e in p.events():
        by_thread.setdefault(e.thread, []).append(e)
    assert len(by_thread) == 3 and len({e.sequence for f, ran in p.pairs() for e in ran}) >= 3
    for thread, events in by_thread.items():
        assert all([e.parent is None or e.parent.thread == thread for e in events])
        forward = [e for e in events if e.sequence is not None and e.kind != "backward"]
        assert all([e.sequence is not None and e.sequence[1] == thread for e in forward])
    assert p.outside() == p.duration and is_clean()


def test_bad_arguments(tmp_path: Path) -> None:
    p = profile()
    with pytest.raises(RuntimeError, match="with profile"):
        p.table()
    assert repr(p) == str(p) == "<profile, not entered>"
    with p:
        pass
    with pytest.raises(RuntimeError, match="make one for each block"), p:
        pass
    assert is_clean()
    with pytest.raises(ArgumentError, match="expected one of own, total"):
        p.table(sort_by="size")
    with pytest.raises(ArgumentError, match=r"expected \.json"):
        p.save(tmp_path / "profile.html")
    assert list(tmp_path.iterdir()) == []
