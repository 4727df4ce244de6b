"""A Function under native JAX transforms: its user's rules are used, and nothing of fad is compiled."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Split
from helpers import assert_close, ramp
from jax import lax
from jax.test_util import check_grads

import fad
import fad.numpy as fnp
from fad.errors import LevelError, RuleError

X = jnp.array([0.3, -0.5, 0.7])
W = jnp.array([1.5, 2.0, -1.0])
TWO = jnp.float32(2.0)
SCALE = 3.0  # the users' rules are scaled by this: a derivative taken by other means is not

# Functions of every kind, of values sin(x) w and derivatives SCALE times those


class Derived(fad.Function):
    """No rule of its own: everything is derived from the body, and so not scaled."""

    @staticmethod
    def forward(x, w):
        return fnp.sin(x) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


class Vjp(Derived):
    @staticmethod
    def vjp(ctx, g):
        x, w = ctx.saved_tensors
        return SCALE * g * fnp.cos(x) * w, SCALE * g * fnp.sin(x)


class Jvp(Derived):
    @staticmethod
    def jvp(ctx, x_t, w_t):
        x, w = ctx.saved_tensors
        return SCALE * (x_t * fnp.cos(x) * w + w_t * fnp.sin(x))


class Both(Vjp):
    jvp = staticmethod(Jvp.jvp)


class All(Both):
    @staticmethod
    def vmap(info, in_dims, x, w):
        front = [v if d is None else fnp.moveaxis(v, d, 0) for v, d in zip((x, w), in_dims)]
        depth = max(fnp.ndim(v) for v in front)
        # Lanes to the front, missing dimensions after them.
        front = [
            v if d is None else v.reshape((v.shape[0],) + (1,) * (depth - v.ndim) + v.shape[1:])
            for v, d in zip(front, in_dims)
        ]
        return fnp.sin(front[0]) * front[1], 0


class OneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w, fnp.sin(x), fnp.cos(x))
        return fnp.sin(x) * w

    @staticmethod
    def vjp(ctx, g):
        w, sine, cosine = ctx.saved_tensors
        return SCALE * g * cosine * w, SCALE * g * sine


class JaxBoth(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w, jnp.cos(x))
        return jnp.sin(x) * w

    @staticmethod
    def vjp(ctx, g):
        x, w, cosine = ctx.saved_tensors
        return SCALE * g * cosine * w, SCALE * g * jnp.sin(x)

    @staticmethod
    def jvp(ctx, x_t, w_t):
        x, w, cosine = ctx.saved_tensors
        return SCALE * (x_t * cosine * w + w_t * jnp.sin(x))


KINDS = {F.__name__: F for F in (Derived, Vjp, Jvp, Both, All, OneMethod, JaxBoth)}


def sine_product(x, w):
    return jnp.sin(x) * w


@jax.custom_jvp
def scaled_product(x, w):
    """What the Functions are: sin(x) w with scaled derivatives."""
    return sine_product(x, w)


@scaled_product.defjvp
def _scaled_jvp(primals, tangents):
    return scaled_product(*primals), SCALE * jax.jvp(sine_product, primals, tangents)[1]


def reference(F):
    return sine_product if F is Derived else scaled_product


def test_the_functions_above_are_all_scaled():
    for name, F in KINDS.items():
        gradient = jax.grad(lambda x, F=F: F.apply(x, W).sum())(X)
        assert_close(gradient, (1 if name == "Derived" else SCALE) * jnp.cos(X) * W)


# Transforms of functions of one array


def weigh(f):
    """A scalar function without symmetry."""
    return lambda x: (f(x) * ramp(x)).sum() if jnp.shape(x) else f(x).sum()


def total(f):
    def scalar(x):
        out = f(x)
        return (out * ramp(out)).sum()

    return scalar


def loop(f):
    """f by a while_loop with two iterations; forward mode only."""

    def run(x):
        zeros = jnp.zeros(jax.eval_shape(f, x).shape)
        body = lambda carry: (carry[0] + 1, carry[1] + f(x * carry[0]))
        return lax.while_loop(lambda carry: carry[0] < 3.0, body, (1.0, zeros))[1]

    return run


TRANSFORMS = {
    "jit": jax.jit,
    "grad": lambda f: jax.grad(total(f)),
    "value_and_grad": lambda f: lambda x: jax.value_and_grad(total(f))(x)[1],
    "vjp": lambda f: lambda x: (lambda out, pull: pull(ramp(out))[0])(*jax.vjp(f, x)),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (ramp(x),))[1],
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](ramp(x)),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "hessian": lambda f: jax.hessian(total(f)),
    "vmap": lambda f: jax.vmap(f),
    "vmap_last": lambda f: jax.vmap(f, -1, -1),
    "checkpoint": lambda f: jax.checkpoint(f),
    "scan": lambda f: lambda x: lax.scan(lambda c, v: (c, f(v)), 0.0, jnp.stack([x, 2 * x]))[1],
    "cond": lambda f: lambda x: lax.cond(x.sum() > 0.1, f, lambda x: f(2 * x), x),
    "while_loop": loop,
}
REVERSE = {"grad", "value_and_grad", "vjp", "jacrev", "hessian", "linearize"}
DEEP = {"jacfwd", "jacrev", "hessian"}


def makes_sense(sequence):
    """while_loop has no reverse mode; three Jacobians are large."""
    for k, name in enumerate(sequence):
        if name == "while_loop" and REVERSE & set(sequence[k + 1 :]):
            return False
    return sum(name in DEEP for name in sequence) < 3


def check_sequence(F, sequence):
    ours = lambda x: F.apply(x, TWO if x.ndim == 0 else W[: x.shape[-1]])
    theirs = lambda x: reference(F)(x, TWO if x.ndim == 0 else W[: x.shape[-1]])
    for name in sequence:
        ours, theirs = TRANSFORMS[name](ours), TRANSFORMS[name](theirs)
    lanes = sum(name.startswith("vmap") for name in sequence)
    x = jnp.linspace(-0.9, 0.8, 3 * 2**lanes).reshape((2,) * lanes + (3,))
    if "vmap_last" in sequence:
        x = jnp.linspace(-0.9, 0.8, 3 ** (lanes + 1)).reshape((3,) * (lanes + 1))
    assert_close(ours(x), jax.jit(theirs)(x), rtol=1e-3, atol=1e-4)


SINGLE = [(kind, (name,)) for kind in KINDS for name in TRANSFORMS]
LONGER = [
    (kind, sequence)
    for length in (2, 3)
    for sequence in itertools.product(TRANSFORMS, repeat=length)
    if makes_sense(sequence)
    for kind in KINDS
]


def ids(cases):
    return ["-".join((kind, *sequence)) for kind, sequence in cases]


@pytest.mark.sweep("case", SINGLE, sample=9)
def test_every_transform_uses_the_rules_of_the_user(case):
    check_sequence(KINDS[case[0]], case[1])


@pytest.mark.sweep("case", LONGER, sample=9)
def test_transforms_of_transforms_use_the_rules_of_the_user(case):
    check_sequence(KINDS[case[0]], case[1])


@pytest.mark.parametrize("F", KINDS.values())
@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (-1, 0), (1, 1)])
def test_vmap_with_any_axes_inside_and_outside_of_grad(F, in_axes):
    if F is All and in_axes[0] == 1:
        in_axes = (1, -1)
    m = jnp.arange(9.0).reshape(3, 3) / 5
    args = [m if d is not None else W for d in in_axes]
    f, j = F.apply, reference(F)
    assert_close(jax.vmap(f, in_axes)(*args), jax.jit(jax.vmap(j, in_axes))(*args))
    inside = lambda f: jax.grad(lambda *a: total(lambda a: jax.vmap(f, in_axes)(*a))(a), (0, 1))
    assert_close(inside(f)(*args), jax.jit(inside(j))(*args))
    outside = lambda f: jax.vmap(jax.grad(lambda *a: total(lambda a: f(*a))(a), (0, 1)), in_axes)
    assert_close(outside(f)(*args), jax.jit(outside(j))(*args))


@pytest.mark.parametrize("F", KINDS.values())
def test_derivatives_agree_with_finite_differences_and_with_each_other(F):
    class Unscaled(F):
        pass

    if Unscaled._signature.vjp:
        vjp = F.vjp
        Unscaled = type(
            "Unscaled",
            (Unscaled,),
            {"vjp": staticmethod(lambda ctx, g: tuple(v / SCALE for v in vjp(ctx, g)))},
        )
    if Unscaled._signature.jvp:
        jvp = F.jvp
        Unscaled = type(
            "Unscaled", (Unscaled,), {"jvp": staticmethod(lambda ctx, *ts: jvp(ctx, *ts) / SCALE)}
        )
    with jax.enable_x64(True):
        args = np.array([0.3, -0.5]), np.array([1.5, 2.0])
        check_grads(Unscaled.apply, args, order=2, modes=("fwd", "rev"))


# What is compiled


@pytest.mark.parametrize("F", KINDS.values())
def test_nothing_of_fad_is_left_in_the_program(F):
    f = lambda x, w: F.apply(x, w).sum()
    programs = [
        F.apply,
        jax.grad(f),
        jax.vmap(jax.grad(f)),
        jax.hessian(f),
        lambda x, w: lax.scan(lambda c, v: (c, F.apply(v, w)), 0.0, jnp.stack([x, x]))[1],
        jax.grad(jax.checkpoint(f)),
    ]
    for program in programs:
        lowered = jax.jit(program).lower(X, W)
        assert "fad" not in lowered.as_text()
    # XLA keeps the names of source files beside the program; its instructions name operations.
    compiled = lowered.compile().as_text()
    instructions = [line for line in compiled.splitlines() if " = " in line]
    assert instructions
    assert not [line for line in instructions if re.search("custom-call.*fad|callback", line)]


def test_make_jaxpr_shows_one_call_by_its_name_and_eval_shape_runs_nothing():
    jaxpr = jax.make_jaxpr(Both.apply)(X, W)
    assert [e.primitive.name for e in jaxpr.eqns] == ["fad_call"]
    assert [a.shape for a in jaxpr.out_avals] == [(3,)]
    assert_close(jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X, W)[0], sine_product(X, W))
    struct = jax.eval_shape(Both.apply, X, W)
    assert (struct.shape, struct.dtype) == ((3,), jnp.float32)
    assert jax.eval_shape(jax.vmap(Both.apply, (0, None)), X, 2.0).shape == (3,)


def test_weak_types_are_those_of_the_body():
    f = lambda x: Both.apply(x, 2.0)
    for x in (jnp.asarray(1.0), jnp.float32(1.0), jnp.float16(1.0)):
        ours, theirs = jax.eval_shape(f, x), jax.eval_shape(lambda x: sine_product(x, 2.0), x)
        assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
        assert jax.grad(f)(x).dtype == jax.grad(lambda x: sine_product(x, 2.0))(x).dtype


def test_compiled_code_is_found_again():
    runs = []

    class Counts(fad.Function):
        @staticmethod
        def forward(x, k):
            runs.append(k)
            return x * k

    f = jax.jit(lambda x: Counts.apply(x, 2))
    f(X)
    before = len(runs)
    f(X + 1)
    assert len(runs) == before
    # Static arguments are part of what is compiled.
    assert_close(jax.jit(lambda x: Counts.apply(x, 3))(X), 3 * X)
    assert_close(jax.jit(lambda x: Counts.apply(x, True))(X), X)


# Structures and kinds of arguments


class Trees(fad.Function):
    @staticmethod
    def forward(tree, mode, *, k):
        return {"y": tree["a"] * tree["b"][0] * k, "n": tree["i"] + 1, "mode": mode}

    @staticmethod
    def setup_context(ctx, inputs, output):
        tree, _, ctx.k = inputs
        ctx.save_for_backward(tree["a"], tree["b"][0])

    @staticmethod
    def vjp(ctx, g):
        a, b = ctx.saved_tensors
        g = SCALE * g["y"] * ctx.k
        return {"a": g * b, "b": [g * a], "i": None}, None, None


def test_pytrees_static_values_and_integers():
    tree = {"a": X, "b": [W], "i": jnp.arange(3)}
    f = lambda a, b, i: Trees.apply({"a": a, "b": [b], "i": i}, "m", k=2)
    out = jax.jit(lambda *a: {k: v for k, v in f(*a).items() if k != "mode"})(X, W, tree["i"])
    assert_close(out, {"y": 2 * X * W, "n": tree["i"] + 1})
    assert f(X, W, tree["i"])["mode"] == "m"
    loss = lambda a, b, i: (f(a, b, i)["y"] * ramp(X)).sum()
    expected = 2 * SCALE * W * ramp(X), 2 * SCALE * X * ramp(X)
    assert_close(jax.grad(loss, (0, 1))(X, W, tree["i"]), expected)
    assert_close(jax.jit(jax.grad(loss, (0, 1)))(X, W, tree["i"]), expected)
    allowed = jax.grad(loss, 2, allow_int=True)(X, W, tree["i"])
    assert allowed.dtype == jax.dtypes.float0
    out, out_t = jax.jvp(lambda a: f(a, W, tree["i"])["n"], (X,), (X,))
    assert out_t.dtype == jax.dtypes.float0
    rows = jnp.stack([X, W])
    counts = jnp.stack([tree["i"]] * 2)
    assert_close(
        jax.vmap(jax.grad(loss), (0, None, 0))(rows, W, counts), jnp.stack([expected[0]] * 2)
    )


def test_outputs_marked_as_not_differentiable():
    f = lambda x: Split.apply(x)[0] * Split.apply(x)[1]
    expected = jnp.cos(X) * 10 * X
    for transform in (
        jax.vmap(jax.grad(f)),
        jax.jit(jax.vmap(jax.grad(f))),
        jax.grad(lambda x: jax.vmap(f)(x).sum()),
        jax.grad(lambda x: f(x).sum()),
        jax.grad(jax.checkpoint(lambda x: f(x).sum())),
        lambda x: jax.jvp(f, (x,), (jnp.ones(3),))[1],
        lambda x: jax.vmap(lambda x: jax.jvp(f, (x,), (1.0,))[1])(x),
    ):
        assert_close(transform(X), expected)


def test_cotangents_and_tangents_that_are_zero_reach_the_rules_as_none():
    seen = []

    class Pair(fad.Function):
        @staticmethod
        def forward(x, y):
            return 2 * x, 3 * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)

        @staticmethod
        def vjp(ctx, g, h):
            seen.append((g is None, h is None, ctx.needs_input_grad))
            return None if g is None else 2 * g, None if h is None else 3 * h

        @staticmethod
        def jvp(ctx, x_t, y_t):
            seen.append((x_t is None, y_t is None))
            return None if x_t is None else 2 * x_t, None if y_t is None else 3 * y_t

    assert_close(jax.grad(lambda x, y: Pair.apply(x, y)[0].sum())(X, W), jnp.full(3, 2.0))
    assert seen[-1] == (False, True, (True, False))
    out_t = jax.jvp(lambda y: Pair.apply(X, y), (W,), (W,))[1]
    assert seen[-1] == (True, False)
    assert_close(out_t, (jnp.zeros(3), 3 * W))


@pytest.mark.parametrize("k", [1.0, SCALE])
def test_complex_values_have_the_convention_of_jax(k):
    """JAX transposes where a vjp rule takes adjoints: conjugated at the border, both ways."""

    class Times(fad.Function):
        @staticmethod
        def forward(z, w):
            return z * w

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            z, w = ctx.saved_tensors
            return k * g * fnp.conj(w), k * g * fnp.conj(z)

    z, w = jnp.array([1 + 2j, -0.5j, 2.0]), jnp.array([0.3 - 1j, 2 + 0.1j, -1j])

    @jax.custom_jvp
    def times(z, w):
        return z * w

    times.defjvp(lambda p, t: (times(*p), k * (t[0] * p[1] + p[0] * t[1])))
    for loss in (
        lambda f: lambda z, w: jnp.real(f(z, w) * (2 + 1j)).sum(),
        lambda f: lambda z, w: jnp.abs(jax.vmap(f)(z, w)).sum(),
        lambda f: jax.checkpoint(lambda z, w: jnp.imag(f(f(z, w), w)).sum()),
    ):
        for transform in (
            lambda f: jax.grad(f, (0, 1)),
            lambda f: jax.jit(jax.grad(f)),
            lambda f: lambda z, w: jax.jvp(f, (z, w), (w, z)),
            lambda f: lambda z, w: jax.jvp(jax.grad(f), (z, w), (w, z)),
        ):
            assert_close(transform(loss(Times.apply))(z, w), transform(loss(times))(z, w))
    holomorphic = lambda f: jax.jacrev(lambda z: f(z, w), holomorphic=True)(z)
    assert_close(holomorphic(Times.apply), holomorphic(times))
    # fad's own gradient is PyTorch's: the conjugate.
    loss = lambda z: fnp.real(Times.apply(z, w) * (2 + 1j)).sum()
    assert_close(fad.grad(loss)(z), jnp.conj(jax.grad(loss)(z)))


# fad inside of JAX, and JAX inside of fad


@pytest.mark.parametrize("F", KINDS.values())
def test_fad_transforms_inside_of_native_ones(F):
    f = lambda x: F.apply(x, W)
    j = lambda x: reference(F)(x, W)
    pairs = [
        (jax.jit(fad.grad(lambda x: total(f)(x))), jax.grad(total(j))),
        (jax.jacfwd(fad.grad(lambda x: total(f)(x))), jax.hessian(total(j))),
        (jax.grad(lambda x: fad.jvp(f, (x,), (W,))[1].sum()), None),
        (jax.vmap(fad.grad(lambda x: F.apply(x, TWO))), None),
        (fad.grad(lambda x: fad.from_jax(jax.jit(total(f)))(x)), jax.grad(total(j))),
        (fad.jit(fad.grad(lambda x: fad.from_jax(total(f))(x))), jax.grad(total(j))),
        (fad.vmap(fad.grad(fad.from_jax(lambda x: F.apply(x, TWO)))), None),
    ]
    others = {
        2: jax.grad(lambda x: jax.jvp(j, (x,), (W,))[1].sum()),
        3: jax.vmap(jax.grad(lambda x: reference(F)(x, TWO))),
        6: jax.vmap(jax.grad(lambda x: reference(F)(x, TWO))),
    }
    for k, (ours, theirs) in enumerate(pairs):
        assert_close(ours(X), (theirs or others[k])(X), rtol=1e-3)


def test_jax_code_inside_of_fad_may_close_over_tracers():
    def nested(grad, wrap):
        return lambda y: grad(wrap(lambda x: jnp.sin(x * y)))(1.0)

    ours, theirs = nested(fad.grad, fad.from_jax), nested(jax.grad, lambda f: f)
    for transform in (lambda f: f, jax.jit, jax.grad, lambda f: jax.jit(jax.jacfwd(f))):
        assert_close(transform(ours)(X[0]), transform(theirs)(X[0]))
        assert_close(jax.vmap(transform(ours))(X), jax.vmap(transform(theirs))(X))


def test_linear_functions_transpose_batched_or_not():
    _, push = jax.linearize(lambda x: Both.apply(x, W), X)
    (back,) = jax.linear_transpose(push, X)(X)
    assert_close(back, SCALE * jnp.cos(X) * W * X)
    rows = jnp.stack([X, W])
    (back,) = jax.linear_transpose(jax.vmap(push), rows)(rows)
    assert_close(back, SCALE * jnp.cos(X) * W * rows)
    assert_close(jax.vmap(jax.vjp(lambda x: Both.apply(x, W), X)[1])(rows)[0], back)
    second = jax.grad(lambda t: (push(t) ** 2).sum())(X)
    assert_close(second, 2 * (SCALE * jnp.cos(X) * W) ** 2 * X)


def test_scan_over_the_rules_with_a_carry():
    """JAX's scan drops a custom_jvp rule in second derivatives, so a Python loop is the reference."""

    def scanned(x, ws):
        out, ys = lax.scan(lambda c, w: (Vjp.apply(c, w), c), x, ws)
        return (out * ramp(out)).sum() + ys.sum()

    def looped(x, ws):
        total = 0.0
        for w in ws:
            total, x = total + x.sum(), scaled_product(x, w)
        return (x * ramp(x)).sum() + total

    ws = jnp.stack([W, X, -W])
    for transform in (
        lambda f: jax.grad(f, (0, 1)),
        lambda f: jax.jit(jax.grad(f, (0, 1))),
        lambda f: jax.grad(jax.checkpoint(f), (0, 1)),
        lambda f: jax.jacfwd(jax.grad(f)),
        lambda f: jax.jacrev(jax.grad(f)),
    ):
        assert_close(transform(scanned)(X, ws), transform(looped)(X, ws), rtol=1e-3)


