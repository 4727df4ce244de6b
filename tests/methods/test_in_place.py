"""The in-place methods: each writes what its twin without the underscore returns."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
from fad.core.primitive import Primitive
from fad.methods import in_place, names

A = jnp.array([0.3, 0.6, 0.9])
V = jnp.array([0.5, -1.0, 2.0])
P = jnp.eye(3) + 0.2  # a matrix, and positive
N = jnp.array([3, 5, 6])
FIRST, OF_TWO = jnp.array([0, 0, 2]), jnp.array([2, 0])
BATCH = jnp.arange(18.0).reshape(2, 3, 3)

# Arguments; the Tensor is `A`, or `N` or `P` by the lists below.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "addbmm": (BATCH, BATCH),
    "addcdiv": (A, V),
    "addcmul": (A, V),
    "addmm": (P, P),
    "addmv": (P, V),
    "addr": (V, V),
    "baddbmm": (BATCH[:1], BATCH[:1]),
    "clamp": (0.4, 0.8),
    "clamp_max": (0.7,),
    "clamp_min": (0.4,),
    "clip": (0.4, 0.8),
    "copy": (V,),
    "cumprod": (0,),
    "cumsum": (0,),
    "fill": (2.0,),
    "fill_diagonal": (2.0,),
    "index_add": (0, FIRST, V),
    "index_copy": (0, OF_TWO, V[:2]),
    "index_fill": (0, OF_TWO, 4.0),
    "index_put": ((OF_TWO,), 5.0),
    "index_reduce": (0, FIRST, V, "amax"),
    "ldexp": (N,),
    "lerp": (2.0, 0.5),
    "masked_fill": (A > 0.5, 7.0),
    "masked_scatter": (A > 0.5, V),
    "matmul": (P,),
    "mvlgamma": (1,),
    "polygamma": (1,),
    "put": (OF_TWO, V[:2]),
    "renorm": (2, 0, 1.0),
    "scatter": (0, OF_TWO, V[:2]),
    "scatter_add": (0, FIRST[:2], V[:2]),
    "scatter_reduce": (0, FIRST, V, "mean"),
}
BINARY = """add arctan2 atan2 copysign div divide eq equal float_power floor_divide fmax fmin fmod ge
greater greater_equal gt heaviside hypot igamma igammac le less less_equal logaddexp logaddexp2 logical_and
logical_or logical_xor lt maximum minimum mod mul multiply ne nextafter not_equal pow power remainder sub
subtract true_divide xlogy""".split()
OF_INTEGERS = """bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor gcd invert lcm left_shift right_shift""".split()
OF_MATRICES = "addbmm addmm addr baddbmm fill_diagonal matmul renorm tril triu".split()
EXPECTED = {  # of those that have no twin
    "copy_": V,
    "fill_": jnp.full(3, 2.0),
    "fill_diagonal_": P.at[jnp.arange(3), jnp.arange(3)].set(2.0),
    "put_": A.at[OF_TWO].set(V[:2]),
    "zero_": jnp.zeros(3),
}
# In NumPy `fill`, `fill_diagonal` and `put` write in place, and `copy` takes no values.
WITHOUT_TWIN = [*EXPECTED, "requires_grad_"]
OTHERS = ["detach_", "requires_grad_", *in_place.SHAPES]  # that write no new values


def in_place_names() -> list[str]:
    return sorted(n for n in dir(fad.Tensor) if n.endswith("_") and not n.startswith("_"))


def example(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A value for the method ``name`` (without its underscore), and arguments."""
    if name in OF_INTEGERS:
        x, other = N, jnp.array([1, 2, 2])
        unary = name in ("bitwise_invert", "bitwise_not", "invert")
        return x, () if unary else (other,)
    x = P[None] if name == "baddbmm" else P if name in OF_MATRICES else A
    return x, ARGUMENTS.get(name, (V,) if name in BINARY else ())


@pytest.mark.parametrize("name", in_place_names())
def test_in_place_methods_have_twins(name: str) -> None:
    assert (name in WITHOUT_TWIN) or hasattr(fad.Tensor, name[:-1])
    assert (
        name in OTHERS or name in EXPECTED or name == "index_put_" or name[:-1] in names.ELEMENTWISE
    )


@pytest.mark.sweep("name", [n for n in in_place_names() if n not in OTHERS], sample=22)
def test_in_place_methods_write_what_their_twins_return(name: str) -> None:
    start, arguments = example(name[:-1])
    for view in (lambda x: x, lambda x: x[...], lambda x: x[::-1]):
        x = fad.tensor(start)
        v = view(x)
        if name in EXPECTED:
            expected = EXPECTED[name]
            if view(start)[0].tolist() != start[0].tolist():
                continue
        else:
            expected = getattr(v, name[:-1])(*arguments).array
        same = getattr(v, name)(*arguments)
        assert same is v
        assert_close(v, jnp.asarray(expected).astype(start.dtype))
        assert x.version == 1
        assert_close(view(x), v.array)


