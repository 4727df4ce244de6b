"""The first call of a function: where most of its operations are new, one program is compiled for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from replays import TRANSFORMS, assert_bits, chain, compiled_all, info, last_trace, off

import fad
import fad.numpy as fnp
from fad.autograd import forward_ad
from fad.core.level import state
from fad.replay import exact_programs, policy
from fad.replay.program import Program, worker

X = jnp.array([0.5, -1.0, 2.0])
W = jnp.array([[0.3, -0.2, 0.9], [1.1, 0.4, -0.6], [0.2, 0.8, 0.5]])
BATCH = jnp.array([[0.1, 0.2, 0.3], [1.0, -2.0, 3.0]])
pytestmark = pytest.mark.usefixtures("cleared_caches")


def net(x: Any) -> Any:
    return fnp.sum(fnp.tanh(W @ x) * 1.1 + x)


def residual(x: Any) -> Any:
    """A sum of derivatives of several orders, in one function."""
    slope = fad.grad(net)
    return slope(x) * net(x) + fad.grad(lambda x: fnp.sum(slope(x) * x))(x)


repeated = chain(40)
OF_NET = ("grad", "value and grad", "jvp", "vmap", "jacfwd", "hessian", "vmap of grad")
CALLS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: TRANSFORMS[name](net)(X) for name in (*OF_NET, "jvp of grad")},
    "jacrev": lambda: fad.jacrev(lambda x: fnp.tanh(W @ x))(X),
    "grad of vmap": lambda: fad.grad(lambda b: fnp.mean(fad.vmap(net)(b) ** 2))(BATCH),
    "several orders": lambda: fad.vmap(residual)(BATCH),
    "grad of several orders": lambda: fad.grad(lambda b: fnp.sum(fad.vmap(residual)(b)))(BATCH),
    "jet": lambda: fad.jet(net, (X,), ([X + 1.0, None, X],)),
    "derivatives": lambda: fad.derivatives(lambda x: fnp.tanh(x * 1.1) + x, X, 4),
    "grad of jet": lambda: fad.grad(lambda x: fad.derivatives(net, x, 2)[2])(X),
}


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that have been compiled."""
    names: list[str] = []
    compile = Program.compile

    def counted(self: Program, avals: Any) -> None:
        names.append(self.name)
        compile(self, avals)

    monkeypatch.setattr(Program, "compile", counted)
    return names


def assert_as_off(found: list[Any], call: Callable[..., Any], *arguments: Any) -> None:
    """Refuse results that are not those of ``call`` on each of the arguments, without replay."""
    with off():
        assert_bits(found, [call(*a) for a in arguments] if arguments else [call()] * len(found))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_all_of_a_new_function_is_one_program(
    call: Callable[[], Any], compilations: list[str]
) -> None:
    found = [call() for _ in range(3)]
    assert len(compilations) == 1  # in the first call; later ones give the same traces
    assert info("queued") == 0
    assert_as_off(found, call)


def test_operations_that_repeat_run_one_by_one(compilations: list[str]) -> None:
    first = fad.grad(repeated)(X)
    assert not compilations and "its operations repeat" in last_trace()
    assert_as_off([first], lambda: fad.grad(repeated)(X))


def test_operations_that_are_known_run_one_by_one(compilations: list[str]) -> None:
    """They are after two programs, or where they have run one by one."""
    functions = [net, lambda x: net(x), lambda x: net(x)]
    for f in functions:
        fad.grad(f)(X)
    assert len(compilations) == policy.TIMES == 2
    assert last_trace().endswith("it is new")
    fad.grad(repeated)(X)
    fad.grad(lambda x: fnp.sum(fnp.sin(x) * 0.9))(X)
    assert len(compilations) == 2


def test_transforms_of_one_function_in_turns(compilations: list[str]) -> None:
    """Each compiles its own program in its first call, and none of them makes another one slow later."""

    def f(v: Any) -> Any:
        _, (_, second) = fad.jet(lambda u: fnp.sin(u) * v, (v,), ([v, v * v],))
        return fnp.sum(second)

    calls: list[Callable[[], Any]] = [
        lambda: fad.hessian(f)(X),
        lambda: fad.vmap(fad.grad(f))(BATCH),
        lambda: fad.jet(fad.grad(f), (X,), ([X, X * X],)),
        lambda: fad.jacfwd(lambda v: fad.jet(fnp.sin, (v,), ([v, v * v],))[1][1])(X),
        lambda: fad.grad(f)(X),
    ]
    turns = [[call() for call in calls] for _ in range(4)]
    assert len(compilations) == len(calls)
    assert info("queued") == 0
    assert_as_off(turns, lambda: [call() for call in calls])


