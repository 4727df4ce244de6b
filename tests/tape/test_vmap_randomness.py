"""Random draws inside of vmap, in code that is staged there (jit, scan, ...) as in code that is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, assert_close, bare, is_idle
from namespace_cases import V

import fad
import fad.numpy as fnp
import fad.random
from fad.core.level import state
from fad.errors import LevelError

KEYS = jax.random.split(jax.random.key(3), 4)
SHARED = r"with a key that all lanes share.*randomness='different'.*vmap\(f\)\(fad.random.split"


def collatz(m: Any, draw: Any, key: Any) -> Any:
    """A loop whose key is carried along, until enough has been drawn."""
    return m.lax.while_loop(
        lambda c: c[0] < 4,
        lambda c: (c[0] + 1, m.random.fold_in(c[1], 7), c[2] + draw(c[1])),
        (0, key, 0.0),
    )[2]


# Each takes a library, what draws, and a key.
PROGRAMS: dict[str, Any] = {
    "plain": lambda m, draw, key: draw(key),
    "jit": lambda m, draw, key: m.jit(draw)(key),
    "jit in jit": lambda m, draw, key: m.jit(lambda k: 2.0 * m.jit(draw)(k))(key),
    "jit that closes over": lambda m, draw, key: m.jit(lambda x: x + draw(m.random.key(5)))(
        draw(key)
    ),
    "keys of a scan": lambda m, draw, key: m.lax.map(draw, m.random.split(key, 3)),
    "carry of a loop": lambda m, draw, key: m.lax.fori_loop(
        0, 3, lambda i, c: (m.random.fold_in(c[0], i), c[1] + draw(c[0])), (key, 0.0)
    )[1],
    "while": collatz,
    "scan that closes over": lambda m, draw, key: m.lax.map(
        lambda i: draw(m.random.fold_in(key, i)), m.np.arange(3)
    ),
    "cond": lambda m, draw, key: m.lax.cond(
        m.random.bits(key) % 2 == 1, draw, lambda k: -draw(m.random.fold_in(k, 1)), key
    ),
    "scan in jit": lambda m, draw, key: m.jit(
        lambda k: m.lax.map(lambda k: m.jit(draw)(k), m.random.split(k, 3))
    )(key),
    "vmap in jit": lambda m, draw, key: m.jit(lambda k: m.vmap(draw)(m.random.split(k, 3)))(key),
    "checkpoint in jit": lambda m, draw, key: m.jit(lambda k: m.checkpoint(draw)(k))(key),
    "gradient": lambda m, draw, key: m.jit(
        lambda k: m.grad(lambda x: m.np.sin(x) * draw(k) + draw(k) * x)(0.5)
    )(key),
}
# These draw with other keys than the one they are given, or are traced apart from the vmap around them.
TRACED_APART = "cond", "vmap in jit", "checkpoint in jit"


class Fad:
    """What the programs call of fad."""

    np, lax, random, jit, vmap, grad = fnp, fad.lax, fad.random, fad.jit, fad.vmap, fad.grad
    checkpoint = staticmethod(fad.checkpoint)


class Jax:
    """The same of JAX."""

    np, lax, random, jit, vmap, grad = jnp, jax.lax, jax.random, jax.jit, jax.vmap, jax.grad
    checkpoint = staticmethod(jax.checkpoint)


def in_fad(name: str) -> Any:
    return lambda key: PROGRAMS[name](Fad, lambda k: fad.random.normal(k), key)


def in_jax(name: str, lane: Any = None) -> Any:
    """With the number of a lane folded into each key that is drawn with, if there is one."""

    def draw(key: Any) -> Any:
        return jax.random.normal(key if lane is None else jax.random.fold_in(key, lane))

    return lambda key: PROGRAMS[name](Jax, draw, key)


@pytest.mark.parametrize("name", [p for p in PROGRAMS if p != "jit that closes over"])
def test_keys_of_their_own(name: str) -> None:
    expected = jax.jit(jax.vmap(in_jax(name)))(KEYS)
    assert np.unique(np.asarray(expected)).size == expected.size
    assert_close(fad.vmap(in_fad(name))(KEYS), expected)
    if name in ("jit", "scan in jit"):
        assert_close(fad.jit(fad.vmap(in_fad(name)))(KEYS), expected)
        assert_close(jax.jit(fad.vmap(in_fad(name)))(KEYS), expected)
        assert_close(fad.vmap(in_fad(name), randomness="same")(KEYS), expected)
        assert_close(fad.vmap(in_fad(name))(jax.random.key_data(KEYS)), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_key_that_all_lanes_share(name: str) -> None:
    def f(x: Any) -> Any:
        return x + in_fad(name)(KEYS[0])

    zeros = jnp.zeros(4)
    with pytest.raises(LevelError, match=SHARED):
        fad.vmap(f)(zeros)
    assert not state.levels and state.body is None
    if name in ("jit", "scan in jit"):
        one = in_jax(name)(KEYS[0])
        assert_close(fad.vmap(f, randomness="same")(zeros), jnp.stack([one] * 4))


@pytest.mark.parametrize("name", [p for p in PROGRAMS if p not in TRACED_APART])
def test_draws_that_differ(name: str) -> None:
    """The number of the lane is folded into each key, whatever it is."""
    for dims, keys in ((None, jnp.stack([KEYS[0]] * 4)), (0, KEYS)):
        expected = jax.jit(jax.vmap(lambda i, key: in_jax(name, i)(key)))(jnp.arange(4), keys)
        mapped = fad.vmap(in_fad(name), (dims,), axis_size=4, randomness="different")
        given = KEYS if dims == 0 else KEYS[0]
        assert_close(mapped(given), expected)
        if name in ("jit", "scan in jit"):
            assert_close(fad.jit(mapped)(given), expected)


def test_lanes_that_decide_and_share_a_key() -> None:
    def f(n: Any) -> Any:
        return fad.lax.cond(n > 1, in_fad("plain"), lambda k: 0.0, KEYS[0])

    with pytest.raises(LevelError, match=SHARED):
        fad.vmap(f)(jnp.arange(4))
    drawn = jax.random.normal(KEYS[0])
    expected = jnp.array([0.0, 0.0, drawn, drawn])
    assert_close(fad.vmap(f, randomness="same")(jnp.arange(4)), expected)


def test_a_key_that_one_iteration_of_a_loop_makes_differ() -> None:
    """It is shared when the loop begins."""

    def f(m: Any, n: Any) -> Any:
        def iteration(i: Any, c: Any) -> Any:
            key = m.random.fold_in(c[0], n)
            return key, c[1] + m.random.normal(key)

        return m.lax.fori_loop(0, 3, iteration, (KEYS[0], 0.0))[1]

    lanes = jnp.arange(4)
    assert_close(fad.vmap(lambda n: f(Fad, n))(lanes), jax.vmap(lambda n: f(Jax, n))(lanes))


def test_one_compiled_function_in_several_vmaps() -> None:
    """What it was compiled for outside of them, or in others, is not used."""
    draw = fad.jit(lambda x, key: x + fad.random.normal(key))
    x, every = jnp.zeros(4), jnp.stack([jax.random.normal(k) for k in KEYS])
    folded = jnp.stack([jax.random.normal(jax.random.fold_in(KEYS[0], i)) for i in range(4)])
    for _ in range(2):
        assert_close(draw(0.0, KEYS[0]), every[0])
        assert_close(fad.vmap(draw)(x, KEYS), every)
        with pytest.raises(LevelError, match=SHARED):
            fad.vmap(draw, (0, None))(x, KEYS[0])
        assert_close(fad.vmap(draw, (None, 0))(0.0, KEYS), every)
        assert_close(fad.vmap(draw, (0, None), randomness="same")(x, KEYS[0]), every[:1].repeat(4))
        assert_close(fad.vmap(draw, (0, None), randomness="different")(x, KEYS[0]), folded)
        chunks = fad.vmap(draw, (0, None), randomness="different", chunk_size=3)
        assert_close(chunks(x, KEYS[0]), folded)
    seen: list[str] = []
    fad.vmap(lambda x: seen.append(draw.explain(x, KEYS[0])) or x)(jnp.zeros(7))
    assert "the vmaps around the call, for random draws" in seen[0]


def test_vmaps_inside_of_each_other() -> None:
    draw = fad.jit(lambda x, key: x + fad.random.normal(key))
    x = jnp.zeros((2, 4))
    every = jnp.stack([jax.random.normal(k) for k in KEYS])
    with pytest.raises(LevelError, match=SHARED):  # over the rows all share the keys
        fad.vmap(lambda x: fad.vmap(draw)(x, KEYS))(x)
    rows = fad.vmap(lambda x: fad.vmap(draw)(x, KEYS), randomness="same")(x)
    assert_close(rows, jnp.stack([every] * 2))
    rows = fad.vmap(lambda x: fad.vmap(draw)(x, KEYS), randomness="different")(x)
    folded = lambda i: jax.vmap(lambda k: jax.random.normal(jax.random.fold_in(k, i)))(KEYS)
    assert_close(rows, jnp.stack([folded(0), folded(1)]))
    keys = jax.random.split(KEYS[0], (2, 4))
    assert_close(fad.vmap(fad.vmap(draw))(x, keys), jax.vmap(jax.vmap(jax.random.normal))(keys))


def test_what_has_been_drawn_differs() -> None:
    """A key that is made of numbers which lanes have drawn is one of their own."""

    def twice(key: Any) -> Any:
        first = fad.random.bits(key)
        return fad.random.normal(fad.random.fold_in(fad.random.key(1), first))

    wanted = jnp.stack(
        [jax.random.normal(jax.random.fold_in(jax.random.key(1), jax.random.bits(k))) for k in KEYS]
    )
    assert_close(fad.vmap(fad.jit(twice))(KEYS), wanted)
    assert_close(fad.vmap(lambda k: fad.lax.map(twice, k[None]))(KEYS)[:, 0], wanted)


class Noise(fad.Function):
    """x and a draw."""

    @staticmethod
    def forward(x, key):
        return x + fad.random.normal(key)


STAGED: dict[str, Any] = {
    "jit": lambda x, key: fad.jit(Noise.apply)(x, key),
    "scan": lambda x, key: fad.lax.map(lambda k: Noise.apply(x, k), key[None])[0],
    "jit of a gradient": lambda x, key: fad.jit(fad.grad(lambda x, k: Noise.apply(x, k) * x))(
        x, key
    ),
}


@pytest.mark.parametrize("name", STAGED)
def test_functions_that_draw(name: str) -> None:
    x = jnp.arange(4.0)
    draws = jnp.stack([jax.random.normal(k) for k in KEYS])
    expected = 2 * x + draws if name == "jit of a gradient" else x + draws
    assert_close(fad.vmap(STAGED[name])(x, KEYS), expected)
    assert_close(fad.jit(fad.vmap(STAGED[name]))(x, KEYS), expected)
    with pytest.raises(LevelError, match="all lanes share"):
        fad.vmap(STAGED[name], (0, None))(x, KEYS[0])


def test_a_draw_is_differentiated_and_compiled_like_any_other() -> None:
    def f(m: Any, x: Any, key: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            return c * m.np.exp(0.1 * m.random.normal(k)), c

        keys = m.random.split(key, 3)
        return m.lax.scan(step, x, keys)[0] ** 2

    IN = {"fad": IN_FAD, "jax": IN_JAX}
    x = jnp.arange(4.0)

    class FadAll(Fad):
        np, lax = IN["fad"].np, IN["fad"].lax

    class JaxAll(Jax):
        np, lax = IN["jax"].np, IN["jax"].lax

    wanted = jax.vmap(jax.value_and_grad(lambda x, k: f(JaxAll, x, k)))(x, KEYS)
    got = fad.vmap(fad.value_and_grad(lambda x, k: f(FadAll, x, k)))(x, KEYS)
    for a, b in zip(got, wanted, strict=True):
        assert_close(a, b)
    total = fad.grad(lambda x: fnp.sum(fad.vmap(lambda x, k: f(FadAll, x, k))(x, KEYS)))(x)
    assert_close(total, wanted[1])
    _, slope = fad.jvp(lambda x: fad.vmap(lambda x, k: f(FadAll, x, k))(x, KEYS), (x,), (x,))
    assert_close(slope, wanted[1] * x)


def test_deferred_keys() -> None:
    """Inside of a transform, where operations are deferred."""

    def f(m: Any, x: Any) -> Any:
        bits = m.random.key_data(KEYS[0]) + 1
        keys = m.random.split(bits, 3)
        return x * m.np.sum(m.vmap(m.random.normal)(keys)) + m.np.sum(
            m.vmap(m.jit(m.random.normal))(keys)
        )

    for _ in range(4):
        assert_close(fad.grad(lambda x: f(Fad, x))(0.5), jax.grad(lambda x: f(Jax, x))(0.5))
        t = fad.tensor(0.5, requires_grad=True)
        f(Fad, t).backward()
        assert_close(t.grad, jax.grad(lambda x: f(Jax, x))(0.5))


class Scaled(fad.Function):
    """x squared, times a draw."""

    @staticmethod
    def forward(x, key):
        return x * x * fad.random.normal(key)


class Drawn(fad.Function):
    """A draw alone."""

    @staticmethod
    def forward(key):
        return fad.random.normal(key)


class Inner(fad.Function):
    """Draws in a vmap of its own, with a key for each of its lanes."""

    @staticmethod
    def forward(x, key):
        return x + fad.vmap(fad.jit(fad.random.normal))(fad.random.split(key, 3)).sum()


COMPILED: dict[str, Any] = {
    "jit": lambda x, key: fad.jit(Scaled.apply)(x, key),
    "jit of a gradient": lambda x, key: fad.jit(fad.grad(Scaled.apply))(x, key),
    "gradient in a scan": lambda x, key: fad.lax.map(
        lambda x: fad.value_and_grad(Scaled.apply)(x, key), x[None]
    ),
    "keys of a scan": lambda x, key: fad.lax.map(lambda k: Scaled.apply(x, k), key[None]),
    "checkpoint": lambda x, key: fad.jit(
        fad.grad(fad.checkpoint(lambda x, key: x * x * fad.random.normal(key)))
    )(x, key),
}


@pytest.mark.parametrize("name", COMPILED)
def test_the_numbers_of_lanes_do_not_reach_functions_in_compiled_code(name: str) -> None:
    """That is an error, rather than other numbers in the derivative than in the function."""
    f, x = COMPILED[name], jnp.ones(4)
    draws = jnp.stack([jax.random.normal(k) for k in KEYS])
    for dims, keys in (((0, 0), KEYS), ((0, None), KEYS[0])):
        with pytest.raises(LevelError, match="numbers of the lanes.*cannot reach it"):
            fad.vmap(f, dims, randomness="different")(x, keys)
    if name == "jit of a gradient":
        assert_close(fad.vmap(f)(x, KEYS), 2 * draws)
        assert_close(fad.vmap(f, randomness="same")(x, KEYS), 2 * draws)
        assert_close(fad.vmap(Scaled.apply)(x, KEYS), draws)


@pytest.mark.parametrize("randomness", ["error", "same"])
def test_values_and_gradients_have_the_same_draws(randomness: str) -> None:
    both = fad.vmap(COMPILED["gradient in a scan"], randomness=randomness)
    value, slope = both(jnp.ones(4), KEYS)
    assert_close(value[:, 0], jnp.stack([jax.random.normal(k) for k in KEYS]))
    assert_close(slope, 2 * value)


def test_calls_with_a_key_that_no_argument_makes_differ() -> None:
    zeros = jnp.zeros(4)
    for f in (
        lambda x: x + fad.jit(Drawn.apply)(KEYS[0]),
        lambda x: fad.lax.scan(lambda c, k: (c + Drawn.apply(k), None), x, KEYS)[0],
        lambda x: fad.jit(lambda x: x + Scaled.apply(2.0, KEYS[0]))(x),
    ):
        for _ in range(2):
            with pytest.raises(LevelError, match="all lanes share"):
                fad.vmap(f)(zeros)


def test_a_vmap_in_the_body_of_a_compiled_function() -> None:
    expected = fad.vmap(Inner.apply)(jnp.zeros(4), KEYS)
    assert_close(fad.vmap(fad.jit(Inner.apply))(jnp.zeros(4), KEYS), expected)


def test_compiled_code_in_functions_and_outside_of_them() -> None:
    """What was traced apart from the vmap around is not what runs in it."""
    draw = fad.jit(lambda key: fad.random.normal(key))

    class Uses(fad.Function):
        @staticmethod
        def forward(x, key):
            return x + draw(key)

    def f(x: Any) -> Any:
        fad.lax.map(lambda k: Uses.apply(0.0, k), x.reshape(1).astype("uint32") + raw)
        return x + draw(KEYS[0])

    raw = jax.random.key_data(KEYS[:1])
    with pytest.raises(LevelError, match="all lanes share"):
        fad.vmap(f)(jnp.zeros(4))


def test_a_key_that_is_shared_in_the_first_iteration_of_a_loop() -> None:
    def rejection(m: Any, x: Any) -> Any:
        return m.lax.while_loop(
            lambda c: c[1] < x,
            lambda c: (m.random.split(c[0])[0], c[1] + m.random.uniform(c[0])),
            (KEYS[0], 0.0),
        )[1]

    def folded(m: Any, n: Any) -> Any:
        step = lambda c, _: ((m.random.fold_in(c[0], n), c[1] + m.random.normal(c[0])), None)
        return m.lax.scan(step, (KEYS[0], 0.0), None, length=2)[0][1]

    for f, x in ((rejection, jnp.arange(1.0, 5.0)), (folded, jnp.arange(4))):
        with pytest.raises(LevelError, match=SHARED):
            fad.vmap(lambda x, f=f: f(Fad, x))(x)
        expected = jax.vmap(lambda x, f=f: f(Jax, x))(x)
        assert_close(fad.vmap(lambda x, f=f: f(Fad, x), randomness="same")(x), expected)


def test_lanes_are_counted_once_whatever_is_traced_meanwhile() -> None:
    def f(x: Any) -> Any:
        jax.eval_shape(lambda: (fad.random.normal(KEYS[0]), 0.0)[1])
        return x + fad.random.normal(KEYS[0])

    expected = jnp.stack([jax.random.normal(jax.random.fold_in(KEYS[0], i)) for i in range(4)])
    assert_close(fad.vmap(f, randomness="different")(jnp.zeros(4)), expected)


def test_functions_that_draw_nothing_are_traced_no_more_often() -> None:
    traces = []

    @fad.jit
    def f(x: Any, y: Any) -> Any:
        traces.append(1)
        return x * fnp.sin(y)

    x = jnp.arange(4.0)
    f(1.0, 2.0)
    for dims in ((0, 0), (0, None), (None, 0)):
        for randomness in ("error", "same", "different"):
            operands = [x if d == 0 else 1.0 for d in dims]
            fad.vmap(f, dims, randomness=randomness)(*operands)
    seen = len(traces)
    fad.vmap(fad.vmap(f))(jnp.ones((2, 4)), jnp.ones((2, 4)))
    assert seen <= 4 and len(traces) == seen  # by weak types and dtypes alone


@pytest.mark.parametrize("name", ["function", "checkpoint"])
def test_jacobians_of_compiled_functions_that_draw(name: str) -> None:
    """All their passes share what the function drew."""
    key = KEYS[0]
    f = {
        "function": lambda x: Scaled.apply(x, key),
        "checkpoint": fad.checkpoint(lambda x: x * x * fad.random.normal(key)),
    }[name]
    x = jnp.arange(1.0, 4.0)
    slope = 2 * jnp.diag(x) * jax.random.normal(key)
    assert_close(fad.jacfwd(fad.jit(f))(x), slope)
    assert_close(fad.jacrev(fad.jit(f))(x), slope)
    hessian = fad.hessian(fad.jit(lambda x: fnp.sum(f(x))))(x)
    assert_close(hessian, 2 * jnp.eye(3) * jax.random.normal(key))
    assert_close(fad.vmap(fad.jit(f), randomness="same")(x), x * x * jax.random.normal(key))
    with pytest.raises(LevelError, match=SHARED):
        fad.vmap(fad.jit(f))(x)


def test_which_argument_differs_is_known_inside_of_functions() -> None:
    """A key that lanes share is refused, though another argument differs."""
    with pytest.raises(LevelError, match=SHARED):
        fad.vmap(fad.jit(Scaled.apply), (0, None))(jnp.ones(4), KEYS[0])
    draws = jnp.stack([jax.random.normal(k) for k in KEYS])
    assert_close(fad.vmap(fad.jit(Scaled.apply), (None, 0))(2.0, KEYS), 4.0 * draws)
    with pytest.raises(LevelError, match="all lanes share"):  # under JAX's own vmap too
        jax.vmap(Scaled.apply, (0, None))(jnp.ones(4), KEYS[0])


X = jnp.array([0.3, -0.8, 1.2])


# What vmap is told, and jacobians


def test_randomness_modes() -> None:
    key = jax.random.key(0)
    draw = lambda x: x * 0.0 + fad.random.normal(key)
    with pytest.raises(LevelError, match=r"randomness='different'.*split"):
        fad.vmap(draw)(X)
    assert is_idle()
    same = bare(fad.vmap(draw, randomness="same")(X))
    assert np.unique(same).size == 1
    np.testing.assert_allclose(same[0], jax.random.normal(key), rtol=1e-6)
    different = bare(fad.vmap(draw, randomness="different")(X))
    assert np.unique(different).size == 3
    nested = fad.vmap(fad.vmap(draw, randomness="different"), randomness="same")(jnp.zeros((2, 3)))
    assert np.unique(bare(nested)).size == 3
    both = fad.vmap(fad.vmap(draw, randomness="different"), randomness="different")
    assert np.unique(bare(both(jnp.zeros((2, 3))))).size == 6
    keys = jax.random.split(key, 3)
    got = fad.vmap(lambda k: fad.random.uniform(k, (2,)))(keys)  # keys of their own: no mode asked
    assert_close(got, jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys))


def test_chunks_draw_what_the_whole_batch_would() -> None:
    key = jax.random.key(0)

    class Noise(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x + fad.random.normal(key)

    for f in (lambda x: x + fad.random.normal(key), Noise.apply):
        whole = fad.vmap(f, randomness="different")(X)
        assert_close(fad.vmap(f, randomness="different", chunk_size=2)(X), whole)
        assert np.unique(bare(whole) - X).size == 3


def test_random_numbers_in_a_jacobian_are_those_of_the_function() -> None:
    key = jax.random.key(0)
    f = lambda lib: lambda x: x * x * lib.random.normal(key)
    for name in ("jacrev", "jacfwd"):
        assert_close(getattr(fad, name)(f(fad))(X), getattr(jax, name)(f(jax))(X))
    got = fad.hessian(lambda x: fnp.sum(f(fad)(x)))(X)
    assert_close(got, jax.hessian(lambda x: jnp.sum(f(jax)(x)))(X))


def test_random_numbers_under_vmap_and_grad() -> None:
    key = jax.random.key(1)

    def noisy(x: Any) -> Any:
        return fnp.sum(fad.random.normal(key, (2,))) * x * x

    g = fad.vmap(fad.grad(noisy), randomness="different")(X)
    y = fad.vmap(noisy, randomness="different")(X)
    assert_close(g, 2.0 * y / X)


KEY = jax.random.key(3)


def test_randomness_under_vmap() -> None:
    def draw(_: Any) -> Any:
        return fad.random.normal(KEY, (2,))

    with pytest.raises(RuntimeError, match="randomness"):
        fad.vmap(draw)(V)
    same = fad.vmap(draw, randomness="same")(V)
    different = fad.vmap(draw, randomness="different")(V)
    assert len(np.unique(np.asarray(same), axis=0)) == 1
    assert len(np.unique(np.asarray(different), axis=0)) == len(V)
    keys = jax.random.split(KEY, 5)
    mapped = fad.vmap(lambda k: fad.random.normal(k, (2,)))(keys)
    np.testing.assert_allclose(mapped, jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys))
    split = fad.vmap(lambda k: fad.random.key_data(fad.random.split(k)))(keys)
    assert split.shape[:2] == (5, 2)
