"""Hooks and anomaly mode in code that ``fad.jit(hooks=True)`` compiles."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import autograd, lax
from fad.errors import GradientError, LevelError

X = jnp.array([1.0, 2.0])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="jax")  # it logs what fails on the host


def logged() -> tuple[list[Any], Callable[[Any], Any]]:
    """A function with a hook that multiplies its gradient by 10, and what the hook has got."""
    log: list[Any] = []

    def f(t: Any) -> Any:
        y = fnp.sin(t) * t

        def by_ten(g: Any) -> Any:
            log.append(tuple(g.shape))
            return g * 10.0

        y.register_hook(by_ten)
        return y * y

    return log, f


def jit(f: Callable[..., Any]) -> Any:
    return fad.jit(f, hooks=True)


def test_a_hook_runs_at_each_execution_with_its_values() -> None:
    seen = []

    def f(t: Any) -> Any:
        y = t * t
        y.register_hook(lambda g: seen.append(g.item()))
        return y * t

    g = jit(fad.grad(f))
    assert [float(g(x)) for x in (1.0, 2.0, 3.0)] == [3.0, 12.0, 27.0]
    assert seen == [1.0, 2.0, 3.0]


STACKS: dict[str, Callable[..., Any]] = {
    "jit(grad)": lambda f, jit: jit(fad.grad(f))(2.0),
    "jit(vmap(grad))": lambda f, jit: jit(fad.vmap(fad.grad(f)))(X),
    "vmap(jit(grad))": lambda f, jit: fad.vmap(jit(fad.grad(f)))(X),
    "vmap(vmap(jit(grad)))": lambda f, jit: fad.vmap(fad.vmap(jit(fad.grad(f))))(X[None]),
    "jit(grad(grad))": lambda f, jit: jit(fad.grad(fad.grad(f)))(2.0),
    "grad(jit(grad))": lambda f, jit: fad.grad(jit(fad.grad(f)))(2.0),
    "jvp(jit(grad))": lambda f, jit: fad.jvp(jit(fad.grad(f)), (2.0,), (1.0,)),
    "jit(hessian)": lambda f, jit: jit(fad.hessian(lambda t: f(t).sum()))(X),
    "vmap(grad(jit(grad)))": lambda f, jit: fad.vmap(fad.grad(jit(fad.grad(f))))(X),
    "grad(vmap(jit(grad)))": lambda f, jit: fad.grad(lambda x: fad.vmap(jit(fad.grad(f)))(x).sum())(
        X
    ),
    "jit(jit(grad))": lambda f, jit: jit(lambda x: jit(fad.grad(f))(x) * 2.0)(2.0),
    "scan": lambda f, jit: jit(
        lambda x: lax.scan(lambda c, _: (c + fad.grad(f)(c), None), x, None, length=3)[0]
    )(0.1),
}


@pytest.mark.parametrize("name", [n for n in STACKS if n != "scan"])
def test_results_are_those_of_eager_code(name: str) -> None:
    log, f = logged()
    expected = STACKS[name](f, lambda f: f)
    shapes = set(log)
    log.clear()
    found = STACKS[name](f, jit)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert log and set(log) == shapes, "a hook sees a lane of vmap, as it does eagerly"


def test_hooks_in_the_body_of_a_scan_run_at_each_step() -> None:
    log, f = logged()
    found = STACKS["scan"](f, jit)
    assert len(log) == 3
    x = 0.1
    for _ in range(3):
        x = x + float(fad.grad(f)(x))
    np.testing.assert_allclose(found, x, rtol=1e-5)


def test_under_native_transforms() -> None:
    log, f = logged()
    native = fad.to_jax(jit(fad.grad(f)))
    expected = fad.vmap(fad.grad(fad.grad(f)))(X)
    log.clear()
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(native)))(X), expected, rtol=1e-5)
    assert log


def test_every_kind_of_hook_in_pytorchs_order() -> None:
    def f(log: list[Any], w: Any) -> Any:
        w = w.requires_grad_()
        w.register_hook(lambda g: log.append(("leaf", g.tolist())))
        w.register_post_accumulate_grad_hook(
            lambda t: log.append(("after", t.tolist(), t.grad.tolist()))
        )
        y = w * w
        y.register_hook(lambda g: log.append(("tensor", g.tolist())))
        y.grad_fn.register_prehook(lambda o: log.append(("pre", o[0].tolist())) or (o[0] * 3.0,))
        y.grad_fn.register_hook(lambda i, o: log.append(("post", i[0].tolist(), o[0].tolist())))
        autograd.register_multi_grad_hook(
            [w, y], lambda gs: log.append(("all", [g.tolist() for g in gs]))
        )
        autograd.register_multi_grad_hook(
            [w, y], lambda g: log.append(("any", g.tolist())), mode="any"
        )
        (y * 2.0).sum().backward()
        return w.grad

    eager: list[Any] = []
    compiled: list[Any] = []
    expected = f(eager, fad.tensor([1.0, 2.0]))
    g = jit(lambda w: f(compiled, w))
    for _ in range(2):
        compiled.clear()
        assert g(fad.tensor([1.0, 2.0])).tolist() == expected.tolist()
        assert compiled == eager


def test_a_hook_gets_none_where_no_gradient_came_and_constants_are_in_the_program() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        c = fad.tensor([3.0], requires_grad=True)
        a, b = fnp.split(c * jnp.ones(2), 2)
        a.register_hook(log.append)
        b.register_hook(lambda g: log.append(g.tolist()))
        return x + autograd.grad(b.sum(), c)[0]

    g = jit(f)
    assert [g(1.0).tolist() for _ in range(2)] == [[2.0], [2.0]]
    assert log == [None, [1.0]] * 2


def test_an_exception_in_a_hook_is_that_exception_and_leaves_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(Exception):
        pass

    wrong = [True]

    def f(t: Any) -> Any:
        y = t * t

        def strict(g: Any) -> None:
            if wrong[0]:
                raise Mine("too large")

        y.register_hook(strict)
        return y

    g = jit(fad.grad(f))
    for call in (lambda: g(3.0), lambda: fad.vmap(g)(X), lambda: fad.grad(g)(3.0)):
        with pytest.raises(Mine, match="too large") as caught:
            call()
        assert any("hook 'strict'" in note for note in caught.value.__notes__)
        # The next call does not wait for this one.
        assert not jax._src.dispatch.runtime_tokens.current_tokens
    logger = logging.getLogger("jax._src.callback")
    monkeypatch.setattr(logging.getLogger("jax"), "propagate", True)
    with caplog.at_level("ERROR", logger.name), pytest.raises(Mine):
        g(3.0)
    text = caplog.text  # what JAX logs has the line of the hook, and of fad little more
    assert 'raise Mine("too large")' in text and text.count("\n") < 30
    wrong[0] = False
    assert float(g(3.0)) == 6.0
    assert fad.is_grad_enabled() and fad.core.level.state.levels == ()


def test_frames_of_the_user_are_logged_and_hidden_ones_where_filtering_is_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("jax"), "propagate", True)
    beside = [f"{os.path.dirname(str(module.__file__))}_of_mine/hook.py" for module in (fad, jax)]
    inside = [os.path.join(os.path.dirname(str(module.__file__)), "x.py") for module in (fad, jax)]

    def shown() -> list[str]:
        """The files in what is logged of a hook that fails in each of them."""
        logged = ""
        for file in (*beside, *inside):
            space: dict[str, Any] = {}
            exec(compile("def hook(g): raise ValueError('bad')", file, "exec"), space)
            caplog.clear()

            def f(t: Any, hook: Any = space["hook"]) -> Any:
                y = t * t
                y.register_hook(hook)
                return y

            with caplog.at_level("ERROR", "jax._src.callback"):
                with pytest.raises(ValueError, match="bad"):
                    jit(fad.grad(f))(3.0)
            logged += caplog.text.rpartition("[fad host call")[2]
        return [file for file in (*beside, *inside) if f'"{file}"' in logged]

    assert shown() == beside
    with jax._src.config.traceback_filtering("off"):
        assert shown() == [*beside, inside[1]]
    before = fad.errors.traceback_filtering("off")
    try:
        assert shown() == [*beside, *inside]
    finally:
        fad.errors.traceback_filtering(before)


def test_what_fails_beside_the_hooks_leaves_the_effects_of_others_to_be_waited_for() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("not a hook")

    out = jax.ShapeDtypeStruct((), jnp.float32)
    h = fad.from_jax(lambda x: jax.pure_callback(fails, out, x))

    def f(t: Any) -> Any:
        y = t * h(fad.stop_gradient(t))
        y.register_hook(lambda g: g)
        return y

    g = jit(fad.grad(f))
    jax.jit(lambda x: jax.debug.callback(lambda _: None, x, ordered=True))(1.0)
    tokens = jax._src.dispatch.runtime_tokens
    before = set(tokens.current_tokens)
    with pytest.raises(jax.errors.JaxRuntimeError, match="not a hook"):
        g(1.0)
    assert before and before <= tokens.current_tokens.keys()
    jax.effects_barrier()


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda g: "s", TypeError, "but hook returned 'str'"),
        (lambda g: jnp.ones(3), GradientError, "has changed the size of value"),
        (lambda g: jnp.ones((), jnp.int32), GradientError, "has changed the type of value"),
    ],
)
def test_what_a_hook_returns_is_checked(result: Any, error: Any, text: str) -> None:
    def f(t: Any) -> Any:
        y = t * t
        y.register_hook(result)
        return y

    with pytest.raises(error, match=text):
        jit(fad.grad(f))(3.0)


def test_a_hook_that_returns_another_gradient_each_time_has_no_derivative() -> None:
    count = [0.0]

    def f(t: Any) -> Any:
        y = t * t

        def changes(g: Any) -> Any:
            count[0] += 1.0
            return g * count[0]

        y.register_hook(changes)
        return y * y

    jit(fad.grad(f))(3.0)
    with pytest.raises(GradientError, match="hook 'changes' returned another gradient"):
        jit(fad.grad(fad.grad(f)))(3.0)


def test_a_post_accumulate_hook_cannot_change_its_copy() -> None:
    def f(change: Any, w: Any) -> Any:
        w = w.requires_grad_()
        w.register_post_accumulate_grad_hook(change)
        (w * w).sum().backward()
        return w.grad

    def clear(t: Any) -> None:
        t.grad = None

    def halve(t: Any) -> None:
        t.grad.mul_(0.5)

    for change in (clear, halve):
        with pytest.raises(GradientError, match="has changed its Tensor or its .grad"):
            jit(lambda w, change=change: f(change, w))(fad.tensor([1.0]))


def test_a_hook_may_compute_differentiate_and_call_compiled_code() -> None:
    inner = fad.jit(fad.grad(lambda t: (t**3).sum()))
    w = fad.tensor(jnp.ones((300, 300)), requires_grad=True)
    found = []

    def f(t: Any) -> Any:
        y = t * t

        def work(g: Any) -> Any:
            found.append(fad.is_grad_enabled())
            with fad.enable_grad():
                (w @ g).sum().backward()
            return inner(g)

        y.register_hook(work)
        return y.sum()

    x = jnp.ones((300, 300))
    assert jit(fad.grad(f))(x).tolist() == (6.0 * x).tolist()
    assert found == [False] and w.grad is not None


def test_registering_on_what_is_from_outside_is_refused() -> None:
    x = fad.tensor(1.0, requires_grad=True)

    def f(y: Any) -> Any:
        x.register_hook(print)
        return y

    for compile in (jit, fad.jit):
        with pytest.raises(LevelError, match="each call would register one more.*handle.remove"):
            compile(f)(1.0)
    assert not x.meta or not x.meta.hooks


def test_hooks_for_saved_values_are_refused_and_run_around_the_call() -> None:
    """What a pack hook returns is an object of Python, which a program cannot keep."""
    log: list[str] = []

    def pack(t: Any) -> Any:
        log.append("pack")
        return t.numpy()

    def unpack(a: Any) -> Any:
        log.append("unpack")
        return fad.tensor(a)

    def with_block(block: Callable[[], Any]) -> Callable[[Any], Any]:
        def f(t: Any) -> Any:
            with block():
                return fnp.sin(t) * t

        return f

    def later(t: Any) -> Any:
        y = t * t
        y.grad_fn._raw_saved_self.register_hooks(pack, unpack)
        return y

    hooks = lambda: autograd.saved_tensors_hooks(pack, unpack)
    message = (
        r"cannot be registered .* with hooks=True neither\. To save less, write fad\.checkpoint"
    )
    for f in (with_block(hooks), with_block(autograd.save_on_cpu), later):
        of = fad.grad(f)
        for compiled in (jit(of), fad.jit(of), lambda x, of=of: fad.vmap(jit(of))(x * X)):
            with pytest.raises(GradientError, match=message):
                compiled(1.0)
    assert log == [] and fad.is_grad_enabled() and fad.core.level.state.levels == ()

    x = fad.tensor(2.0, requires_grad=True)
    with hooks():
        y = jit(lambda t: fnp.sin(t) * t)(x)
    y.backward()
    assert set(log) == {"pack", "unpack"}
    assert float(x.grad) == pytest.approx(float(fad.grad(lambda t: fnp.sin(t) * t)(2.0)))
    checkpointed = jit(fad.grad(fad.checkpoint(lambda t: fnp.sin(t) * t)))
    assert float(checkpointed(2.0)) == pytest.approx(float(x.grad))


def test_without_hooks_the_program_is_as_before() -> None:
    def f(t: Any) -> Any:
        return (fnp.sin(t) * t).sum()

    plain, on = fad.jit(fad.grad(f)), jit(fad.grad(f))
    assert on.lower(X).as_text() == plain.lower(X).as_text()
    assert "callback" not in plain.lower(X).as_text()
    assert on(X).tolist() == plain(X).tolist()
    log, h = logged()
    jit(fad.grad(h))(1.0)
    assert log == [()]


# NaN


def test_nan_in_a_gradient_names_node_output_line_and_lane() -> None:
    def f(x: Any) -> Any:
        return fnp.sqrt(x) * 0.0  # here

    at = jnp.array([1.0, 0.0, 2.0])
    with autograd.detect_anomaly():
        for g in (jit(fad.vmap(fad.grad(f))), fad.vmap(jit(fad.grad(f)))):
            with pytest.raises(
                GradientError,
                match=r"'SqrtBackward' returned nan values in its 0th output, in vmap lane 1",
            ) as caught:
                g(at)
            assert "# here" in str(caught.value)
        g = jit(fad.grad(f))
        assert float(g(1.0)) == 0.0
        with pytest.raises(GradientError, match="'SqrtBackward' returned nan"):
            g(0.0)
    assert np.isnan(float(g(0.0))), "outside of the block nothing looks"


def test_nan_in_a_value_and_in_a_tangent() -> None:
    def f(x: Any) -> Any:
        return fnp.log(x) * 2.0  # here

    with autograd.detect_anomaly():
        with pytest.raises(GradientError, match="'log' gave nan in the value of its 0th") as caught:
            jit(fad.vmap(f))(jnp.array([1.0, -1.0]))
        assert "in vmap lane 1" in str(caught.value) and "# here" in str(caught.value)
        with pytest.raises(GradientError, match="'sqrt' gave nan in the tangent"):
            jit(lambda x: fad.jvp(fnp.sqrt, (x,), (x * 0.0,)))(0.0)
        assert np.isnan(float(jit(f)(jnp.nan))), "a nan that comes in is no fault of the operation"
    with autograd.detect_anomaly(check_nan=False):
        assert np.isnan(float(jit(f)(-1.0)))


def newton(x: Any, **options: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, fnp.sqrt(c[1] - 1.0)

    return lax.while_loop(lambda c: c[0] < 3, body, (0, x), **options)[1]  # here


def slopes(x: Any) -> Any:
    """A gradient that is taken in the body of a loop, where it is NaN."""

    def body(c: Any) -> Any:
        return c[0] + 1, c[1] + fad.grad(lambda t: fnp.sqrt(t - 1.5) * 0.0)(c[1])

    return lax.while_loop(lambda c: c[0] < 2, body, (0, x))[1]  # here


def rooted(y: Any) -> Any:
    return fnp.sqrt(y - 1.5) * 0.0 + y


STEP = lambda y, _: (fnp.sqrt(y - 1.0), None)  # here
# What is named, the function, whose first lane is right and whose second, from 1.5, has a NaN.
BODIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "while_loop": ("'while_loop' gave nan in the value", newton),
    "max_steps": ("'while_loop' gave nan in the value", lambda x: newton(x, max_steps=5)),
    "tangent": (
        "'while_loop' gave nan in the tangent",
        lambda x: fad.jvp(
            lambda x: lax.while_loop(lambda y: y < 3.0, lambda y: rooted(y) * 4, x),  # here
            (x,),
            (x * 0.0,),
        ),
    ),
    "gradient": (
        "'WhileLoopBackward' returned nan values in its 0th output",
        fad.grad(lambda x: lax.while_loop(lambda y: y < 3.0, lambda y: rooted(y) * 4, x)),  # here
    ),
    "gradient in a body": ("'while_loop' gave nan in the value", slopes),
    "fori_loop": (
        "'fori_loop' gave nan in the value",
        lambda x: lax.fori_loop(0, jnp.int32(3), lambda i, y: fnp.sqrt(y - 1.0), x),  # here
    ),
    "cond": (
        "'cond' gave nan in the value",
        lambda x: lax.cond(x < 2.0, lambda y: fnp.log(y - 2.0), lambda y: y, x),  # here
    ),
    "scan": ("'sqrt' gave nan in the value", lambda x: lax.scan(STEP, x, None, length=3)[0]),
}


@pytest.mark.sweep("name", list(BODIES), sample=5)
def test_nan_in_a_body_has_a_name_a_line_and_a_lane(name: str) -> None:
    """A loop or a branch is one operation: lanes of vmap run bodies that they do not take."""
    said, f = BODIES[name]
    lanes = jnp.array([1e4, 1.5])
    with autograd.detect_anomaly():
        for g, at in ((jit(f), 1.5), (jit(fad.vmap(f)), lanes), (fad.vmap(jit(f)), lanes)):
            with pytest.raises(GradientError, match=said) as caught:
                g(at)
            text = str(caught.value)
            assert "# here" in text
            assert at is not lanes or "in vmap lane 1" in text.split("Traceback")[0]


def test_nan_in_a_branch_that_a_lane_does_not_take_is_none() -> None:
    def f(x: Any) -> Any:
        y = lax.cond(x > 0.0, fnp.log, lambda y: y, x)
        return lax.while_loop(lambda y: y > 2.0, lambda y: fnp.sqrt(y - 2.0), y)

    x = jnp.array([-1.0, 50.0, 0.5])
    with autograd.detect_anomaly():
        for g in (jit(fad.vmap(f)), fad.vmap(jit(f))):
            assert np.isfinite(g(x)).all()
        assert np.isfinite(jit(fad.vmap(fad.grad(f)))(x)).all()
