"""`custom_rules`: rules in JAX's form, beside JAX's own decorators; and what those refuse."""

from __future__ import annotations

import functools
import inspect
import itertools
import pydoc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

import fad
import fad.numpy as fnp

X = jnp.float32(0.7)
Y = jnp.float32(-1.3)
V = jnp.array([0.5, 1.0, 2.0])


# A product whose rules are scaled, so that a result shows how many of them it was made by.


def product(x, y):
    return jnp.sin(x) * y


def push(primals, tangents):
    (x, y), (x_t, y_t) = primals, tangents
    return jnp.sin(x) * y, 3.0 * (x_t * jnp.cos(x) * y + y_t * jnp.sin(x))


def product_fwd(x, y):
    return jnp.sin(x) * y, (jnp.cos(x) * y, jnp.sin(x))


def product_bwd(saved, g):
    return 3.0 * g * saved[0], 3.0 * g * saved[1]


of_jax = jax.custom_jvp(product)
of_jax.defjvp(push)

forward = fad.custom_rules(product)
forward.defjvp(push)

reverse = fad.custom_rules(product)
reverse.defvjp(product_fwd, product_bwd)

both = fad.custom_rules(product)
both.defjvp(push)
both.defvjp(product_fwd, product_bwd)
both.defvmap(
    lambda size, batched, x, y: (product(x, y) if all(batched) else jax.vmap(product)(x, y), True)
)

FORMS = {"forward": forward, "reverse": reverse, "both": both}


def stacked(library, names, f):
    """``f`` of (x, y) under transforms, innermost first, all with respect to x."""
    for name in names:
        f = _under(library, name, f)
    return f


def _under(library, name, f):
    if name == "grad":
        return lambda x, y: library.grad(lambda x: f(x, y).sum())(x)
    if name == "jvp":
        return lambda x, y: library.jvp(lambda x: f(x, y), (x,), (jnp.ones_like(x),))[1]
    return lambda x, y: library.vmap(lambda a: f(x * a, y * a))(V)


@functools.cache
def in_jax(names):
    return jax.jit(stacked(jax, names, of_jax))(X, Y)


STACKS = [
    (library, form, names)
    for names in itertools.chain(
        *[itertools.product(["grad", "jvp", "vmap"], repeat=n) for n in (1, 2, 3)]
    )
    for library in ("fad", "jax", "jit")
    for form in FORMS
]


@pytest.mark.sweep("case", STACKS, sample=20, ids=lambda c: "-".join([*c[:2], *c[2]]))
def test_every_order_of_transforms_uses_the_rules(case):
    library, form, names = case
    f = stacked(jax if library == "jax" else fad, names, FORMS[form])
    f = fad.jit(f) if library == "jit" else f
    assert_close(f(X, Y), in_jax(names))


@pytest.mark.parametrize("form", FORMS)
def test_on_the_tape_and_on_arrays(form):
    x = fad.tensor(X, requires_grad=True)
    out = FORMS[form](x, Y)
    assert isinstance(out, fad.Tensor)
    (g,) = fad.autograd.grad(out, [x], create_graph=True)
    g.backward()
    assert_close(g, jax.grad(of_jax)(X, Y))
    assert_close(x.grad, jax.grad(jax.grad(of_jax))(X, Y))
    assert isinstance(FORMS[form](X, Y), jax.Array)


def test_the_function_is_documented_as_it_was():
    @fad.custom_rules
    def cube(x, power: int = 3):
        """The third power."""
        return x**power

    assert str(inspect.signature(cube)) == "(x, power: 'int' = 3)"
    assert cube.__name__ == "cube" and cube.__doc__ == "The third power."
    shown = pydoc.plain(pydoc.render_doc(cube))
    assert "cube(x, power: 'int' = 3)" in shown and "The third power." in shown


def test_without_rules_all_are_derived():
    f = fad.custom_rules(lambda x: jnp.sin(x) ** 2)
    assert_close(fad.hessian(f)(X), jax.hessian(lambda x: jnp.sin(x) ** 2)(X))
    assert_close(jax.vmap(jax.grad(f))(V), jnp.sin(2 * V))


def test_the_function_runs_where_nothing_is_differentiated_and_fwd_elsewhere():
    ran = []

    @fad.custom_rules
    def double(x):
        ran.append("f")
        return 2 * x

    def fwd(x):
        ran.append("fwd")
        return double(x), None

    double.defvjp(fwd, lambda _, g: (2 * g,))
    assert float(double(X)) == float(2 * X)
    assert "fwd" not in ran
    assert float(fad.grad(double)(X)) == 2.0
    assert "fwd" in ran


