"""Sparse derivatives by pytrees and several arguments, in chunks, in each format, by given patterns."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fad
import fad.numpy as fnp
from fad.errors import (
    ArgumentError,
    GradientError,
    HostValueError,
    StructureError,
)

sparse = importlib.import_module("jax.experimental.sparse")
DRAW = np.random.default_rng(3)


def numbers(*shape: int) -> Any:
    return jnp.asarray(DRAW.normal(size=shape).astype(np.float32))


P = {"b": numbers(2, 3), "a": [numbers(3), numbers()]}
Y = numbers(4)


def fields(p: Any, y: Any, *, k: Any = 2.0) -> Any:
    """Outputs and arguments of several shapes, some of which know nothing of each other."""
    a, s = p["a"]
    return {"z": fnp.sin(p["b"]) * a[::-1] * k, "w": (y[1:] * a, y.sum() * a[0]), "s": s**2 * y[:2]}


def energy(p: Any, y: Any, *, k: Any = 2.0) -> Any:
    a, s = p["a"]
    return (fnp.sin(p["b"]) * a[::-1]).sum() * s + k * (y[1:] ** 2 * a).sum() + (y**3).sum()


DERIVATIVES: dict[str, tuple[Any, Any, Callable[..., Any]]] = {
    "jacobian": (fad.sparse_jacobian, fad.jacfwd, fields),
    "hessian": (fad.sparse_hessian, fad.hessian, energy),
}
ARGNUMS = [0, 1, -1, (0,), (0, 1), (1, 0)]


def is_matrix(x: Any) -> bool:
    return isinstance(x, (sparse.BCOO, sparse.BCSR)) or hasattr(x, "toarray")


def dense_of(tree: Any) -> Any:
    """A pytree of sparse matrices, dense."""

    def one(m: Any) -> Any:
        return m.toarray() if hasattr(m, "toarray") else np.asarray(m.todense())

    return jax.tree.map(one, tree, is_leaf=is_matrix)


def assert_same(found: Any, expected: Any) -> None:
    """Same structure, same order of keys, same numbers; matrices may be flattened."""
    got, structure = jax.tree.flatten(dense_of(found))
    want, wanted = jax.tree.flatten(expected)
    assert structure == wanted
    assert str(jax.tree.map(lambda x: 0, found, is_leaf=is_matrix)) == str(
        jax.tree.map(lambda x: 0, expected)
    )
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.reshape(w.shape), w, rtol=1e-4, atol=1e-5)
        assert g.dtype == w.dtype


@pytest.mark.sweep("name, argnums", [*itertools.product(DERIVATIVES, ARGNUMS)], sample=6, ids=str)
def test_pytrees_and_several_arguments(name: str, argnums: Any) -> None:
    transform, dense, f = DERIVATIVES[name]
    expected = dense(f, argnums)(P, Y, k=3.0)
    assert_same(transform(f, argnums)(P, Y, k=3.0), expected)
    for chunk_size in (1, 2):
        assert_same(transform(f, argnums, chunk_size=chunk_size)(P, Y, k=3.0), expected)
    for format in ("bcsr", "scipy"):
        assert_same(transform(f, argnums, format=format)(P, Y, k=3.0), expected)


def test_dicts_keep_their_order() -> None:
    for p in ({"b": Y, "a": Y}, {"a": Y, "b": Y}):
        found = fad.sparse_jacobian(lambda p: {"z": p["a"], "c": p["b"]})(p)
        assert list(found) == ["z", "c"] and list(found["z"]) == list(p)


def test_chunks_bound_the_products_that_run_at_once() -> None:
    x = numbers(12)
    f = lambda x: fnp.sin(x).sum() * x  # full: 12 products
    jaxpr = str(
        jax.make_jaxpr(fad.to_jax(lambda x: fad.sparse_jacobian(f, chunk_size=5)(x).data))(x)
    )
    assert "f32[5,12]" in jaxpr
    for size in (1, 5, 6, 12, 50):
        found = fad.sparse_jacobian(f, chunk_size=size)(x).todense()
        np.testing.assert_allclose(found, fad.jacfwd(f)(x), rtol=1e-5)
    reverse = lambda x: fnp.stack([x[:6].sum(), (x**2).sum(), x[6:].sum()])
    assert fad.sparse_pattern(reverse)(x).mode == "reverse"
    found = fad.sparse_jacobian(reverse, chunk_size=1)(x).todense()
    np.testing.assert_allclose(found, fad.jacfwd(reverse)(x), rtol=1e-5)


def test_complex_and_real_leaves() -> None:
    p = {"z": jnp.array([1 + 2j, 3 - 1j, -1j]), "x": jnp.arange(1.0, 4.0)}

    def forward(p: Any) -> Any:
        return {"r": abs(p["z"]) * p["x"], "c": p["x"] * (1 + 2j), "h": p["z"] ** 2}

    def reverse(p: Any) -> Any:
        return {"r": (abs(p["z"]) + p["x"]).sum()[None], "c": p["x"].sum()[None] * 1j}

    for f, mode, dense in ((forward, "forward", fad.jacfwd), (reverse, "reverse", fad.jacrev)):
        assert fad.sparse_pattern(f)(p).mode == mode
        for chunk_size in (None, 1):
            assert_same(fad.sparse_jacobian(f, chunk_size=chunk_size)(p), dense(f)(p))


def test_leaves_of_several_dtypes() -> None:
    p = {"h": jnp.arange(1.0, 4.0, dtype=jnp.bfloat16), "s": jnp.arange(1.0, 4.0)}
    f = lambda p: (p["h"] ** 2, p["s"] * p["h"].astype(jnp.float32))
    found = fad.sparse_jacobian(f)(p)
    assert_same(found, fad.jacfwd(f)(p))
    energy = lambda p: (p["s"] ** 2 * p["h"].astype(jnp.float32)).sum()
    assert_same(fad.sparse_hessian(energy)(p), fad.hessian(energy)(p))
    with pytest.raises(ArgumentError, match=r"no sparse arrays of bfloat16.*Convert"):
        fad.sparse_jacobian(f, format="scipy")(p)


# A pattern that is given


def test_a_saved_pattern_gives_the_same_bits(tmp_path: Any) -> None:
    for name, (transform, _, f) in DERIVATIVES.items():
        first = fad.sparse_pattern(f, (0, 1), hessian=name == "hessian")(P, Y)
        first.save(tmp_path / "pattern")
        again = fad.SparsePattern.load(tmp_path / "pattern")
        assert repr(again) == repr(first) and again.shape == first.shape
        assert (again.nse, again.mode) == (first.nse, first.mode)
        found = [
            transform(f, (0, 1), **given)(P, Y)
            for given in ({}, {"pattern": first}, {"pattern": again})
        ]
        jax.tree.map(lambda *xs: [np.testing.assert_array_equal(x, xs[0]) for x in xs], *found)


def test_a_given_pattern_is_not_looked_for() -> None:
    f = lambda x: fnp.sort(x)  # couples everything, as far as its operations show
    x = jnp.arange(9.0)
    assert fad.sparse_pattern(f)(x).products == 9
    found = fad.sparse_jacobian(f, pattern=np.eye(9, dtype=bool))(x)
    assert found.nse == 9
    np.testing.assert_array_equal(found.todense(), np.eye(9))
    assert fad.sparse_pattern(f, pattern=np.eye(9))(x).products == 1


def test_each_kind_of_matrix_is_a_pattern() -> None:
    scipy = pytest.importorskip("scipy.sparse", reason="one of the kinds")
    x = numbers(2, 3)
    f = lambda x: x[0] * x[1]
    whole = fad.jacfwd(f)(x)
    mask = np.asarray(whole) != 0
    bcoo = fad.sparsity(f)(x)
    flat = mask.reshape(3, 6)
    padded = sparse.BCOO.fromdense(mask.astype(np.float32), nse=20)
    for pattern in (
        mask,
        jnp.asarray(mask),
        fad.tensor(mask.astype(np.float32)),
        flat,
        bcoo,
        padded,
        fad.sparse_jacobian(f)(x),
        fad.sparse_jacobian(f, format="bcsr")(x),
        scipy.coo_array(flat),
        scipy.csr_array(flat),
        scipy.csc_matrix(flat),
    ):
        found = fad.sparse_jacobian(f, pattern=pattern)(x)
        assert found.nse == 6
        np.testing.assert_array_equal(found.todense(), whole)


def test_patterns_of_pytrees() -> None:
    expected = fad.jacfwd(fields, (0, 1))(P, Y)
    given = fad.sparsity(fields, (0, 1))(P, Y)
    assert_same(fad.sparse_jacobian(fields, (0, 1), pattern=given)(P, Y), expected)
    without = jax.tree.map(lambda m: m if m.nse else None, given, is_leaf=is_matrix)
    assert_same(fad.sparse_jacobian(fields, (0, 1), pattern=without)(P, Y), expected)
    pattern = fad.sparse_pattern(fields, (0, 1))(P, Y)
    whole = np.zeros(pattern.shape, bool)
    whole[pattern.rows, pattern.cols] = True
    assert_same(fad.sparse_jacobian(fields, (0, 1), pattern=whole)(P, Y), expected)


def test_a_half_of_a_hessian_is_enough() -> None:
    f = lambda x: (x[1:] * x[:-1] ** 2).sum()
    x = numbers(5)
    upper = np.triu(np.asarray(fad.hessian(f)(x)))
    np.testing.assert_allclose(
        fad.sparse_hessian(f, pattern=upper)(x).todense(), fad.hessian(f)(x), rtol=1e-5
    )


# Patterns of random programs cover what is not 0

FULL = settings.get_current_profile_name() == "full"
STEPS: list[Callable[[Any], Any]] = [
    fnp.sin,
    lambda x: x[::-1] * x,
    lambda x: fnp.roll(x, 1) * 2.0,
    lambda x: fnp.where(x > 0, x, x[0]),
    lambda x: x.reshape(2, 3).T.reshape(-1),
    lambda x: fnp.concatenate([x[3:] ** 2, x[:3]]),
    lambda x: x.at[1:3].set(x[4:6] * x[0]),
    lambda x: x + fnp.cumsum(x[:2])[1] * fnp.eye(6)[2],
    lambda x: fnp.diag(fnp.arange(6.0)) @ x,
    lambda x: fad.lax.fori_loop(0, 2, lambda i, x: fnp.roll(x, 2) * x, x),
    lambda x: fnp.sort(x[:2]).sum() + x,
]


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=200 if FULL else 12, deadline=None)
def test_patterns_of_random_programs(steps: list[Callable[[Any], Any]], seed: int) -> None:
    def f(p: Any) -> Any:
        x = p["x"] * p["s"]
        for step in steps:
            x = step(x)
        return {"whole": x, "part": x[::2] * p["s"]}

    draw = np.random.default_rng(seed)
    p = {"x": jnp.asarray(draw.normal(size=6).astype(np.float32)), "s": jnp.float32(0.7)}
    expected = fad.jit(fad.jacfwd(f))(p)  # one program: faster
    found = fad.sparsity(f)(p)
    for block, numbers in zip(
        jax.tree.leaves(found, is_leaf=is_matrix), jax.tree.leaves(expected), strict=True
    ):
        assert not np.any((np.asarray(block.todense()) == 0) & (np.asarray(numbers) != 0))
    for g, w in zip(
        jax.tree.leaves(dense_of(fad.sparse_jacobian(f, chunk_size=2)(p))),
        jax.tree.leaves(expected),
        strict=True,
    ):
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-4)


# Bad calls

X = np.ones(3, np.float32)
SQUARE = fad.sparse_pattern(fnp.square)(X)
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a chunk of no products": (
        lambda: fad.sparse_jacobian(fnp.sin, chunk_size=0),
        ArgumentError,
        "sparse_jacobian: chunk_size should be None or an int greater than 0, got 0",
    ),
    "no such argument": (
        lambda: fad.sparse_jacobian(fnp.sin, 1)(X),
        StructureError,
        "argnums=1 is out of range",
    ),
    "an argument twice": (
        lambda: fad.sparse_hessian(lambda x, y: (x * y).sum(), (0, 0))(X, X),
        StructureError,
        "names an argument twice",
    ),
    "no arrays": (
        lambda: fad.sparse_jacobian(lambda p: X)({}),
        StructureError,
        "have no arrays",
    ),
    "no such format": (
        lambda: fad.sparse_jacobian(fnp.sin, format="coo"),
        ArgumentError,
        "format must be 'bcoo', 'bcsr' or 'scipy', got 'coo'",
    ),
    "a predicate among outputs": (
        lambda: fad.sparse_jacobian(lambda x: {"y": x, "m": x > 0})(X),
        GradientError,
        r"output\['m'\] has dtype bool",
    ),
    "a text among outputs": (
        lambda: fad.sparse_jacobian(lambda x: (x, "text"))(X),
        ArgumentError,
        "output 1 of the function must be an array",
    ),
    "a complex leaf": (
        lambda: fad.sparse_hessian(lambda p: p["x"].sum())({"x": X, "z": X + 0j}),
        GradientError,
        r"argument 0\['z'\] is complex",
    ),
    "SciPy's format under jit": (
        lambda: fad.jit(fad.sparse_jacobian(fnp.sin, format="scipy"))(X),
        HostValueError,
        "makes a matrix on the host",
    ),
    "SciPy's format under grad": (
        lambda: fad.grad(lambda x: fad.sparse_jacobian(fnp.sin, format="scipy")(x).sum())(X),
        HostValueError,
        "makes a matrix on the host",
    ),
    "SciPy's format on the tape": (
        lambda: fad.sparse_jacobian(fnp.sin, format="scipy")(fad.tensor(X, requires_grad=True)),
        HostValueError,
        "makes a matrix on the host",
    ),
    "a matrix of another shape": (
        lambda: fad.sparse_jacobian(fnp.sin, pattern=np.eye(4))(X),
        StructureError,
        r"output by argument 0 has shape \(4, 4\), expected \(3, 3\)",
    ),
    "a list": (
        lambda: fad.sparse_jacobian(fnp.sin, pattern=[np.eye(3)])(X),
        StructureError,
        "expected a matrix, or one matrix of shape .*fad.sparsity",
    ),
    "no matrix": (
        lambda: fad.sparse_jacobian(fnp.sin, pattern="eye")(X),
        StructureError,
        "must be an array, a BCOO, a BCSR",
    ),
    "a matrix for a pytree": (
        lambda: fad.sparse_jacobian(lambda x: (x, x), pattern=np.eye(3))(X),
        StructureError,
        r"expected matrices in the structure PyTreeDef\(\(\*, \*\)\), or one matrix of shape \(6, 3\)",
    ),
    "a pattern of other arguments": (
        lambda: fad.sparse_jacobian(fnp.sin, pattern=SQUARE)(np.ones(4, np.float32)),
        StructureError,
        r"is for outputs output of shape \(3,\), got output of shape \(4,\)",
    ),
    "a pattern of another function's structure": (
        lambda: fad.sparse_jacobian(lambda p: p["a"], pattern=SQUARE)({"a": X}),
        StructureError,
        r"is for arguments argument 0 of shape .*, got argument 0\['a'\].*sparse_pattern\(f",
    ),
    "a Jacobian's pattern": (
        lambda: fad.sparse_hessian(lambda x: (x**2).sum(), pattern=SQUARE)(X),
        StructureError,
        "is that of a Jacobian, expected that of a Hessian.*hessian=True",
    ),
    "a Hessian's pattern": (
        lambda: fad.sparse_jacobian(
            fnp.sin, pattern=fad.sparse_pattern(lambda x: (x**2).sum(), hessian=True)(X)
        )(X),
        StructureError,
        "is that of a Hessian, expected that of a Jacobian",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("pattern", [None, np.eye(2)], ids=["found", "given"])
def test_a_tensor_that_f_closes_over_may_require_grad_later(pattern: Any) -> None:
    w = fad.tensor([2.0, 3.0])
    x = jnp.array([1.0, 2.0])
    jacobian = fad.sparse_jacobian(lambda x: x**2 * w, pattern=pattern)
    before = jacobian(x).todense()
    hessian = fad.sparse_hessian(lambda x: fnp.sum(x**3 * w), pattern=pattern)
    hessian(x)
    w.requires_grad_()
    np.testing.assert_array_equal(jacobian(x).data.detach().array, before.diagonal())
    fnp.sum(jacobian(x).data).backward()
    np.testing.assert_allclose(w.grad.array, 2.0 * x)
    w.grad = None
    fnp.sum(hessian(x).data).backward()
    np.testing.assert_allclose(w.grad.array, 6.0 * x)
