"""The laws of higher derivatives, of compilation and of native JAX, and of other shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend, jet, jit, jvp, vjp, vmap
from fad.errors import HostValueError
from fad.extend import Primitive, bind, bottom, layers
from fad.testing.cases import (
    Case,
    NotChecked,
    RuleCall,
    Violation,
    like,
    returned,
    watched,
    watched_calls,
)
from fad.testing.comparison import bare
from fad.testing.finite_differences import directional, inner, random_like
from fad.testing.laws import none_gradients, pullback, pushforward, violation

Violations = Iterator[Violation]
Fn = Callable[[list[Any]], list[Any]]


# Second derivatives


def _values(case: Case, f: Fn) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    return lambda xs: [bare(o) for o in f([jnp.asarray(x) for x in xs])]


def _pulled(case: Case) -> Fn:
    """Gradients, as a function of inputs and cotangents."""
    count = len(case.xs)

    def run(operands: list[Any]) -> list[Any]:
        outs, pull = vjp(case.f, *operands[:count])
        like(case.ys, outs)
        return list(pull(list(operands[count:])))

    return run


def _pushed(case: Case) -> Fn:
    """Tangents, as a function of inputs and tangents."""
    count = len(case.xs)
    return lambda operands: list(jvp(case.f, tuple(operands[:count]), tuple(operands[count:]))[1])


def _check_derivative(
    case: Case, g: Fn, at: Sequence[np.ndarray], outer: str
) -> tuple[int, Any, Any] | None:
    """The first input along which a derivative of ``g`` is wrong, with what it gives and should.

    It is wrong along one of them where it is along all at once, which is tried first; -1: it is not.
    """
    rng = np.random.default_rng(case.seed + 8)
    values = [jnp.asarray(x) for x in at]
    vs = [random_like(np.asarray(x), rng) for x in at]
    run = lambda *xs: g(list(xs))  # noqa: E731
    step, tolerance = case.precision.step, 10 * case.precision.coarse
    outs, pull = vjp(run, *values) if outer == "vjp" else (run(*values), None)
    numbers = lambda xs: like(outs, _values(case, g)(xs))  # noqa: E731
    if pull is not None:
        ws = [random_like(np.asarray(bare(o)), rng) for o in outs]
        grads = bare(pull([jnp.asarray(w) for w in ws]))

    def wrong(along: list[Any]) -> tuple[Any, Any] | None:
        numerical = directional(numbers, at, along, step)
        if outer == "vjp":
            got, want = inner(grads, along), inner(ws, numerical)
            scale = 1.0 + sum(float(np.abs(w * n).sum()) for w, n in zip(ws, numerical))
            return None if abs(got - want) <= tolerance * scale else (got, want)
        pushed = bare(jvp(run, tuple(values), tuple([_array(v) for v in along]))[1])
        for t, n in zip(pushed, numerical, strict=True):
            if case.differs(np.asarray(t, n.dtype), n, tolerance):
                return t, n
        return None

    everywhere = wrong(list(vs))
    if everywhere is None:
        return None
    for i in range(len(at)):
        alone = wrong([v if j == i else None for j, v in enumerate(vs)])
        if alone is not None:
            return (i, *alone)
    return (-1, *everywhere)


def _array(v: Any) -> Any:
    return None if v is None else jnp.asarray(v)


def second_order(case: Case) -> Violations:
    """Each mode of each mode is what finite differences of the first derivative say."""
    case.need_derivative()
    if case.precision.coarse > 1e-3:
        raise NotChecked("second derivatives are checked in 64 bits")
    s, count = case.subject, len(case.xs)
    reasons = []
    for inside in ("vjp", "jvp"):
        g = _pulled(case) if inside == "vjp" else _pushed(case)
        at = [*case.xs, *(case.ws if inside == "vjp" else case.vs)]
        for outer in ("vjp", "jvp"):
            try:
                wrong = _check_derivative(case, g, at, outer)
            except Exception as error:  # any error of a rule breaks the law, if it applies
                try:
                    yield s.judge("second order", error, str(case))
                except NotChecked as reason:
                    reasons.append(f"{outer} of {inside}: {reason}")
                continue
            if wrong is None:
                continue
            i, got, want = wrong
            kind = "cotangent" if inside == "vjp" else "tangent"
            name = "" if i < 0 else case.argument(i) if i < count else f"{kind} {i - count}"
            lost = _lost(case)
            if lost is not None:
                rule, what = lost
                yield violation(case, "saved values", rule, "", what, got, want)
                return
            what = f"the {outer} of its {inside} differs from finite differences of its {inside}"
            yield violation(case, "second order", s.rule(inside), name, what, got, want)
            return
    if len(reasons) == 4:
        raise NotChecked(reasons[0])


def _lost(case: Case) -> tuple[str, str] | None:
    """What forward keeps that depends on the inputs and has lost its derivative; the rule and why."""
    s = case.subject
    if s.cls is None:
        return None
    seen: list[dict[str, Any]] = []
    rule = "forward" if s.cls._signature.combined else "setup_context"
    for k in range(2):
        cls, log = watched(s.cls)
        apply, s.apply = s.apply, cls.apply
        xs = [jnp.asarray(x * (1.0 - 0.25 * k)) for x in case.xs]
        try:
            vjp(lambda *v: vjp(case.f, *v)[1]([jnp.asarray(w) for w in case.ws]), *xs)
        except HostValueError:
            return None
        finally:
            s.apply = apply
        on_ctx: dict[str, Any] = {}
        for call in log:
            if call.rule == rule:
                for name, (tracked, value) in _kept(call).items():
                    on_ctx[name] = tracked or on_ctx.get(name, (False,))[0], value
        seen.append(on_ctx)
    for name, (tracked, value) in seen[0].items():
        other = seen[1].get(name, (True, None))
        if tracked or other[0] or value is None or other[1] is None:
            continue
        if value.shape == other[1].shape and not np.array_equal(value, other[1], equal_nan=True):
            return rule, (
                f"ctx.{name} is computed from the inputs, but as a number, a NumPy array or a "
                "detached Tensor, so that the derivative of what uses it is lost: save a Tensor "
                "that is computed with fad.numpy"
            )
    return None


def _kept(call: RuleCall) -> dict[str, tuple[bool, Any]]:
    """What is on a context besides inputs and outputs: if a derivative flows through it, and its value."""
    kept: dict[str, tuple[bool, Any]] = {}
    ctx, passed = call.ctx, extend.flatten((call.args[1:], call.kwargs, call.returned))[0]
    passed_ids = {id(x) for x in passed}
    everything = {
        "saved_tensors": ctx.saved_tensors,
        "saved_data": ctx.saved_data,
        **vars(ctx),
    }
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        everything, is_leaf=lambda x: isinstance(x, Tensor)
    )
    for path, x in leaves:
        if id(x) in passed_ids:
            continue
        name = jax.tree_util.keystr(path).removeprefix("['").replace("']", "", 1)
        if isinstance(x, Tensor):
            tracked, inside = any([t.requires_grad for t in layers(x)]), bottom(x)
            value = None if isinstance(inside, jax.core.Tracer) else np.asarray(inside)
        elif isinstance(x, (float, complex, np.ndarray, np.floating, np.complexfloating)):
            tracked, value = False, np.asarray(x)
        else:
            continue
        if value is not None and jnp.issubdtype(value.dtype, jnp.inexact):
            kept[name] = tracked, value
    return kept


def along_curves(case: Case) -> Violations:
    """The jet rule gives the derivatives along a curve that nested jvp gives."""
    case.need_derivative()
    if not case.subject.has("jet"):
        raise NotChecked("there is no jet rule")
    rng = np.random.default_rng(case.seed + 9)
    xs = [jnp.asarray(x) for x in case.xs]
    series = [[jnp.asarray(random_like(x, rng)) for _ in range(3)] for x in case.xs]

    def moved(x: Any, terms: list[Any], t: Any) -> Any:
        powers = [t, t**2 / 2.0, t**3 / 6.0]
        return x + sum([p.astype(x.dtype) * c for p, c in zip(powers, terms, strict=True)])

    f: Fn = lambda t: case.f(*[moved(x, s, t[0]) for x, s in zip(xs, series, strict=True)])  # noqa: E731
    rows = []
    for order in (1, 2, 3):
        f = _velocity(f)
        rows.append([bare(y) for y in f([jnp.zeros(())])])
        pushed = jet(case.f, tuple(xs), tuple([s[:order] for s in series]))[1]
        for k, terms in enumerate(pushed):
            for n, (got, row) in enumerate(zip(terms, rows, strict=True), 1):
                if case.differs(bare(got), row[k], case.precision.coarse):
                    what = f"derivative {n} of output {k}, of {order}, differs from nested jvp"
                    yield violation(case, "jet", "jet", "", what, got, row[k])
                    return


def _velocity(f: Fn) -> Fn:
    """The derivative of a function of one number."""
    return lambda ts: list(jvp(lambda t: f([t]), (ts[0],), (jnp.ones(()),))[1])


def higher_orders(case: Case, order: int) -> Violations:
    """Every stack of vjp, jvp and vmap up to ``order``: its last transform is what it should be."""
    case.need_derivative()
    if case.precision.coarse > 1e-3:
        raise NotChecked("higher derivatives are checked in 64 bits")
    s = case.subject
    for length in range(3, order + 1):
        for names in itertools.product(("vjp", "jvp", "vmap"), repeat=length):
            f: Fn = lambda xs: case.f(*xs)  # noqa: E731
            for name in names[:-1]:
                f = _TRANSFORMS[name](f)
            try:
                wrong = (
                    _check_lanes(case, f)
                    if names[-1] == "vmap"
                    else _check_derivative(case, f, case.xs, names[-1])
                )
            except Exception as error:  # any error of a rule breaks the law
                yield s.judge(f"order {length}", error, f"{case}; {' of '.join(reversed(names))}")
                return
            if wrong is not None:
                i, got, want = wrong
                label = " of ".join(reversed(names))
                what = f"{label} is wrong, although {' of '.join(reversed(names[:-1]))} is right"
                rule = s.rule(
                    next(n for n in names if n != "vmap") if set(names) != {"vmap"} else "vmap"
                )
                name = "" if i < 0 else case.argument(i)
                yield violation(case, f"order {length}", rule, name, what, got, want)
                return


def _fixed(x: Any) -> Any:
    """A direction that depends on the shape alone."""
    return jnp.asarray(np.cos(1.0 + np.arange(x.size)).reshape(x.shape).astype(x.dtype))


def _vjp_of(f: Fn) -> Fn:
    def run(xs: list[Any]) -> list[Any]:
        outs, pull = vjp(lambda *v: f(list(v)), *xs)
        return list(pull([_fixed(o) for o in outs]))

    return run


def _jvp_of(f: Fn) -> Fn:
    return lambda xs: list(jvp(lambda *v: f(list(v)), tuple(xs), tuple([_fixed(x) for x in xs]))[1])


def _vmap_of(f: Fn) -> Fn:
    def run(xs: list[Any]) -> list[Any]:
        pairs = [bind(_LANES, (x,)) for x in xs]
        return list(vmap(lambda *v: f(list(v)))(*pairs))

    return run


_LANES = Primitive("lanes", lambda x: jnp.stack([x, (x * 0.9).astype(x.dtype)]))
_TRANSFORMS: dict[str, Callable[[Fn], Fn]] = {"vjp": _vjp_of, "jvp": _jvp_of, "vmap": _vmap_of}


def _check_lanes(case: Case, f: Fn) -> tuple[int, Any, Any] | None:
    rows = [case.xs, [np.asarray(x * 0.9, x.dtype) for x in case.xs]]
    stacked = [jnp.asarray(np.stack(pair)) for pair in zip(*rows, strict=True)]
    got = bare(list(vmap(lambda *v: f(list(v)))(*stacked)))
    loop = [_values(case, f)(row) for row in rows]
    for g, pair in zip(got, zip(*loop, strict=True), strict=True):
        if case.differs(g, np.stack(pair), 1e-7):
            return -1, g, np.stack(pair)
    return None


# Compilation, and native JAX


def compiled(case: Case) -> Violations:
    """Under fad.jit, its values and derivatives are the eager ones."""
    s = case.subject
    arrays = [jnp.asarray(a) for a in case.arrays]
    eager = [bare(o) for o in s.call(arrays)]
    yield from _same(
        case, "jit", "forward", "the output", jit(lambda *v: s.call(v))(*arrays), eager
    )
    if not case.xs or not case.ys:
        return
    xs = [jnp.asarray(x) for x in case.xs]
    ws = [jnp.asarray(w) for w in case.ws]
    vs = tuple([jnp.asarray(v) for v in case.vs])
    got: Any = jit(lambda xs, ws: vjp(case.f, *xs)[1](ws))(xs, ws)
    yield from _same(case, "jit", s.rule("vjp"), "the gradient", got, case.pull(case.ws))
    got = jit(lambda xs, vs: jvp(case.f, tuple(xs), tuple(vs))[1])(xs, vs)
    yield from _same(case, "jit", s.rule("jvp"), "the tangent", got, case.push(case.vs))


def native(case: Case) -> Violations:
    """Under jax.jit, jax.vjp, jax.jvp and jax.vmap, it does what it does under fad's."""
    s = case.subject
    if s.cls is None:
        raise NotChecked("only Functions go through native JAX transforms")
    arrays = [jnp.asarray(a) for a in case.arrays]
    outs = [bare(o) for o in s.call(arrays)]
    flat = lambda *v: s.call(v)  # noqa: E731
    yield from _same(case, "native JAX", "forward", "under jax.jit the output",
                     jax.jit(flat)(*arrays), outs)  # fmt: skip
    if arrays:
        stacked = [jnp.stack([a, a]) for a in arrays]
        want = [np.stack([o, o]) for o in outs]
        rule = s.rule("vmap")
        got = jax.vmap(flat)(*stacked)
        yield from _same(case, "native JAX", rule, "under jax.vmap the output", got, want)
    if not case.xs or not case.ys:
        return
    xs = [jnp.asarray(x) for x in case.xs]
    _, pull = jax.vjp(lambda *v: list(case.f(*v)), *xs)
    grads = [bare(jnp.conj(g)) for g in pull([jnp.conj(jnp.asarray(w)) for w in case.ws])]
    yield from _same(case, "native JAX", s.rule("vjp"), "the gradient by jax.vjp",
                     grads, case.pull(case.ws))  # fmt: skip
    vs = tuple([jnp.asarray(v) for v in case.vs])
    pushed = jax.jvp(lambda *v: list(case.f(*v)), tuple(xs), vs)[1]
    yield from _same(case, "native JAX", s.rule("jvp"), "the tangent by jax.jvp",
                     pushed, case.push(case.vs))  # fmt: skip


