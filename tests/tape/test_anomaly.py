"""Anomaly mode, in reverse and, beyond PyTorch, in the forward pass and in tangents; profiler names."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError, tracebacks
from fad.tape import anomaly


def the_guilty_line(x: Any) -> Any:
    return fnp.sqrt(x)


# Backward


def test_nan_in_a_gradient_names_node_output_and_line() -> None:
    x = leaf(0.0)
    with autograd.detect_anomaly():
        y = the_guilty_line(x) * 0.0
        with pytest.raises(GradientError) as caught:
            y.backward()
    text = str(caught.value)
    assert text.startswith("Function 'SqrtBackward' returned nan values in its 0th output. ")
    assert "Traceback of forward call that caused the error" in text
    assert "in the_guilty_line" in text and "return fnp.sqrt(x)" in text


def test_a_forward_traceback_has_the_frames_of_the_user_and_all_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = str(Path(fad.__file__).parent)
    for filtering, there in (("remove_frames", False), ("off", True)):
        monkeypatch.setattr(tracebacks, "filtering", filtering)
        x = leaf(0.0)
        with autograd.detect_anomaly():
            y = the_guilty_line(x)
            with pytest.raises(GradientError) as caught:
                (y * 0.0).backward()
        assert (library in str(caught.value)) is there
        assert library in "".join(y.grad_fn.metadata["traceback_"])


def test_nan_in_a_gradient_inside_grad_and_vmap() -> None:
    def f(x: Any) -> Any:
        return the_guilty_line(x) * 0.0

    with autograd.detect_anomaly():
        with pytest.raises(GradientError, match="'SqrtBackward' returned nan") as caught:
            fad.grad(f)(0.0)
        assert "in the_guilty_line" in str(caught.value)
        with pytest.raises(GradientError, match=r"0th output, in vmap lane 1, 3\."):
            fad.vmap(fad.grad(f))(jnp.array([1.0, 0.0, 2.0, 0.0]))
        nested = fad.vmap(fad.vmap(fad.grad(f)))
        with pytest.raises(GradientError, match=r"in vmap lane \(0, 1\), \(1, 0\)\."):
            nested(jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]))


def test_nan_of_a_hook_counts() -> None:
    x = leaf(1.0)
    with autograd.detect_anomaly():
        y = fnp.exp(x)
        y.grad_fn.register_hook(lambda i, o: (i[0] * float("nan"),))
        with pytest.raises(GradientError, match="'ExpBackward' returned nan values"):
            y.backward()


def test_nan_in_a_function_and_in_a_node_by_hand() -> None:
    class Bad(fad.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    class BadNode(autograd.Node):
        def apply(self, g: Any) -> Any:
            return g * float("nan")

    x = leaf(1.0)
    with autograd.detect_anomaly():
        y = Bad.apply(x)
        with pytest.raises(GradientError, match="'BadBackward' returned nan") as caught:
            y.backward()
        assert "y = Bad.apply(x)" in str(caught.value)
        node = BadNode([autograd.create_gradient_edge(x)])
        out = autograd.set_history(fad.tensor(1.0), node)
        with pytest.raises(GradientError, match="'BadNode' returned nan") as caught:
            out.backward()
        assert "autograd.set_history(" in str(caught.value)


def test_the_parent_chain() -> None:
    def first(x: Any) -> Any:
        return x**1.5

    def second(y: Any, x: Any) -> Any:
        return autograd.grad(y, x, create_graph=True)[0]

    x = leaf(0.0)
    with autograd.detect_anomaly():
        g = second(first(x), x)
        h = second(g, x)
        with pytest.raises(GradientError) as caught:
            autograd.backward(h, fad.tensor(0.0))
    text = str(caught.value)
    assert text.count("Previous calculation was induced by") >= 2
    assert "in first" in text and "in second" in text
    assert g.grad_fn.metadata["parent_"].name() == "PowerBackward"


def test_an_error_gets_a_note() -> None:
    x = leaf(1.0)
    with autograd.detect_anomaly():
        y = fnp.exp(x)
        y.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            y.backward()
    (note,) = caught.value.__notes__
    assert note.startswith("Error detected in ExpBackward. ") and "y = fnp.exp(x)" in note


def test_an_error_at_a_leaf_gets_a_note() -> None:
    x = leaf(1.0)
    with autograd.detect_anomaly():
        x.register_post_accumulate_grad_hook(lambda t: 1 / 0)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError) as caught:
            (x * 1.0).backward()
    assert "Error detected in AccumulateGrad" in caught.value.__notes__[0]


def test_without_check_nan() -> None:
    x = leaf(0.0)
    with autograd.detect_anomaly(check_nan=False):
        y = fnp.sqrt(x) * 0.0
        fnp.log(leaf(-1.0))
        y.backward()
    assert np.isnan(float(x.grad)) and "traceback_" in y.grad_fn.metadata


def test_a_graph_from_before() -> None:
    y = fnp.sqrt(leaf(0.0)) * 0.0
    with (
        autograd.detect_anomaly(),
        pytest.raises(GradientError, match="No forward pass information"),
    ):
        y.backward()


def test_a_graph_that_was_compiled_is_looked_into() -> None:
    def loss(value: float) -> Any:
        return fnp.sqrt(leaf(value)) * 0.0

    for _ in range(6):
        loss(1.0).backward()
    with autograd.detect_anomaly(), pytest.raises(GradientError, match="SqrtBackward"):
        loss(0.0).backward()


# Forward


def test_nan_in_the_forward_pass() -> None:
    with autograd.detect_anomaly():
        with pytest.raises(GradientError, match="'log' gave nan in the value of its 0th output"):
            fnp.log(leaf(-1.0))
        with pytest.raises(GradientError, match="from arguments without nan"):
            fad.tensor(np.inf) * 0.0
        bad = fad.tensor(np.nan)
        assert np.isnan(float(bad * 2.0)), "it is reported where it arises, not where it goes"
        assert fnp.log(fad.tensor(0.0)).item() == -np.inf
        assert (fad.tensor(1) * 2).item() == 2


def test_nan_in_the_forward_pass_of_transforms() -> None:
    with autograd.detect_anomaly():
        with pytest.raises(GradientError, match=r"'log' gave nan .* at grad level \d+"):
            fad.grad(lambda x: fnp.log(x))(-1.0)
        with pytest.raises(GradientError, match=r"at vmap level \d+, in vmap lane 1, 3, from"):
            fad.vmap(fnp.log)(jnp.array([1.0, -1.0, 2.0, -3.0]))
        with pytest.raises(GradientError, match=r"at vmap level \d+, in vmap lane 2, from"):
            fad.vmap(fnp.log)(fad.tensor([1.0, 2.0, -1.0]))
        lanes = r"in vmap lane \(0, 2\), \(1, 0\), from"
        with pytest.raises(GradientError, match=lanes):
            fad.vmap(fad.vmap(fnp.log))(jnp.array([[1.0, 2.0, -1.0], [-1.0, 1.0, 1.0]]))
        with pytest.raises(GradientError, match=lanes):  # mapped over the last dimension first
            mapped = fad.vmap(fad.vmap(fnp.log), in_dims=1)
            mapped(jnp.array([[1.0, 2.0, -1.0], [-1.0, 1.0, 1.0]]).T)
        with pytest.raises(
            GradientError, match=r"in vmap lane 0, 1, 2, 3, 4, 5, 6, 7, \.\.\., from"
        ):
            fad.vmap(fnp.log)(jnp.full(20, -1.0))


def test_nan_in_tangents() -> None:
    def f(x: Any) -> Any:
        return fnp.sqrt(x)

    with autograd.detect_anomaly():
        with pytest.raises(
            GradientError,
            match=r"'sqrt' gave nan in the tangent of its 0th output, at jvp level \d+",
        ):
            fad.jvp(f, (0.0,), (0.0,))
        with fad.dual_level():
            x = fad.make_dual(fad.tensor([4.0, 0.0]), fad.tensor([1.0, 0.0]))
            with pytest.raises(GradientError, match=r"in the tangent .* at dual level \d+"):
                fnp.sqrt(x)
        with pytest.raises(
            GradientError, match=r"in the tangent .* at vmap level \d+, in vmap lane 1"
        ):
            fad.jvp(fad.vmap(f), (jnp.array([1.0, 0.0]),), (jnp.zeros(2),))
        with pytest.raises(
            GradientError, match=r"in the tangent .* at jvp level \d+, in vmap lane 1"
        ):
            fad.vmap(lambda x: fad.jvp(f, (x,), (x * 0.0,))[1])(jnp.array([1.0, 0.0]))
        with pytest.raises(GradientError, match="in the tangent"):
            fad.jacfwd(f)(0.0 * jnp.ones(2))


def test_nan_inside_of_traced_code_is_not_seen() -> None:
    with autograd.detect_anomaly():
        f = fad.jit(lambda x: fnp.log(x) * 2.0)
        with pytest.raises(GradientError, match="gave nan"):
            f(fad.tensor(-1.0))  # the call as a whole is an operation
        assert np.isnan(float(f(-1.0))), (
            "given an array it is JAX's, whose own jax_debug_nans looks"
        )


# The mode


def test_the_mode_is_restored() -> None:
    assert not anomaly.mode.on
    with pytest.raises(ZeroDivisionError), autograd.detect_anomaly(check_nan=False):
        assert anomaly.mode.on and not anomaly.mode.check_nan
        with autograd.set_detect_anomaly(True):
            assert anomaly.mode.check_nan
        assert not anomaly.mode.check_nan
        1 / 0
    assert not anomaly.mode.on and not anomaly.mode.watch and anomaly.mode.check_nan
    autograd.set_detect_anomaly(True)
    assert anomaly.mode.on and anomaly.mode.watch
    autograd.set_detect_anomaly(False)
    assert not anomaly.mode.on and not anomaly.mode.watch


def test_the_mode_applies_to_every_thread() -> None:
    seen: list[Any] = []

    def work() -> None:
        seen.append("traceback_" in (leaf(1.0) * 2.0).grad_fn.metadata)

    with autograd.detect_anomaly():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [True], "as in PyTorch"


def test_nothing_is_kept_outside_of_the_mode() -> None:
    y = leaf(1.0) * 2.0
    assert y.grad_fn.extra is None


# Names in profiler traces


def events(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.rglob("*.trace.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def test_calls_and_nodes_appear_in_profiles(tmp_path: Path) -> None:
    x = leaf([1.0, 2.0])
    with jax.profiler.trace(str(tmp_path)):
        with autograd.emit_trace():
            y = fnp.sin(x) * x
            y.sum().backward(retain_graph=True)
        fnp.cos(x).sum().backward()
    found = [e for e in events(tmp_path) if "seq" in e.get("args", {})]
    named = {e["name"]: (int(e["args"]["seq"]), int(e["args"]["thread"])) for e in found}
    assert {"sin", "multiply", "sum", "SinBackward", "MultiplyBackward"} <= set(named)
    assert "cos" not in named and "CosBackward" not in named
    for call in ("sin", "multiply", "sum"):
        assert named[call] == named[f"{call.capitalize()}Backward"]
    node = y.grad_fn
    assert named["multiply"] == (node.sequence_nr, node.thread_id)
    assert "AccumulateGrad" in named


def test_numbers_stay_in_order_while_traced() -> None:
    x = leaf([[1.0, 2.0]])
    seen: list[int] = []

    def f(t: Any) -> Any:
        a = fnp.sin(t)
        b = a * t
        seen.extend([a.grad_fn.sequence_nr, b.grad_fn.sequence_nr])
        return b

    with autograd.emit_trace():
        first = x * 2.0
        fad.vmap(fad.grad(lambda t: f(t).sum()))(first)
        last = first * 2.0
    numbers = [first.grad_fn.sequence_nr, *seen, last.grad_fn.sequence_nr]
    assert numbers == sorted(numbers) and len(set(numbers)) == 4
    last.sum().backward()
    assert x.grad.tolist() == [[4.0, 4.0]]


def test_tracing_is_restored_and_combines_with_anomaly_mode() -> None:
    with autograd.emit_trace():
        with autograd.emit_trace():
            pass
        assert anomaly.mode.tracing and anomaly.mode.watch
        with autograd.detect_anomaly(), pytest.raises(GradientError, match="SqrtBackward"):
            (fnp.sqrt(leaf(0.0)) * 0.0).backward()
        assert anomaly.mode.watch
    assert not anomaly.mode.tracing and not anomaly.mode.watch
    with pytest.raises(ZeroDivisionError), autograd.emit_trace():
        1 / 0
    assert not anomaly.mode.watch


def test_observers_are_given_each_new_node() -> None:
    x = fad.tensor(1.0, requires_grad=True)
    seen: list[str] = []
    with anomaly.observed_nodes(lambda node: seen.append(node.name())):
        assert anomaly.mode.watch and not anomaly.mode.on
        with autograd.detect_anomaly(check_nan=False):
            y = fnp.sin(x)
        z = fnp.cos(x)
        fad.grad(fnp.exp)(1.0)
    fnp.tanh(x)
    assert seen == ["SinBackward", "CosBackward", "ExpBackward"]
    assert not anomaly.mode.watch and not anomaly.mode.remembers
    assert "traceback_" in y.grad_fn.metadata and "traceback_" not in z.grad_fn.metadata


@pytest.mark.parametrize("transform", [lambda f: f, fad.vmap], ids=["eager", "vmap"])
def test_a_compiled_function_says_how_to_look_into_it(transform: Any) -> None:
    def shaky(x: Any) -> Any:
        return fnp.sqrt(x) * 0.0

    rows = jnp.array([1.0, 0.0])
    total = fad.jit(lambda x: transform(shaky)(x).sum())
    with autograd.detect_anomaly():
        x = leaf(rows)
        loss = total(x)
        for backward in (loss.backward, lambda: fad.grad(total)(rows)):
            with pytest.raises(
                GradientError, match=r"fad.jit\(fad.grad\(f\), hooks=True\), with the"
            ):
                backward()
        inner = transform(fad.jit(fad.grad(lambda x: shaky(x).sum()), hooks=True))
        with pytest.raises(GradientError, match="'SqrtBackward' returned nan"):
            inner(rows)
        with pytest.raises(
            GradientError, match=r"'total_' gave nan.* fad.jit\(f, hooks=True\) names"
        ):
            transform(fad.jit(total_))(fad.tensor([-1.0]))
        with pytest.raises(GradientError, match="'log' gave nan"):
            transform(fad.jit(total_, hooks=True))(fad.tensor([-1.0]))
    with autograd.detect_anomaly(), pytest.raises(GradientError) as caught:
        (fnp.sqrt(leaf(0.0)) * 0.0).backward()
    assert "hooks=True" not in str(caught.value)


def total_(x: Any) -> Any:
    return fnp.log(x).sum()