def test_arguments_without_a_derivative():
    def apply(op, x, scale):
        return op(x) * scale if scale > 1.0 else x

    def fwd(op, x, scale):
        return apply(op, x, scale), (op(x),)

    def bwd(op, scale, saved, g):
        assert op is jnp.sin and type(scale) is float
        return (g * scale * 7.0 * saved[0],)

    def rule(op, scale, primals, tangents):
        return apply(op, *primals, scale), tangents[0] * scale * 7.0 * op(primals[0])

    for nums in ((0, 2), (0, -1)):
        ours = fad.custom_rules(apply, nondiff_argnums=nums)
        ours.defvjp(fwd, bwd)
        theirs = jax.custom_vjp(apply, nondiff_argnums=(0, 2))
        theirs.defvjp(fwd, bwd)
        expected = jax.grad(lambda x: theirs(jnp.sin, x, 2.0))(X)
        for library in (fad, jax):
            assert_close(library.grad(lambda x: ours(jnp.sin, x, 2.0))(X), expected)
            assert_close(library.grad(lambda x: ours(jnp.sin, x, scale=2.0))(X), expected)
        assert_close(fad.grad(ours, 1)(jnp.sin, X, 2.0), expected)
    named = fad.custom_rules(nondiff_argnames=("op", "scale"))(apply)
    named.defjvp(rule)
    assert_close(jax.grad(lambda x: named(jnp.sin, x, 2.0))(X), expected)
    assert_close(fad.jvp(lambda x: named(jnp.sin, x, 2.0), (X,), (1.0,))[1], expected)


def test_an_array_without_a_derivative_may_be_traced():
    @fad.custom_rules(nondiff_argnums=1)
    def scale(x, k):
        return x * k

    scale.defvjp(lambda x, k: (x * k, None), lambda k, _, g: (2.0 * g * k,))
    assert_close(jax.vmap(jax.grad(scale), (None, 0))(X, V), 2.0 * V)
    assert_close(fad.vmap(fad.grad(scale), (None, 0))(X, V), 2.0 * V)
    assert_close(fad.grad(scale, 1)(X, X), jnp.float32(0.0))


def test_pytrees_integers_and_lists():
    def f(params, k):
        return [params["w"] * k, {"k": k + 1, "b": params["b"][0]}]

    def fwd(params, k):
        return f(params, k), (params, k)

    def bwd(saved, g):
        params, k = saved
        assert isinstance(g, list)
        return {"w": 5.0 * g[0] * k, "b": (g[1]["b"],)}, None

    ours, theirs = fad.custom_rules(f), jax.custom_vjp(f)
    ours.defvjp(fwd, bwd)
    theirs.defvjp(fwd, bwd)
    params, k = {"w": V, "b": (V + 1,)}, jnp.arange(3)
    loss = lambda g: lambda p: g(p, k)[0].sum() + g(p, k)[1]["b"].sum()
    expected = jax.grad(loss(theirs))(params)
    assert_close(fad.grad(loss(ours))(params), expected)
    assert_close(jax.grad(loss(ours))(params), expected)
    assert_close(jax.jit(ours)(params, k), f(params, k))


def test_float0_and_a_float_as_an_argument():
    def f(x, k):
        return x * k

    rule = lambda saved, g: (g * saved, np.zeros((), jax.dtypes.float0))
    ours, theirs = fad.custom_rules(f), jax.custom_vjp(f)
    for g in (ours, theirs):
        g.defvjp(lambda x, k: (x * k, k.astype(jnp.float32)), rule)
    k = jnp.int32(3)
    for library in (fad, jax):
        assert_close(library.grad(ours)(2.0, k), jax.grad(theirs)(2.0, k))


def test_complex_cotangents_are_jaxs():
    def f(z):
        return z * z

    z = jnp.complex64(1 + 2j)
    size = lambda g: lambda z: (g(z) * (3 - 1j)).real
    ours, theirs = fad.custom_rules(f), jax.custom_vjp(f)
    for g in (ours, theirs):
        g.defvjp(lambda z: (z * z, z), lambda z, g: (2 * g * z,))
    assert_close(jax.grad(size(ours))(z), jax.grad(size(theirs))(z))
    assert_close(fad.grad(size(ours))(z), jax.grad(size(theirs))(z).conj())
    assert_close(fad.jvp(ours, (z,), (z,)), jax.jvp(f, (z,), (z,)))