def branching(x: Any, branch: int) -> Any:
    y = fnp.tanh(W @ x)
    if branch == 1:
        y = fnp.exp(-y) * y
    if branch > 1:
        y = y * y
    return fnp.sum(fnp.log(1.0 + y * y) * fnp.cos(y))


def test_another_path_shares_operations_that_were_not_compiled(compilations: list[str]) -> None:
    turns = [0, 1, 1, 0, 1, 0]
    found = []
    for branch in turns:
        found.append(fad.grad(branching)(X, branch))
        assert len(compilations) == min(len(found), 2)
    assert_as_off(found, lambda branch: fad.grad(branching)(X, branch), *[[t] for t in turns])


def test_what_was_compiled_at_once_runs_while_another_path_is_compiled(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operations were not compiled one by one."""
    monkeypatch.setattr(worker, "submit", lambda program, avals: True)  # it is never ready
    for branch in (0, 1, 2, 2, 2):  # all operations of the last one are known
        fad.grad(branching)(X, branch)
    assert len(compilations) == 2
    fad.grad(branching)(X, 0)
    assert last_trace().endswith("replayed")


def test_a_new_shape_is_a_new_function(compilations: list[str]) -> None:
    f = lambda x: fnp.sum(fnp.sin(x) * x)
    lengths = (3, 4, 5)
    found = [fad.grad(f)(jnp.arange(1.0, n)) for n in lengths]
    assert len(compilations) == 3
    assert_as_off(found, lambda n: fad.grad(f)(jnp.arange(1.0, n)), *[[n] for n in lengths])


def test_an_inner_program_is_part_of_the_outer_one_at_once() -> None:
    """Else the outer trace were another one in the second call."""

    def outer(b: Any) -> Any:
        return fnp.sum(fad.vmap(lambda x: fad.grad(net)(x) + fad.grad(net)(x))(b))

    for _ in range(2):
        fad.grad(outer)(BATCH)
        assert info("compiled") == 1


FALLBACKS: dict[str, Callable[[Any], Any]] = {
    "a value is read": lambda x: fnp.sum(fnp.sin(x)) if (x * 2.0)[0].item() > 0 else fnp.sum(x),
    "a node is read": lambda x: fnp.sum(fnp.sin(x)) if fnp.cos(x).grad_fn else fnp.sum(x),
    "no_grad": lambda x: fnp.sum(fnp.sin(x) * fad.no_grad()(fnp.cos)(x)),
    "a hook": lambda x: [y := fnp.sin(x), y.register_hook(lambda g: g * 2.0), fnp.sum(y)][2],
}


@pytest.mark.parametrize("f", FALLBACKS.values(), ids=FALLBACKS)
def test_what_is_no_one_trace_runs_one_by_one(f: Callable[[Any], Any]) -> None:
    found = fad.grad(f)(X)
    assert info("compiled") == 0
    assert_as_off([found], lambda: fad.grad(f)(X))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_compilation_that_fails(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of XLA's lets operations run one by one; an interrupt is the caller's."""
    compile, tries = exact_programs.jit_exact, []

    def failing(*args: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise error("while compiling")
        return compile(*args)

    monkeypatch.setattr(exact_programs, "jit_exact", failing)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            fad.grad(net)(X)
        assert state.levels == ()
    found = [fad.grad(net)(X) for _ in range(3)]
    compiled_all()
    assert tries and info("refused") == (error is RuntimeError)
    assert_as_off(found, lambda: fad.grad(net)(X))


def test_tangents_that_are_off_stay_off_in_later_calls() -> None:
    for _ in range(4):
        with fad.dual_level():
            d = fad.make_dual(X, X)
            with forward_ad.set_fwd_grad_enabled(False):
                y = fad.vmap(lambda a: a * a)(d)
            assert fad.unpack_dual(y).tangent is None
            assert np.array_equal(fad.unpack_dual(y).primal, X * X)
            assert fad.unpack_dual(fad.vmap(lambda a: a * a)(d)).tangent is not None