def test_errors_in_rules_reach_the_user_through_jax():
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g.sum()

    for f in (
        jax.grad(lambda x: Bad.apply(x).sum()),
        jax.jit(jax.grad(lambda x: Bad.apply(x).sum())),
    ):
        with pytest.raises(
            RuleError, match=r"Bad\.vjp: the gradient for argument 'x' has shape \(\)"
        ):
            f(X)


def test_effects_in_a_body_happen_once_a_call(capfd):
    class Prints(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(x):
            jax.debug.print("x = {}", x)
            return x * 2

    out = jax.jit(Prints.apply)(jnp.float32(1.5))
    jax.effects_barrier()
    assert out == 3.0
    assert capfd.readouterr().out == "x = 1.5\n"


# Devices


@pytest.mark.parametrize(
    ("F", "check"), [*((F, True) for F in KINDS.values()), (Jvp, False), (All, False)]
)
def test_shard_map_sums_gradients_of_what_devices_share(F, check):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    P = jax.sharding.PartitionSpec
    x, w = jnp.linspace(-1.0, 1.0, 8), jnp.full(2, 2.0)

    def on_devices(f):
        sharded = jax.shard_map(
            f, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check
        )
        return lambda x, w: (sharded(x, w) * ramp(x)).sum()

    ours, theirs = on_devices(F.apply), on_devices(reference(F))
    for transform in (
        lambda f: jax.grad(f, (0, 1)),
        lambda f: jax.jacfwd(jax.grad(f), 1),
    ):
        assert_close(jax.jit(transform(ours))(x, w), jax.jit(transform(theirs))(x, w))

    def inside(grad, f):
        local = lambda x, w: grad(lambda w: f(x, w).sum())(w)[None]
        return jax.jit(
            jax.shard_map(
                local, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check
            )
        )(x, w)

    assert_close(inside(jax.grad, F.apply), inside(jax.grad, reference(F)))
    assert_close(inside(fad.grad, F.apply), inside(jax.grad, reference(F)))


@pytest.mark.parametrize("F", KINDS.values())
def test_shardings_go_through(F):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.arange(8.0), jax.sharding.PartitionSpec("d"))
        for f in (lambda x: F.apply(x, x), jax.grad(lambda x: F.apply(x, x).sum())):
            assert jax.jit(f).eval_shape(x).sharding.spec == jax.sharding.PartitionSpec("d")
            assert jax.jit(f)(x).sharding.spec == jax.sharding.PartitionSpec("d")