def _same(case: Case, law: str, rule: str, what: str, got: Any, want: Any) -> Violations:
    for g, w in zip(bare(list(got)), want, strict=True):
        if g.dtype != w.dtype:
            said = f"{what} has dtype {g.dtype}, and {w.dtype} without"
            yield violation(case, "dtype", rule, "", said, g, w, law)
            return
        if case.differs(g, w, max(case.precision.fine, 1e-7)):
            yield violation(case, law, rule, "", f"{what} differs from the eager one", g, w)
            return


# Other shapes


def _variants(case: Case) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The arrays in other shapes: empty, of size 1, and without dimensions."""
    if any(a.dtype.kind in "iu" for a in case.arrays):
        raise NotChecked("what integer arguments mean may depend on the sizes of the others")
    sizes = sorted({n for a in case.arrays for n in a.shape if n > 1}, reverse=True)
    for size in sizes:
        for new in (1, 0):
            yield f"size {new} for {size}", [_resized(a, size, new) for a in case.arrays]
    if any(a.ndim for a in case.arrays) and all(a.size for a in case.arrays):
        yield "no dimensions", [a.reshape(-1)[0] for a in case.arrays]


def _resized(a: np.ndarray, size: int, new: int) -> np.ndarray:
    for axis, n in enumerate(a.shape):
        if n == size:
            a = a.take(range(new), axis)
    return a


def shapes(case: Case) -> Violations:
    """What forward takes, the rules take too: arrays that are empty, of size 1, without dimensions."""
    yield from _in_variants(case, "shapes", _variants(case), None)


def broadcasting(case: Case) -> Violations:
    """Where forward broadcasts an argument, its gradient has the argument's own shape."""
    yield from _in_variants(case, "broadcasting", _narrowed(case), [o.shape for o in case.outs])


