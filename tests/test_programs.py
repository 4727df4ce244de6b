"""Random programs under random transform stacks give what JAX gives.

A program is data: a list of steps, each an operation with the numbers of the values that it reads.
It is interpreted once with `fad.numpy` under fad's transforms, and once with `jax.numpy` under
JAX's. What fails shrinks to a short list that can be read, and pasted into `run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, note, settings

import fad
import fad.numpy as fnp
from fad import trees

SHAPES = [(), (2,), (3,), (2, 3), (2, 2)]


@dataclass(frozen=True)
class Step:
    """One operation: a name in OPS, the values it reads, and static choices."""

    op: str
    reads: tuple[int, ...]
    choice: int = 0


@dataclass(frozen=True)
class Op:
    """``run(np, values, choice)``, and the number of values it reads; ``fits`` checks their shapes."""

    run: Callable[..., Any]
    arity: int = 1
    fits: Callable[..., bool] = lambda *shapes: True


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _axis(x: Any, choice: int) -> int:
    return choice % x.ndim - x.ndim if choice % 2 else choice % x.ndim


def _floating(n: Any, x: Any) -> Any:
    """``x`` as a real floating array."""
    if n.issubdtype(x.dtype, np.complexfloating):
        return n.real(x) + 0.5 * n.imag(x)
    return x if n.issubdtype(x.dtype, np.floating) else x * 0.5


def _square(*shapes: tuple[int, ...]) -> bool:
    return len(shapes[0]) == 2 and shapes[0][0] == shapes[0][1]


def _vector(*shapes: tuple[int, ...]) -> bool:
    return len(shapes[0]) >= 1


def _matmul_fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) >= 1 and len(b) >= 1 and a[-1] == (b[0] if len(b) == 1 else b[-2])


def _solvable(n: Any, a: Any) -> Any:
    return n.tanh(_floating(n, a)) + 4.0 * n.eye(2)


OPS: dict[str, Op] = {
    # elementwise
    "sin": Op(lambda n, v, c: n.sin(v[0])),
    "cos": Op(lambda n, v, c: n.cos(v[0])),
    "tanh": Op(lambda n, v, c: n.tanh(_floating(n, v[0]))),
    "exp": Op(lambda n, v, c: n.exp(n.tanh(_floating(n, v[0])))),
    "log": Op(lambda n, v, c: n.log(1.5 + n.abs(v[0]))),
    "sqrt": Op(lambda n, v, c: n.sqrt(1.0 + _floating(n, v[0]) ** 2)),
    "abs": Op(lambda n, v, c: n.abs(v[0])),
    "negative": Op(lambda n, v, c: -(v[0] * 1)),
    "power": Op(lambda n, v, c: (v[0] * 1) ** (2 + c % 2)),
    "arctan": Op(lambda n, v, c: n.arctan(_floating(n, v[0]))),
    "scale": Op(lambda n, v, c: v[0] * (0.25 * c - 0.5)),
    "shift": Op(lambda n, v, c: 1 + v[0] - 0.1 * c),
    "clip": Op(lambda n, v, c: n.clip(_floating(n, v[0]), -0.5, 0.75)),
    "floor": Op(lambda n, v, c: n.floor(_floating(n, v[0])) + _floating(n, v[0])),
    # two operands, broadcast
    "add": Op(lambda n, v, c: v[0] + v[1] * 1, 2, _broadcasts),
    "subtract": Op(lambda n, v, c: v[0] * 1 - v[1] * 1, 2, _broadcasts),
    "multiply": Op(lambda n, v, c: v[0] * v[1], 2, _broadcasts),
    "divide": Op(lambda n, v, c: v[0] / (2.0 + n.abs(v[1])), 2, _broadcasts),
    "maximum": Op(
        lambda n, v, c: n.maximum(_floating(n, v[0]), _floating(n, v[1])), 2, _broadcasts
    ),
    "minimum": Op(
        lambda n, v, c: n.minimum(_floating(n, v[0]), _floating(n, v[1])), 2, _broadcasts
    ),
    "arctan2": Op(lambda n, v, c: n.arctan2(_floating(n, v[0]), 1.0 + n.abs(v[1])), 2, _broadcasts),
    "where": Op(
        lambda n, v, c: n.where(_floating(n, v[0]) > _floating(n, v[1]), v[0], v[1] * 2),
        2,
        _broadcasts,
    ),
    "compare": Op(lambda n, v, c: (_floating(n, v[0]) > _floating(n, v[1])) * v[1], 2, _broadcasts),
    # reductions and scans
    "sum": Op(lambda n, v, c: n.sum(v[0], axis=_axis(v[0], c)), 1, _vector),
    "sum_all": Op(lambda n, v, c: n.sum(v[0])),
    "mean": Op(lambda n, v, c: n.mean(v[0], axis=_axis(v[0], c), keepdims=True), 1, _vector),
    "max": Op(lambda n, v, c: n.max(_floating(n, v[0]), axis=_axis(v[0], c)), 1, _vector),
    "prod": Op(lambda n, v, c: n.prod(v[0], axis=_axis(v[0], c)), 1, _vector),
    "norm": Op(lambda n, v, c: n.sqrt(0.1 + n.sum(n.abs(v[0]) ** 2))),
    "cumsum": Op(lambda n, v, c: n.cumsum(v[0], axis=_axis(v[0], c)), 1, _vector),
    "sort": Op(lambda n, v, c: n.sort(_floating(n, v[0]), axis=-1), 1, _vector),
    "argmax": Op(lambda n, v, c: n.argmax(_floating(n, v[0]), axis=-1), 1, _vector),
    "softmax": Op(
        lambda n, v, c: (
            n.exp(n.tanh(_floating(n, v[0])))
            / n.sum(n.exp(n.tanh(_floating(n, v[0]))), axis=-1, keepdims=True)
        ),
        1,
        _vector,
    ),
    "logaddexp": Op(
        lambda n, v, c: n.logaddexp(_floating(n, v[0]), _floating(n, v[1])), 2, _broadcasts
    ),
    # shapes
    "transpose": Op(lambda n, v, c: n.transpose(v[0])),
    "reshape": Op(lambda n, v, c: n.reshape(v[0], (-1,))),
    "expand": Op(lambda n, v, c: n.expand_dims(v[0], c % 2 if v[0].ndim else 0)),
    "broadcast": Op(lambda n, v, c: n.broadcast_to(v[0], (2, *v[0].shape))),
    "flip": Op(lambda n, v, c: n.flip(v[0], axis=-1), 1, _vector),
    "roll": Op(lambda n, v, c: n.roll(v[0], 1 + c, axis=0), 1, _vector),
    "stack": Op(lambda n, v, c: n.stack([v[0], v[1]]), 2, lambda a, b: a == b),
    "concatenate": Op(
        lambda n, v, c: n.concatenate([v[0], v[1] * 1]),
        2,
        lambda a, b: len(a) == len(b) > 0 and a[1:] == b[1:],
    ),
    # indices
    "first": Op(lambda n, v, c: v[0][c % v[0].shape[0]], 1, _vector),
    "window": Op(lambda n, v, c: v[0][1:], 1, _vector),
    "strided": Op(lambda n, v, c: v[0][..., ::-1], 1, _vector),
    "take": Op(lambda n, v, c: v[0][np.array([1, 0, 1])], 1, _vector),
    "gather": Op(
        lambda n, v, c: n.take(v[0], n.argmax(_floating(n, v[0]), axis=-1), axis=0, mode="clip"),
        1,
        lambda a: len(a) == 1,
    ),
    "at": Op(lambda n, v, c: (v[0] * 1.0).at[0].set(2.0), 1, _vector),
    "at_add": Op(lambda n, v, c: (v[0] * 1.0).at[..., 0].add(0.5), 1, _vector),
    # products
    "matmul": Op(lambda n, v, c: n.matmul(v[0], v[1]), 2, _matmul_fits),
    "outer": Op(
        lambda n, v, c: n.einsum("i,j->ij", v[0], v[1]),
        2,
        lambda a, b: len(a + b) == 2 == len(a) * 2,
    ),
    "einsum": Op(
        lambda n, v, c: n.einsum("ij,kj->ik", v[0], v[1]),
        2,
        lambda a, b: len(a) == 2 == len(b) and a[1] == b[1],
    ),
    "solve": Op(
        lambda n, v, c: n.linalg.solve(_solvable(n, v[0]), _floating(n, v[1])),
        2,
        lambda a, b: a == (2, 2) and b in ((2,), (2, 2)),
    ),
    "det": Op(lambda n, v, c: n.linalg.det(_solvable(n, v[0])), 1, lambda a: a == (2, 2)),
    "inv": Op(lambda n, v, c: n.linalg.inv(_solvable(n, v[0])), 1, lambda a: a == (2, 2)),
    # dtypes
    "complex": Op(lambda n, v, c: v[0] + 1j * v[1], 2, _broadcasts),
    "conj": Op(lambda n, v, c: n.conj(v[0]) * (1 + 2j)),
    "real": Op(lambda n, v, c: n.real(v[0])),
    "imag": Op(lambda n, v, c: n.imag((2 - 1j) * v[0])),
    "to_int": Op(lambda n, v, c: n.round(_floating(n, v[0])).astype(np.int32)),
    "single": Op(lambda n, v, c: _floating(n, v[0]).astype(np.float32)),
}
assert len(OPS) >= 25


def run(n: Any, steps: tuple[Step, ...], inputs: dict[str, Any]) -> dict[str, Any]:
    """Interpret a program with namespace ``n``; the result is a pytree of real floating arrays."""
    values = [inputs["x"], inputs["pair"][0], inputs["pair"][1]]
    for s in steps:
        values.append(OPS[s.op].run(n, [values[i] for i in s.reads], s.choice))
    return {"last": _floating(n, values[-1]), "rest": [_floating(n, v) for v in values[-3:-1]]}


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[Step, ...], tuple[tuple[int, ...], ...]]:
    """A program and the shapes of its three inputs."""
    shapes = [draw(st.sampled_from(SHAPES)) for _ in range(3)]
    known = list(shapes)
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(OPS)))
        op = OPS[name]
        every = range(len(known))
        if op.arity == 1:
            choices = [(i,) for i in every if op.fits(known[i])]
        else:
            choices = [(i, j) for i in every for j in every if op.fits(known[i], known[j])]
        if not choices:
            continue
        step = Step(name, draw(st.sampled_from(choices)), draw(st.integers(0, 3)))
        trial = [*steps, step]
        structs = [jax.ShapeDtypeStruct(s, np.float64) for s in shapes]
        try:
            out = jax.eval_shape(
                lambda x, y, z, trial=trial: _last(tuple(trial), x, y, z), *structs
            )
        except (IndexError, TypeError, ValueError):
            continue  # an operand is empty, or has another dtype than the operation takes
        if out.size == 0 or out.size > 24:
            continue
        steps.append(step)
        known.append(out.shape)
    return tuple(steps), tuple(shapes)


def _last(steps: tuple[Step, ...], x: Any, y: Any, z: Any) -> Any:
    values = [x, y, z]
    for s in steps:
        values.append(OPS[s.op].run(jnp, [values[i] for i in s.reads], s.choice))
    return values[-1]


# Transforms: each takes a function of one pytree, and gives one.


def _total(n: Any, out: Any) -> Any:
    return sum(n.sum(leaf * 0.5) for leaf in trees.flatten(out)[0])


def _ones(tree: Any) -> Any:
    return trees.map_leaves(lambda a: jnp.ones(a.shape, a.dtype), tree)


def _weights(tree: Any) -> Any:
    """A tangent or cotangent with distinct entries."""
    return trees.map_leaves(
        lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), tree
    )


def _fad_grad(f: Any) -> Any:
    return fad.grad(lambda t: _total(fnp, f(t)))


def _fad_tape(f: Any) -> Any:
    def gradient(t: Any) -> Any:
        leaves, structure = trees.flatten(t)
        tracked = [fad.asarray(a).detach().requires_grad_() for a in leaves]
        out = _total(fnp, f(trees.unflatten(structure, tracked)))
        grads = fad.autograd.grad(out, tracked, materialize_grads=True)
        return trees.unflatten(structure, [g.array for g in grads])

    return gradient


TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grad": (_fad_grad, lambda f: jax.grad(lambda t: _total(jnp, f(t)))),
    "jvp": (
        lambda f: lambda t: fad.jvp(f, (t,), (_weights(t),)),
        lambda f: lambda t: jax.jvp(f, (t,), (_weights(t),)),
    ),
    "vjp": (
        lambda f: lambda t: (lambda out, pull: pull(_weights(out)))(*fad.vjp(f, t)),
        lambda f: lambda t: (lambda out, pull: pull(_weights(out)))(*jax.vjp(f, t)),
    ),
    "linearize": (
        lambda f: lambda t: fad.linearize(f, t)[1](_ones(t)),
        lambda f: lambda t: jax.linearize(f, t)[1](_ones(t)),
    ),
    "vmap": (fad.vmap, jax.vmap),
    "jacrev": (fad.jacrev, jax.jacrev),
    "jacfwd": (fad.jacfwd, jax.jacfwd),
    "checkpoint": (fad.checkpoint, lambda f: f),
    "jit": (fad.jit, lambda f: f),
}
BIG = ("jacrev", "jacfwd")


@st.composite
def stacks(draw: st.DrawFn) -> tuple[str, ...]:
    """Up to three transforms, innermost first; not more than two that square the size."""
    names = draw(st.lists(st.sampled_from(sorted(TRANSFORMS)), max_size=3))
    while sum(n in BIG for n in names) > 1 or names.count("jit") > 1:
        names.remove(next(n for n in names if n in BIG or n == "jit"))
    return tuple(names)


def compare(
    steps: tuple[Step, ...], shapes: tuple[tuple[int, ...], ...], stack: tuple[str, ...], seed: int
) -> None:
    """Run a program under a stack of transforms in both libraries."""
    lead = (2,) * stack.count("vmap")
    rng = np.random.default_rng(seed)
    arrays = [jnp.asarray(rng.uniform(-1.0, 1.0, lead + s)) for s in shapes]
    inputs = {"x": arrays[0], "pair": (arrays[1], arrays[2])}
    mine: Any = lambda t: run(fnp, steps, t)  # noqa: E731
    theirs: Any = lambda t: run(jnp, steps, t)  # noqa: E731
    for name in stack:
        mine, theirs = TRANSFORMS[name][0](mine), TRANSFORMS[name][1](theirs)
    got, expected = mine(inputs), theirs(inputs)
    got_leaves, got_structure = jax.tree_util.tree_flatten(got)
    leaves, structure = jax.tree_util.tree_flatten(expected)
    assert got_structure == structure
    for a, b in zip(got_leaves, leaves, strict=True):
        assert isinstance(a, jax.Array), f"arrays in, {type(a)} out"
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        # A step in float32 bounds what can agree, and derivatives of third order magnify it.
        loose = any(s.op == "single" for s in steps)
        np.testing.assert_allclose(a, b, rtol=2e-3 if loose else 1e-6, atol=2e-3 if loose else 1e-7)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_random_programs_agree_with_jax(request: pytest.FixtureRequest) -> None:
    count = 2000 if request.config.getoption("--full") else 90

    @settings(max_examples=count)
    @given(programs(), stacks(), st.integers(0, 2**16))
    def check(program: Any, stack: tuple[str, ...], seed: int) -> None:
        steps, shapes = program
        note(f"compare({steps!r}, {shapes!r}, {stack!r}, {seed})")
        compare(steps, shapes, stack, seed)

    with jax.enable_x64(True):
        check()


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_operation_alone(op: str) -> None:
    """Each operation once under reverse, forward and batched transforms."""
    with jax.enable_x64(True):
        for shapes in [((2, 2), (2, 2), (2,)), ((3,), (3,), ()), ((2, 3), (2, 3), (3,))]:
            reads = (0,) if OPS[op].arity == 1 else (0, 1)
            if not OPS[op].fits(*[shapes[i] for i in reads]):
                continue
            steps = (Step("sin", (0,)), Step(op, tuple([3 if i == 0 else i for i in reads]), 1))
            for stack in [("grad",), ("jvp",), ("grad", "vmap")]:
                compare(steps, shapes, stack, 0)
            return
    raise AssertionError(f"{op} fits no shape")