def test_gradients_that_are_recorded_inside_leave_to_jax_as_arrays():
    """A graph that begins and ends inside loses nothing: JAX differentiates the backward pass too."""

    def slope(x):
        x = x.requires_grad_()
        (g,) = fad.autograd.grad((x**3).sum(), x, create_graph=True)
        return g

    f = fad.to_jax(slope)
    x = jnp.array([0.3, -0.5])
    assert isinstance(f(x), jax.Array)
    assert_close(f(x), 3 * x**2)
    for run in (jax.grad(lambda x: f(x).sum()), jax.jit(jax.grad(lambda x: f(x).sum()))):
        assert_close(run(x), 6 * x)
    assert_close(jax.vmap(f)(jnp.stack([x, 2 * x])), jnp.stack([3 * x**2, 12 * x**2]))
    assert_close(fad.to_jax(lambda x: fad.tensor(2.0, requires_grad=True) * x)(x), 2 * x)
    w = fad.tensor([1.0, 2.0], requires_grad=True)
    for lost in (lambda x: w * x, lambda x: w, lambda x: slope(x) * w[0]):
        with pytest.raises(LevelError, match="to_jax: the result .* would lose its derivative"):
            fad.to_jax(lost)(x)
    with pytest.raises(LevelError, match="would lose its derivative"):
        fad.grad(lambda w: fad.to_jax(lambda x: w * x)(x).sum())(x)