def test_a_rule_for_each_argument():
    ours, theirs = fad.custom_rules(product), jax.custom_jvp(product)
    for f in (ours, theirs):
        f.defjvps(lambda t, out, x, y: 3.0 * t * out, None)
    for library in (fad, jax):
        assert_close(library.jvp(ours, (X, Y), (X, Y)), jax.jvp(theirs, (X, Y), (X, Y)))
        assert_close(library.grad(ours, (0, 1))(X, Y), jax.grad(theirs, (0, 1))(X, Y))


def test_a_batching_rule_beside_jaxs():
    seen = []

    def rule(size, batched, x, y):
        seen.append((size, tuple(batched)))
        return (x + y, {"twice": 2 * y}), (True, {"twice": batched[1]})

    def f(x, y):
        return x + y, {"twice": 2 * y}

    ours, theirs = fad.custom_rules(f), custom_vmap(f)
    ours.def_vmap(rule)
    theirs.def_vmap(rule)
    matrix = jnp.arange(6.0).reshape(2, 3)
    for dims in (0, (0, None), (1, None)):
        x, y = (matrix, matrix) if dims == 0 else (matrix, jnp.float32(2.0))
        expected = jax.vmap(theirs, dims)(x, y)
        reference = seen.pop()
        seen.clear()
        for library in (fad, jax):
            assert_close(library.vmap(ours, dims)(x, y), expected)
        assert set(seen) == {reference}
    # JAX refuses to differentiate what has a batching rule.
    total = lambda x: fad.vmap(lambda a: ours(a, 1.0)[0])(x).sum()
    seen.clear()
    assert_close(fad.grad(total)(V), jnp.ones(3))
    assert seen


def test_decorators_return_the_rule():
    @fad.custom_rules
    def f(x):
        return x * x

    @f.defjvp
    def f_jvp(primals, tangents):
        return f(*primals), 7.0 * tangents[0]

    @f.def_vmap
    def f_vmap(size, batched, x):
        return x * x, True

    assert callable(f_jvp) and callable(f_vmap)
    assert float(fad.grad(f)(X)) == 7.0


def test_symbolic_zeros():
    seen = []

    def rule(primals, tangents):
        seen.append([type(t) is SymbolicZero for t in tangents])
        (x, y), (x_t, _) = primals, tangents
        return x * y, x_t * y * 3.0

    f = fad.custom_rules(lambda x, y: x * y)
    f.defjvp(rule, symbolic_zeros=True)
    assert_close(fad.jvp(lambda x: f(x, Y), (X,), (1.0,))[1], 3.0 * Y)
    assert_close(jax.jvp(lambda x: f(x, Y), (X,), (1.0,))[1], 3.0 * Y)
    assert seen and all(s == [False, True] for s in seen)

    def fwd(x, y):
        assert type(x) is CustomVJPPrimal and x.perturbed and not y.perturbed
        return (x.value * y.value, x.value), y.value

    def bwd(y, g):
        assert type(g[1]) is SymbolicZero and g[1].shape == ()
        return 3.0 * g[0] * y, None

    h = fad.custom_rules(lambda x, y: (x * y, x))
    h.defvjp(fwd, bwd, symbolic_zeros=True)
    assert_close(fad.grad(lambda x: h(x, Y)[0])(X), 3.0 * Y)


def test_symbolic_zeros_of_one_rule_are_zeros_in_the_other():
    f = fad.custom_rules(lambda x, y: (x * y, x + y))
    f.defvjp(
        lambda x, y: ((x.value * y.value, x.value + y.value), y.value),
        lambda y, g: (g[0] * y, None),
        symbolic_zeros=True,
    )
    f.defjvp(lambda p, t: ((p[0] * p[1], p[0] + p[1]), (t[0] * p[1] + t[1], t[0] + t[1])))
    assert_close(fad.jvp(lambda x: f(x, Y), (X,), (2.0,))[1], (2.0 * Y, jnp.float32(2.0)))


