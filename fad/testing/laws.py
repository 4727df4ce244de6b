"""The laws of one call and its first derivatives: what the rules of a Function must obey.

Each law is a function of a `Case` that yields a `Violation` for each way in which it fails, and
raises `NotChecked` where it does not apply. `fad.testing.batch_laws` and `fad.testing.order_laws`
have those of vmap, of compilation and of higher derivatives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad import checkpoint, jacfwd, jvp, linearize, no_grad, sparsity, tensor, vjp
from fad.autograd import grad as tape_grad
from fad.testing.cases import (
    Case,
    NotChecked,
    RuleCall,
    Violation,
    containers,
    returned,
    shown,
    watched_calls,
)
from fad.testing.comparison import bare
from fad.testing.finite_differences import coordinates, directional, inner, random_like

Violations = Iterator[Violation]


def violation(
    case: Case,
    law: str,
    rule: str,
    argument: str,
    what: str,
    got: Any,
    expected: Any,
    how: str = "",
) -> Violation:
    """A Violation in this case; ``how`` is what else one needs to see it."""
    return Violation(
        law,
        case.subject.name,
        rule,
        argument,
        what,
        shown(got),
        shown(expected),
        str(case) + (f"; {how}" if how else ""),
    )


def cotangent(ws: Sequence[Any]) -> str:
    """Cotangents for a message."""
    return f"cotangent {shown(ws)}"


# Forward


def deterministic(case: Case) -> Violations:
    """The same call gives the same result, and so do its rules."""
    s = case.subject

    def twice(rule: str, run: Any) -> Violations:
        first, second = run(), run()
        for k, (a, b) in enumerate(zip(first, second, strict=True)):
            if case.differs(b, a):
                what = f"two runs with the same arguments give different values (number {k})"
                yield violation(case, "deterministic", rule, "", what, b, a)
                return

    violations = list(twice("forward", lambda: [bare(o) for o in s.call(case.merged(case.xs))]))
    if not violations and case.xs and case.ys:
        if s.has("vjp") or s.cls is None:
            violations += twice(s.rule("vjp"), lambda: case.pull(case.ws))
        if s.has("jvp"):
            violations += twice("jvp", lambda: case.push(case.vs))
    yield from violations


def no_mutation(case: Case) -> Violations:
    """No body changes what it is given, except for inputs that it marks dirty."""
    violations = list(_mutations(case, watched_calls(case, rules=False)))
    yield from violations or _mutations(case, watched_calls(case))


def _mutations(case: Case, calls: Sequence[RuleCall]) -> Violations:
    s = case.subject
    names = list(s.cls._signature.names)
    for k, call in enumerate(calls):
        if call.rule == "forward":
            dirty = _marked_dirty(call, calls[k + 1 :])
            for x, value, version, path in call.before:
                if (x.value is value and x.version == version) or id(x) in dirty:
                    continue
                what = (
                    "forward changes it in place. Work on x.clone(), or mark it with "
                    "ctx.mark_dirty and return it"
                )
                name = _argument_at(names, path, s.cls._signature.combined)
                yield violation(case, "no mutation", "forward", name, what, x, value)
            now = containers(call.args, call.kwargs)
            if call.containers != now:
                what = "forward changes a list or dict that it is given"
                yield violation(case, "no mutation", "forward", "", what, now, call.containers)
        else:
            changed = call.changed()
            if changed:
                what = f"{call.rule} changes {', '.join(changed)} in place: work on x.clone()"
                yield violation(case, "no mutation", call.rule, "", what, "", "")


def _marked_dirty(call: RuleCall, later: Sequence[RuleCall]) -> set[int]:
    """The ids of the handles that a forward, or the setup_context after it, marked."""
    marks = later[0] if later and later[0].rule == "setup_context" else call
    record = getattr(marks.ctx, "_record", None)
    return set() if record is None else {id(x) for x in record.dirty}


def _argument_at(names: list[str], path: str, combined: bool) -> str:
    """The name of the argument at a path such as ``[0]['w']`` of a body's arguments."""
    head, _, rest = path.removeprefix("[").partition("]")
    if not head.isdigit():
        return f"argument {head}{rest}"
    at = int(head) - combined
    name = f"'{names[at]}'" if at < len(names) else str(at)
    return f"argument {name}{rest}"