def test_a_step_of_gradient_descent() -> None:
    w = fad.tensor([1.0, -2.0], requires_grad=True)
    (w * w).sum().backward()
    with fad.no_grad():
        for method, keywords in (("add_", {"alpha": -0.1}), ("sub_", {"alpha": 0.1})):
            assert getattr(w, method)(w.grad, **keywords) is w
    assert_close(w.detach(), jnp.array([0.6, -1.2]))
    assert w.version == 2


def test_gradients_flow_through_writes_and_their_twins() -> None:
    def written(x: Any, y: Any) -> Any:
        z = x * 1.0
        z[1:].index_add_(0, OF_TWO * 0, y[:2]).masked_fill_(A[1:] > 0.7, 0.0)
        return (z * V).sum()

    def returned(x: Any, y: Any) -> Any:
        tail = x[1:].index_add(0, OF_TWO * 0, y[:2]).masked_fill(A[1:] > 0.7, 0.0)
        return x[0] * V[0] + (tail * V[1:]).sum()

    for f in (written, returned):
        assert_close(
            fad.grad(f, argnums=(0, 1))(A, V),
            (jnp.array([0.5, -1.0, 0.0]), jnp.array([-1.0, -1.0, 0.0])),
        )
    jitted = fad.jit(fad.grad(written))
    assert_close(jitted(A, V), jnp.array([0.5, -1.0, 0.0]))
    lanes = fad.vmap(written, in_dims=(0, None))(jnp.stack([A, V]), V)
    assert_close(lanes, jnp.stack([written(fad.tensor(r), fad.tensor(V)).array for r in (A, V)]))


@pytest.mark.parametrize("name", ["add_", "sub_"])
@pytest.mark.parametrize("data", [[1.0, 2.0], [1, 2]])
@pytest.mark.parametrize("other", [[3.0, 5.0], [3, 5], 2, 0.5])
@pytest.mark.parametrize("alpha", [2, -1, 0.5])
def test_alpha_is_a_factor_as_in_torch(name, data, other, alpha, torch):
    def result(lib):
        x, operand = lib.tensor(data), lib.tensor(other) if isinstance(other, list) else other
        try:
            return getattr(x, name)(operand, alpha=alpha).tolist()
        except RuntimeError:
            return x.tolist(), "refused"

    assert result(fad) == result(torch)


def test_alpha_is_differentiated():
    def f(x, y, alpha):
        z = x * 1.0
        z.add_(other=y, alpha=alpha)
        z.sub_(y, alpha=3.0)
        return (z * z).sum()

    assert_close(
        fad.grad(f, (0, 1, 2))(V, A, 2.0),
        fad.grad(lambda x, y, a: ((x + (a - 3) * y) ** 2).sum(), (0, 1, 2))(V, A, 2.0),
    )


UPDATES = {
    "add_": lambda w, g, s: w.add_(g, alpha=s),
    "sub_": lambda w, g, s: w.sub_(g, alpha=s),
    "addcmul_": lambda w, g, s: w.addcmul_(g, g, value=s),
    "addcdiv_": lambda w, g, s: w.addcdiv_(g, g, value=s),
    "lerp_": lambda w, g, s: w.lerp_(g, s),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_with_a_factor_is_one_compiled_call(name, monkeypatch):
    """Another factor compiles nothing; what had the value of before keeps it."""
    ran: list[Primitive] = []
    execute = Primitive.execute
    monkeypatch.setattr(Primitive, "execute", lambda p, v: (ran.append(p), execute(p, v))[1])
    w, g = fad.tensor([1.0, 2.0, 4.0], requires_grad=True), fad.tensor([2.0, 3.0, 5.0])
    with fad.autograd.compiled(False):  # no other thread runs anything
        kept, view, before = w.array, w[1:], w * 1.0
    with fad.no_grad(), fad.autograd.compiled(False):
        ran.clear()
        UPDATES[name](w, g, 0.5)
        compiled = ran[0].compiled._cache_size()
        for factor in (0.25, 0.125):
            UPDATES[name](w, g, factor)
    assert len(ran) == 3 and len({*ran}) == 1
    assert ran[0].compiled._cache_size() == compiled
    expected = fad.tensor([1.0, 2.0, 4.0])
    for factor in (0.5, 0.25, 0.125):
        expected = UPDATES[name](expected, g, factor)
    assert_close(w, expected)
    assert_close(view, expected[1:])
    assert kept.tolist() == before.tolist() == [1.0, 2.0, 4.0]
    before.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0, 1.0]