def test_bodies_may_use_fad_numpy():
    @fad.custom_rules
    def f(x):
        out = fnp.zeros(3)
        out[1:] = x
        return out

    f.defvjp(lambda x: (f(x), fnp.ones(3)), lambda ones, g: (fnp.sum(g * ones) * 5.0,))
    assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.float32(15.0))
    assert isinstance(f(X), jax.Array) and isinstance(f(fad.tensor(X)), fad.Tensor)


def test_a_method():
    class Layer:
        def __init__(self):
            self.scale = 2.0

        @functools.partial(fad.custom_rules, nondiff_argnums=(0,))
        def apply(self, x):
            return x * self.scale

        apply.defvjp(lambda self, x: (x * self.scale, None), lambda self, _, g: (9.0 * g,))

    assert float(fad.grad(Layer().apply)(X)) == 9.0
    assert float(jax.grad(Layer().apply)(X)) == 9.0


def test_rules_can_be_set_again():
    f = fad.custom_rules(lambda x: x * x)
    assert_close(fad.grad(f)(X), 2 * X)
    f.defvjp(lambda x: (x * x, None), lambda _, g: (5.0 * g,))
    assert float(fad.grad(f)(X)) == 5.0


def test_checkpoint_and_linearize():
    for library in (fad, jax):
        f = library.checkpoint(lambda x: reverse(x, Y))
        assert_close(library.grad(f)(X), jax.grad(of_jax)(X, Y))
        _, push = library.linearize(lambda x: reverse(x, Y), X)
        assert_close(push(X), X * jax.grad(of_jax)(X, Y))


# Errors


def new(f=lambda x, y: x * y):
    f.__name__ = "scaled"
    return fad.custom_rules(f)


def test_rules_of_the_wrong_form_are_refused_when_they_are_set():
    f = new()
    with pytest.raises(fad.errors.RuleError, match=r"scaled: fwd takes 1 .* expected 2"):
        f.defvjp(lambda x: x, lambda saved, g: g)
    with pytest.raises(fad.errors.RuleError, match=r"scaled: bwd .* expected 2: \(residuals, g\)"):
        f.defvjp(lambda x, y: x, lambda g: g)
    with pytest.raises(fad.errors.RuleError, match=r"scaled: the rule of defjvp .* expected 2"):
        f.defjvp(lambda x, y, z: x)
    with pytest.raises(fad.errors.RuleError, match=r"scaled: the rule of defvmap .* expected 4"):
        f.defvmap(lambda size, batched, x: x)
    with pytest.raises(fad.errors.RuleError, match="scaled: fwd must be a function, got None"):
        f.defvjp(None, None)
    with pytest.raises(fad.errors.RuleError, match="scaled.defjvps got 1 rules, expected 2"):
        f.defjvps(None)
    assert_close(fad.grad(f)(X, Y), Y)  # nothing was set


def test_results_of_the_wrong_form_name_the_function():
    cases = [
        ("fwd must return a pair", lambda x, y: x * y, lambda s, g: (g, g)),
        (r"must be what the function returns, got .*\[1\].*\[\]", None, lambda s, g: (g, g)),
        ("bwd must return a tuple of 2.* got 1 gradients", "ok", lambda s, g: (g,)),
        ("bwd must return a tuple of 2", "ok", lambda s, g: g),
        (r"gradient for argument 'y' has shape \(2,\)", "ok", lambda s, g: (g, jnp.zeros(2)[:2])),
    ]
    for message, fwd, bwd in cases:
        f = new(lambda x, y: x.sum() * y.sum())
        if fwd == "ok":
            fwd = lambda x, y: (x.sum() * y.sum(), None)
        f.defvjp(fwd or (lambda x, y: (x.reshape(1), None)), bwd)
        for library in (fad, jax):
            with pytest.raises(fad.errors.RuleError, match="scaled.*" + message):
                library.grad(f)(X, jnp.ones(3))
    f = new()
    f.defjvp(lambda primals, tangents: primals[0])
    with pytest.raises(fad.errors.RuleError, match="scaled: the rule of defjvp must return a pair"):
        fad.jvp(f, (X, Y), (X, Y))
    f.defjvp(lambda primals, tangents: (primals[0], (tangents[0], tangents[0])))
    with pytest.raises(fad.errors.RuleError, match="scaled.*tangent of output 0 must be"):
        fad.jvp(f, (X, Y), (X, Y))
    f.defvmap(lambda size, batched, x, y: x * y)
    with pytest.raises(
        fad.errors.RuleError, match="scaled: the rule of defvmap must return a pair"
    ):
        fad.vmap(f)(V, V)
    f.defvmap(lambda size, batched, x, y: (x * y, 0))
    with pytest.raises(fad.errors.RuleError, match="scaled.*True or False; got int 0"):
        fad.vmap(f)(V, V)