def primal(case: Case) -> Violations:
    """The output is the same under every way to compute it."""
    xs = [jnp.asarray(x) for x in case.xs]
    s = case.subject
    whole = [bare(o) for o in s.call(case.merged(case.xs))]
    expected = [whole[k] for k in case.differentiable_outs]
    plain = [bare(o) for o in s.call([tensor(a) for a in case.arrays])]
    ways: list[tuple[str, Any, Any]] = [("given Tensors", plain, whole)]
    ways.append(("given Tensors that require grad", case.outs, whole))
    if case.xs and case.ys:
        ways.append(("as the first result of vjp", vjp(case.f, *xs)[0], expected))
        tangents = tuple([jnp.asarray(v) for v in case.vs])
        ways.append(("as the first result of jvp", jvp(case.f, tuple(xs), tangents)[0], expected))
    with no_grad():
        quiet = s.call(
            [tensor(a, requires_grad=jnp.issubdtype(a.dtype, jnp.inexact)) for a in case.arrays]
        )
    ways.append(("under no_grad", quiet, whole))
    for how, got, want in ways:
        for g, w in zip(bare(got), want, strict=True):
            if case.differs(g, w):
                what = f"the output {how} differs from that of a plain call"
                yield violation(case, "forward", "forward", "", what, g, w)
                break


# Rules


def dtype(case: Case) -> Violations:
    """Gradients have the precision of their inputs, tangents the precision of their outputs."""
    s = case.subject
    for call in watched_calls(case) if s.cls is not None else ():
        if call.rule in ("vjp", "backward"):
            yield from _drift(case, call, case.xs, [case.argument(i) for i in range(len(case.xs))])
        elif call.rule == "jvp":
            names = [f"output {k}" for k in case.differentiable_outs]
            yield from _drift(case, call, case.ys, names)
    weak = [bool(getattr(o, "weak_type", False)) for o in s.call(case.merged(case.xs))]
    inside = [
        bool(getattr(o, "weak_type", False)) for o in s.call([tensor(a) for a in case.arrays])
    ]
    if weak != inside:
        what = "outputs are weakly typed for arrays and not for Tensors, or the other way round"
        yield violation(case, "dtype", "forward", "", what, inside, weak)


def _drift(
    case: Case, call: RuleCall, primals: Sequence[np.ndarray], names: list[str]
) -> Violations:
    directions = returned(call)
    if len(directions) != len(primals):  # some are None, and which ones is not known here
        if len({p.dtype for p in primals}) != 1:
            return
        primals = [primals[0]] * len(directions)
        names = [""] * len(directions)
    for x, p, name in zip(directions, primals, names, strict=True):
        if getattr(x, "weak_type", False):
            continue
        if jnp.finfo(x.dtype).bits != jnp.finfo(p.dtype).bits:
            what = (
                f"{call.rule} returns {x.dtype} for {p.dtype}; it is cast, at the price of precision "
                "or of time"
            )
            yield violation(case, "dtype", call.rule, name, what, str(x.dtype), str(p.dtype))