def _narrowed(case: Case) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The arrays with one of them in a shape that may be broadcast to its own."""
    if len(case.arrays) < 2:
        raise NotChecked("there is only one array to broadcast")
    for k in case.differentiable:
        a = case.arrays[k]
        if a.ndim == 0 or a.size < 2:
            continue
        thin = a[tuple([slice(0, 1)] * a.ndim)]
        for new in (thin, thin.reshape(())):
            arrays = list(case.arrays)
            arrays[k] = new
            yield f"shape {new.shape} for {case.subject.argument(k)}", arrays


def missing_sums(case: Case) -> Iterator[str]:
    """Where a vjp rule returns a gradient that is larger than its argument, which is summed for it."""
    s = case.subject
    if not s.has("vjp") or not case.xs or not case.ys:
        return
    variants: Iterator[tuple[str, Case]] = iter(())
    if len(case.arrays) > 1:
        variants = _accepted(case, _narrowed(case), [o.shape for o in case.outs])
    for label, other in (("", case), *variants):
        for call in watched_calls(other):
            grads = returned(call) if call.rule == s.rule("vjp") else []
            if len(grads) != len(other.xs):  # some are None, and which ones is not known here
                continue
            for i, (g, x) in enumerate(zip(grads, other.xs, strict=True)):
                if tuple(g.shape) != x.shape:
                    where = f", in a call of the check with {label}" if label else ""
                    yield (
                        f"{s.name}.{call.rule}, {other.argument(i)}: the gradient has shape "
                        f"{tuple(g.shape)}, and is summed to {x.shape}, the shape of the argument, "
                        f"as forward broadcasts it{where}. That gives the right gradient. A sum in the "
                        "rule can be cheaper; if forward is not meant to broadcast, let it raise for "
                        "such shapes."
                    )
                    return


def _accepted(
    case: Case, variants: Iterator[tuple[str, list[np.ndarray]]], out_shapes: Any
) -> Iterator[tuple[str, Case]]:
    """Those of the variants that forward takes, and gives outputs of these shapes for."""
    for label, arrays in variants:
        try:
            other = Case(case.subject, arrays, case.seed)
        except Exception:  # forward, which may raise anything, does not take these
            continue
        if out_shapes is not None and [o.shape for o in other.outs] != out_shapes:
            continue
        if other.ys and all(np.all(np.isfinite(y)) for y in other.ys):
            yield label, other


def _in_variants(
    case: Case, law: str, variants: Iterator[tuple[str, list[np.ndarray]]], out_shapes: Any
) -> Violations:
    """The first-order laws on variants of the arrays which forward accepts."""
    case.need_derivative()
    s, checked = case.subject, 0
    for label, other in _accepted(case, variants, out_shapes):
        checked += 1
        for check in (none_gradients, pullback, pushforward):
            try:
                broken = next(iter(check(other)), None)
            except NotChecked:
                continue
            except Exception as error:  # any error of a rule breaks the law, if it applies
                try:
                    broken = s.judge(law, error, f"{other}; {label}")
                except NotChecked:
                    continue
            if broken is not None:
                what = f"with {label}: {broken.what}"
                yield Violation(
                    law, s.name, broken.rule, broken.argument, what, broken.got, broken.expected,
                    broken.case,
                )  # fmt: skip
                return
    if not checked:
        raise NotChecked("forward takes no other shapes")