def test_what_is_no_function_and_arguments_that_are_not_there():
    with pytest.raises(TypeError, match="custom_rules: the first argument must be a function"):
        fad.custom_rules(3)
    with pytest.raises(fad.errors.StructureError, match="nondiff_argnums=5 is out of range"):
        fad.custom_rules(nondiff_argnums=5)(product)
    with pytest.raises(fad.errors.StructureError, match="no argument 'z'"):
        fad.custom_rules(nondiff_argnames="z")(product)
    with pytest.raises(TypeError, match=r"product\(x, y\): missing a required argument: 'y'"):
        fad.custom_rules(product)(X)

    @fad.custom_rules
    def named(x, *, scale=2.0):
        return x * scale

    with pytest.raises(TypeError, match="no place for scale"):
        named(X, scale=3.0)
    assert_close(named(x=X), 2.0 * X)


def test_a_body_that_reads_a_number_says_what_to_write():
    @fad.custom_rules
    def branch(x):
        return x if x > 0 else -x

    with pytest.raises(fad.errors.RuleError, match=r"branch: the function reads a number.*cond"):
        branch(X)
    f = fad.custom_rules(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, g: (g * float(x),))
    with pytest.raises(fad.errors.RuleError, match="bwd reads a number"):
        fad.grad(f)(X)


def test_a_body_that_closes_over_a_tracked_value_is_refused():
    def outer(x):
        f = fad.custom_rules(lambda y: y * x)
        f.defvjp(lambda y: (y * x, None), lambda _, g: (g,))
        return f(Y)

    with pytest.raises(fad.errors.RuleError, match="Pass x as an argument of <lambda>, or use"):
        fad.grad(outer)(X)
    assert_close(jax.grad(outer)(X), Y)


# The example of JAX's documentation: a fixed point, differentiated implicitly.


def fixed_point_of(decorate):
    @functools.partial(decorate, nondiff_argnums=(0,))
    def fixed_point(f, a, guess):
        def unfinished(carry):
            before, x = carry
            return jnp.abs(before - x) > 1e-6

        return jax.lax.while_loop(unfinished, lambda c: (c[1], f(a, c[1])), (guess, f(a, guess)))[1]

    def fwd(f, a, guess):
        x = fixed_point(f, a, guess)
        return x, (a, x)

    def step_back(f, packed, u):
        a, x, g = packed
        return g + jax.vjp(lambda x: f(a, x), x)[1](u)[0]

    def bwd(f, residuals, g):
        a, x = residuals
        u = fixed_point(functools.partial(step_back, f), (a, x, g), g)
        return (*jax.vjp(lambda a: f(a, x), a)[1](u), jnp.zeros_like(x))

    fixed_point.defvjp(fwd, bwd)
    newton = lambda a, x: 0.5 * (x + a / x)
    return lambda a: fixed_point(newton, a, a)


def test_a_fixed_point_differentiated_implicitly():
    ours, theirs = fixed_point_of(fad.custom_rules), fixed_point_of(jax.custom_vjp)
    a = jnp.float32(2.0)
    assert_close(jax.grad(ours)(a), jax.grad(theirs)(a))
    assert_close(jax.grad(jax.grad(ours))(a), jax.grad(jax.grad(theirs))(a))
    assert_close(fad.grad(ours)(a), jnp.float32(0.5 / np.sqrt(2.0)))
    assert_close(fad.jit(fad.vmap(fad.grad(ours)))(V), jax.vmap(jax.grad(theirs))(V))


def test_a_fwd_that_closes_over_a_batched_value_is_an_error():
    def scaled(w, x):
        f = fad.custom_rules(lambda x: x * x)
        f.defvjp(lambda x: (x * x * w, x), lambda x, g: (g * 2.0 * x,))
        return f(x)

    rows = jnp.arange(3.0)
    for run in (
        fad.vmap(fad.grad(scaled, argnums=1), in_dims=(0, None)),
        lambda rows, x: fad.vmap(lambda w: fad.grad(lambda x: scaled(w, x))(x))(rows),
    ):
        with pytest.raises(fad.errors.RuleError, match="closes over a value of vmap level"):
            run(rows, 2.0)