def linear(case: Case) -> Violations:
    """A vjp rule is linear in the cotangent, a jvp rule in the tangent."""
    case.need_derivative()
    s, rng = case.subject, np.random.default_rng(case.seed + 1)
    a, b = 0.75, -1.5
    tolerance = max(case.precision.fine, 1e-7)
    if s.has("vjp"):
        other = [random_like(w, rng) for w in case.ws]
        mixed = [(a * w + b * o).astype(w.dtype) for w, o in zip(case.ws, other, strict=True)]
        parts = zip(case.pull(mixed), case.pull(case.ws), case.pull(other), strict=True)
        for i, (got, x, y) in enumerate(parts):
            if case.differs(got, np.asarray(a * x + b * y, got.dtype), tolerance):
                what = "the gradient is not linear in the cotangent: vjp(a g + b h) differs from "
                what += "a vjp(g) + b vjp(h)"
                how = f"a={a}, b={b}, g={shown(case.ws)}, h={shown(other)}"
                yield violation(
                    case, "linear", s.rule("vjp"), case.argument(i), what, got, a * x + b * y, how
                )
        zeros = case.pull([np.zeros_like(w) for w in case.ws])
        for i, g in enumerate(zeros):
            if np.any(g != 0):
                what = "the gradient for a cotangent of zeros is not zero"
                rule = s.rule("vjp")
                yield violation(case, "linear", rule, case.argument(i), what, g, np.zeros_like(g))
    if s.has("jvp"):
        for i, x in enumerate(case.xs):
            v, u = case.vs[i], random_like(x, rng)
            at = lambda t: [t if j == i else None for j in range(len(case.xs))]  # noqa: B023, E731
            mixed_t = (a * v + b * u).astype(x.dtype)
            whole, one, two = case.push(at(mixed_t)), case.push(at(v)), case.push(at(u))
            for got, p, q in zip(whole, one, two, strict=True):
                if case.differs(got, np.asarray(a * p + b * q, got.dtype), tolerance):
                    what = "the tangent of the output is not linear in the tangent of the input: "
                    what += "jvp(a t + b u) differs from a jvp(t) + b jvp(u)"
                    how = f"a={a}, b={b}, t={shown(v)}, u={shown(u)}"
                    yield violation(
                        case, "linear", "jvp", case.argument(i), what, got, a * p + b * q, how
                    )
                    break


def _numerical(case: Case, i: int) -> list[np.ndarray]:
    """The derivative of the outputs along the direction of input ``i``."""
    if case.precision.coarse > 0.1:
        raise NotChecked("16-bit floats are too coarse for finite differences")
    return directional(case.numbers, case.xs, case.alone(i), case.precision.step)


def _scale(a: Sequence[Any], b: Sequence[Any]) -> float:
    """By what an inner product may be wrong, relative to its rounding."""
    return sum(float(np.sum(np.abs(x) * np.abs(y))) for x, y in zip(a, b, strict=True))


def _full_gradient(case: Case, i: int) -> np.ndarray:
    """The gradient of <w, f> in input ``i``, entry by entry, by finite differences."""
    x = case.xs[i]
    units = coordinates(np.zeros(x.shape, x.dtype))
    slopes = []
    for unit in units:
        along = [unit if j == i else None for j in range(len(case.xs))]
        slopes.append(
            inner(case.ws, directional(case.numbers, case.xs, along, case.precision.step))
        )
    flat = np.asarray(slopes)
    if np.iscomplexobj(x):
        flat = flat[::2] + 1j * flat[1::2]
    return flat.reshape(x.shape).astype(x.dtype)


def none_gradients(case: Case) -> Violations:
    """A gradient that a vjp rule returns as None is zero."""
    case.need_derivative()
    s = case.subject
    if not s.has("vjp"):
        raise NotChecked("there is no vjp rule")
    calls = [c for c in watched_calls(case) if c.rule in ("vjp", "backward")]
    if all(len(returned(c)) >= len(case.xs) for c in calls):
        return
    for i, g in enumerate(case.pull(case.ws)):
        slope = inner(case.ws, _numerical(case, i))
        if not np.any(g) and abs(slope) > 100 * case.precision.coarse:
            what = f"{s.rule('vjp')} returns None for an argument whose gradient was needed, and is not zero"
            yield violation(
                case,
                "None gradients",
                s.rule("vjp"),
                case.argument(i),
                what,
                "None",
                _full_gradient(case, i),
                cotangent(case.ws),
            )


def pullback(case: Case) -> Violations:
    """The vjp is the adjoint of the finite differences."""
    case.need_derivative()
    s, grads = case.subject, case.pull(case.ws)
    for i, g in enumerate(grads):
        numerical = _numerical(case, i)
        got, expected = inner([g], [case.vs[i]]), inner(case.ws, numerical)
        scale = 1.0 + _scale([g], [case.vs[i]]) + _scale(case.ws, numerical)
        if not abs(got - expected) <= case.precision.coarse * scale:
            what = "the gradient differs from finite differences"
            full = _full_gradient(case, i)
            yield violation(
                case, "vjp", s.rule("vjp"), case.argument(i), what, g, full, cotangent(case.ws)
            )


def pushforward(case: Case) -> Violations:
    """The jvp is what finite differences say."""
    case.need_derivative()
    s = case.subject
    for i in range(len(case.xs)):
        numerical, pushed = _numerical(case, i), case.push(case.alone(i))
        for k, (n, t) in enumerate(zip(numerical, pushed, strict=True)):
            if case.differs(np.asarray(t, n.dtype), n, case.precision.coarse):
                what = f"the tangent of output {k} differs from finite differences"
                how = f"tangent {shown(case.vs[i])} of {case.argument(i)}"
                yield violation(case, "jvp", s.rule("jvp"), case.argument(i), what, t, n, how)
                break


def adjoint(case: Case) -> Violations:
    """<w, J v> = <J^T w, v>: jvp and vjp are about the same linear map."""
    case.need_derivative()
    s, grads = case.subject, case.pull(case.ws)
    for i, g in enumerate(grads):
        pushed = case.push(case.alone(i))
        forward, reverse = inner(case.ws, pushed), inner([g], [case.vs[i]])
        scale = 1.0 + _scale([g], [case.vs[i]]) + _scale(case.ws, pushed)
        if not abs(forward - reverse) <= max(case.precision.fine, 1e-7) * scale:
            what = "jvp and vjp disagree: <w, jvp(v)> is not <vjp(w), v>"
            how = f"v={shown(case.vs[i])}, w={shown(case.ws)}"
            rule = f"{s.rule('jvp')} and {s.rule('vjp')}"
            yield violation(case, "adjoint", rule, case.argument(i), what, forward, reverse, how)


def masks(case: Case) -> Violations:
    """A gradient does not depend on which others are wanted, nor a tangent on which are given."""
    case.need_derivative()
    count, s = len(case.xs), case.subject
    if count < 2:
        raise NotChecked("there is only one argument to differentiate")
    whole = case.pull(case.ws)
    sizes = range(1, count) if count <= 3 else (1, count - 1)
    for wanted in itertools.chain(*[itertools.combinations(range(count), n) for n in sizes]):
        for i, g in zip(wanted, case.pull(case.ws, wanted), strict=True):
            if case.differs(g, whole[i]):
                listed = ", ".join([case.argument(j) for j in range(count) if j not in wanted])
                what = f"the gradient changes where none is wanted for {listed}"
                yield violation(
                    case, "masks", s.rule("vjp"), case.argument(i), what, g, whole[i],
                    cotangent(case.ws),
                )  # fmt: skip
    if not s.has("jvp"):
        return
    zeros = [np.zeros_like(x) for x in case.xs]
    for i in range(count):
        tangents = [case.vs[j] if j == i else zeros[j] for j in range(count)]
        for got, want in zip(case.push(case.alone(i)), case.push(tangents), strict=True):
            if case.differs(got, want):
                what = "the tangent changes where the others are None instead of zeros"
                how = f"tangent {shown(case.vs[i])}"
                yield violation(case, "masks", "jvp", case.argument(i), what, got, want, how)


def unused_outputs(case: Case) -> Violations:
    """An output that is not used counts as one with a cotangent of zeros."""
    case.need_derivative()
    s = case.subject
    if len(case.ys) < 2:
        raise NotChecked("there is only one output with a derivative")
    for k in range(len(case.ys)):
        alone = case.pull([w if j == k else None for j, w in enumerate(case.ws)])
        zeros = case.pull([w if j == k else np.zeros_like(w) for j, w in enumerate(case.ws)])
        for i, (got, want) in enumerate(zip(alone, zeros, strict=True)):
            if case.differs(got, want):
                what = f"with output {k} alone in use, the gradient is not that for cotangents of zeros"
                yield violation(
                    case, "unused outputs", s.rule("vjp"), case.argument(i), what, got, want,
                    cotangent([case.ws[k]]),
                )  # fmt: skip


def _other(case: Case) -> list[np.ndarray]:
    """Other values for the inputs."""
    rng = np.random.default_rng(case.seed + 2)
    return [(x * 0.75 + 0.1 * random_like(x, rng)).astype(x.dtype) for x in case.xs]


def saved_values(case: Case) -> Violations:
    """Each call keeps its own values: another call in between, or a second pass, changes nothing."""
    case.need_derivative()
    s, other = case.subject, _other(case)
    expected = case.pull(case.ws)
    xs = [tensor(x, requires_grad=True) for x in case.xs]
    first = case.f(*xs)
    case.f(*[tensor(x, requires_grad=True) for x in other])
    ws = [jnp.asarray(w) for w in case.ws]
    for number in ("first", "second"):
        grads = tape_grad(first, xs, ws, retain_graph=True, materialize_grads=True)
        for i, (g, e) in enumerate(zip(grads, expected, strict=True)):
            if case.differs(bare(g), e):
                what = f"the {number} backward pass gives another gradient after another call: "
                what += "what the rule reads is not kept by the call itself"
                how = f"{cotangent(case.ws)}; the other call is at {shown(other)}"
                yield violation(
                    case, "saved values", s.rule("vjp"), case.argument(i), what, bare(g), e, how
                )
                return


def eager_tape(case: Case) -> Violations:
    """On the eager tape, given views and used in part, it has the same gradients."""
    case.need_derivative()
    s = case.subject
    bases = [tensor(np.stack([x, (x * 0.5).astype(x.dtype)]), requires_grad=True) for x in case.xs]
    outs = case.f(*[b[0] for b in bases])
    total: Any = None
    for o, w in zip(outs, case.ws, strict=True):
        part = (o.reshape(-1)[::-1] * jnp.asarray(np.conj(w).reshape(-1)[::-1].copy())).sum()
        part = part.real if np.iscomplexobj(w) else part
        total = part if total is None else total + part
    grads = tape_grad(total, bases, create_graph=True, materialize_grads=True)
    expected = case.pull(case.ws)
    again = checkpoint(case.f)
    recomputed = bare(vjp(again, *[jnp.asarray(x) for x in case.xs])[1](
        [jnp.asarray(w) for w in case.ws]))  # fmt: skip
    for i, (g, r, e) in enumerate(zip(grads, recomputed, expected, strict=True)):
        got = np.asarray(g.detach().array)
        if case.differs(got[0], e) or np.any(got[1]):
            what = (
                "given a view, and used through a view, it has another gradient on the eager tape"
            )
            yield violation(
                case, "eager tape", s.rule("vjp"), case.argument(i), what, got[0], e,
                cotangent(case.ws),
            )  # fmt: skip
        if case.differs(r, e):
            what = "under checkpoint it has another gradient"
            yield violation(
                case, "eager tape", s.rule("vjp"), case.argument(i), what, r, e, cotangent(case.ws)
            )
    pushed = case.push(case.vs)
    linearized = linearize(case.f, *[jnp.asarray(x) for x in case.xs])[1](
        *[jnp.asarray(v) for v in case.vs]
    )
    for t, e in zip(linearized, pushed, strict=True):
        if case.differs(bare(t), e):
            what = "linearize gives another tangent than jvp"
            yield violation(case, "eager tape", s.rule("jvp"), "", what, t, e)


def sparsity_rule(case: Case) -> Violations:
    """The pattern that the sparsity rule declares has every entry of the Jacobian."""
    case.need_derivative()
    if not case.subject.has("sparsity") or len(case.ys) != 1:
        raise NotChecked("there is no sparsity rule")
    for i, x in enumerate(case.xs):
        f = lambda x, i=i: case.f(*case.xs[:i], x, *case.xs[i + 1 :])[0]  # noqa: E731
        pattern = np.asarray(sparsity(f)(x).todense())
        missing = np.argwhere((bare(jacfwd(f)(jnp.asarray(x))) != 0) & (pattern == 0))
        if missing.size:
            what = f"the pattern lacks entry {missing[0].tolist()}, where the derivative is not 0"
            yield violation(case, "sparsity", "sparsity", case.argument(i), what, 0, 1)
            return
