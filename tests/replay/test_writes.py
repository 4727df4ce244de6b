"""Laws of writes in traces: what is deferred gives the bits, graphs and errors of single operations."""

from __future__ import annotations

import gc
import random
import re

import inplace_programs as programs
import jax.numpy as jnp
import numpy as np
import pytest
from lines import at_finalizers, at_interrupts, interrupt
from replays import assert_bits, bits, exact, replayed

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = np.linspace(-1.0, 1.0, 8).astype(np.float32)


def stencil(x, steps=3):
    u = x * 1.0
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        u[0], u[-1] = u[1], u[-2]
    return u


def into_zeros(x):
    u = fad.tensor(np.zeros((4, 8), np.float32))
    for k in range(4):
        u[k] = x * float(k)
    return u


def through_views(x):
    u = x * 2.0
    first, last = u[:4], u[4:]
    first.mul_(3.0)
    last.copy_(first)
    last += 1.0
    first[1:3] = last[::2]
    return u + u.reshape((2, 4)).T.reshape((-1,))


def of_whole(x):
    u = fnp.exp(x) + 0.0
    u += x
    u *= 0.5
    u -= 1.0
    return u


def by_numbers(x):
    u = x * 1.0
    u[u.detach() > 0.2] = 0.0
    u[fad.tensor([0, 3])] += 1.0
    u.clamp_(-0.5, 0.5)
    return u


def with_branches(x):
    u = x * 1.0
    for k in range(3):
        u[k] = u[k + 1] * 2.0
        if u.sum() > 0:  # reads a value in the middle
            u += 1.0
    return u


PROGRAMS = [stencil, into_zeros, through_views, of_whole, by_numbers, with_branches]


def loss(f):
    return lambda x: (f(x) ** 2).sum()


TRANSFORMS = {
    "grad": lambda f: fad.grad(loss(f)),
    "value": lambda f: fad.value_and_grad(loss(f)),
    "grad of grad": lambda f: fad.grad(lambda x: (fad.grad(loss(f))(x) ** 2).sum()),
    "vmap of grad": lambda f: lambda x: fad.vmap(fad.grad(loss(f)))(jnp.stack([x, x * 0.5])),
    "grad of vmap": lambda f: (
        lambda x: fad.grad(lambda xs: (fad.vmap(f)(xs) ** 2).sum())(jnp.stack([x, x * 0.5]))
    ),
    "jvp of grad": lambda f: lambda x: fad.jvp(fad.grad(loss(f)), (x,), (fnp.cos(x),)),
    "jacrev": lambda f: fad.jacrev(f),
    "jacfwd": lambda f: fad.jacfwd(f),
    "hessian": lambda f: fad.hessian(loss(f)),
}


CASES = [
    (f, transform)
    for f in PROGRAMS
    for transform in TRANSFORMS
    if not (f is with_branches and "vmap" in transform)  # a branch on a value for each lane
    and not (f is by_numbers and transform != "grad")  # indices by a mask that has no value there
]


@pytest.mark.sweep("f, transform", CASES, sample=14)
def test_same_bits_under_transforms(f, transform):
    g = TRANSFORMS[transform](f)
    x = jnp.asarray(X)
    with fad.autograd.compiled(False):
        expected = g(x)
    for wait in (True, False):
        with fad.autograd.compiled(True, wait=wait):
            for k in range(3):
                assert_bits(g(x), expected, f"call {k}, wait={wait}")


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_same_bits_on_the_tape(f):
    def step():
        x = fad.tensor(X, requires_grad=True)
        out = f(x)
        (out**2).sum().backward()
        return x.grad, out.detach(), out.version, names(out.grad_fn)

    with fad.autograd.compiled(False):
        expected = step()
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            found = step()
            assert_bits(found[:2], expected[:2])
            assert found[2:] == expected[2:]


def names(node):
    """The names of the nodes behind one, in the order of a walk."""
    found, todo, seen = [], [node], set()
    while todo:
        n = todo.pop()
        if n is None or n in seen:
            continue
        seen.add(n)
        found.append(n.name())
        todo += [m for m, _ in n.next_functions]
    return found


def test_writes_are_replayed():
    """A function that writes in place is one program, at its level and on the tape."""
    f = loss(stencil)
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            fad.grad(f)(X)
        assert not replayed() or "replayed" in fad.autograd.compiled.explain().split("\n")[-1]
        x = fad.tensor(X, requires_grad=True)
        for _ in range(3):
            f(x).backward()
        if replayed():
            said = fad.autograd.compiled.explain().split("\n")
            assert "recorded" not in said[-1], said


def test_a_long_loop_of_writes():
    """More operations than fit into one segment; a view is alive where it is cut."""
    f = loss(lambda x: stencil(x, 70))
    with fad.autograd.compiled(False):
        expected = fad.grad(f)(X)
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            assert_bits(fad.grad(f)(X), expected)
        assert not replayed() or "recorded" not in fad.autograd.compiled.explain().split("\n")[-1]


OVERWRITTEN = {
    "an input": lambda u: (fnp.sin(u), u.add_(1.0))[0],
    "an output": lambda u: fnp.exp(u).add_(1.0),
    "a view": lambda u: (u[1:] * u[:-1], u.zero_())[0],
    "by a view": lambda u: (u * u, u[2:].zero_())[0],
    "by the same write": lambda u: u[1:].mul_(u[:-1]),
    "a constant": lambda u: _constant(u),
    "a view of a constant": lambda u: _constant(u, slice(2, 5)),
}


def _constant(u, part=slice(None)):
    c = fad.tensor(np.ones(8, np.float32))
    y = u[part] * c[part]
    c[0] = u[0]
    return y


@pytest.mark.parametrize("long", [False, True], ids=["", "in an earlier segment"])
@pytest.mark.parametrize("what", OVERWRITTEN)
def test_what_was_saved_and_overwritten_is_an_error(what, long):
    """The same one with and without replay; inside of allow_mutation_on_saved_tensors there is none."""

    def f(x):
        u = x * 2.0
        if long:
            y = OVERWRITTEN[what](u)
            for _ in range(600):
                y = y + 1.0
            return y.sum()
        return OVERWRITTEN[what](u).sum()

    def error_of(call):
        with pytest.raises(GradientError) as caught:
            call()
        return re.sub(", which is output [^,]*", "", str(caught.value))  # it may be freed by now

    def on_the_tape():
        f(fad.tensor(X, requires_grad=True)).backward()

    with fad.autograd.compiled(False):
        expected = error_of(on_the_tape)
        with fad.autograd.allow_mutation_on_saved_tensors():
            allowed = fad.grad(f)(X)
    assert "modified by an inplace operation" in expected
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            assert error_of(on_the_tape) == expected
            assert error_of(lambda: fad.grad(f)(X)) == expected
            with fad.autograd.allow_mutation_on_saved_tensors():
                assert_bits(fad.grad(f)(X), allowed)
                if replayed():
                    assert "replayed" in fad.autograd.compiled.explain().split("\n")[-1]


def test_saved_in_one_segment_and_overwritten_in_another():
    def f(x):
        u = x * 2.0
        y = fnp.sin(u)
        for _ in range(600):
            y = y + 1.0
        u[2:].zero_()
        return (y + u).sum()

    for on in (False, True):
        with fad.autograd.compiled(on, wait=on):
            for _ in range(3):
                with pytest.raises(GradientError, match="modified by an inplace"):
                    fad.grad(f)(X)


INNER = {
    "grad": lambda u, x: fad.grad(lambda a: (a * a * u).sum())(x * 1.0),
    "vmap": lambda u, x: fad.vmap(lambda a: a * u)(x * 1.0),
    "jvp": lambda u, x: fad.jvp(lambda a: a * u, (x * 1.0,), (x,))[1],
    "of integers": lambda u, x: fad.vmap(lambda a: a * u)(x * 1.0),
}


@pytest.mark.parametrize("inner", INNER)
def test_what_an_inner_transform_saved_and_was_overwritten_is_an_error(inner):
    """Its program is one operation of the outer trace, and has many nodes when it is recorded."""

    def f(x):
        u = x * 1.0
        if inner == "of integers":
            u = (u > 0) * 2
        y = INNER[inner](u, x)
        u[1] = 2
        return (y * 3.0).sum()

    for on in (False, True):
        with fad.autograd.compiled(on, wait=on):
            for _ in range(3):
                with pytest.raises(GradientError, match="modified by an inplace"):
                    f(fad.tensor(X, requires_grad=True)).backward()
                with pytest.raises(GradientError, match="modified by an inplace"):
                    fad.grad(f)(X)


def test_a_tensor_that_was_written_to_outlives_its_trace():
    """It and its views are right after the backward pass, are written to again, and go into later steps."""
    x = fad.tensor(X, requires_grad=True)

    def step():
        x.grad = None
        u = x * 1.0
        u[0] = x[1] * 3.0
        part = u[:3]
        (part * 2.0).sum().backward(retain_graph=True)
        first = x.grad.clone()
        part.add_(1.0)
        u[1] = 5.0
        again = (u * 3.0).sum()
        again.backward()
        return first, x.grad, u.detach(), part.detach(), again.detach(), u.version

    with fad.autograd.compiled(False):
        expected = step()
    with fad.autograd.compiled(True, wait=True):
        for _ in range(4):
            assert_bits(step(), expected)


def test_hooks_and_retained_gradients_of_what_is_written_to():
    def step(seen):
        x = fad.tensor(X, requires_grad=True)
        u = x * 1.0
        u.retain_grad()
        u.register_hook(lambda g: seen.append(bits(g)))
        u[1:3] = u[2:4] * 2.0
        v = u[2:]
        v.retain_grad()
        v += 1.0
        (u * 3.0).sum().backward()
        return x.grad, u.grad, v.grad

    off, on = [], []
    with fad.autograd.compiled(False):
        expected = step(off)
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            on.clear()
            found = step(on)
            assert_bits([g for g in found if g is not None], [g for g in expected if g is not None])
            assert on == off


def test_random_programs_of_views_and_writes(pytestconfig):
    """Values, versions, graphs, gradients and errors are those without replay."""
    seed = pytestconfig.getoption("--seed")
    for k in range(400 if pytestconfig.getoption("--full") else 16):
        rng = random.Random(f"{seed} {k}")
        lines = programs.Writer(rng, bool(k % 2)).program(rng.randint(2, 12))
        with fad.autograd.compiled(False):
            expected = outcome(lines)
        with fad.autograd.compiled(True, wait=True):
            for call in range(2):
                found = outcome(lines)
                assert found == expected, f"program {k}, call {call}\n" + "\n".join(lines)


def test_random_programs_under_transforms(pytestconfig):
    seed = pytestconfig.getoption("--seed")
    args = [jnp.asarray(v) for v in programs.leaf_values(programs.REAL).values()]
    every = tuple(range(len(args)))
    checks = [
        lambda f: fad.grad(f, every)(*args),
        lambda f: fad.vmap(fad.grad(f, every))(*[jnp.stack([x, x * 0.5]) for x in args]),
        lambda f: fad.grad(lambda *a: sum([(g * g).sum() for g in fad.grad(f, every)(*a)]), every)(
            *args
        ),
        lambda f: fad.grad(lambda x: written_outside(f, x, map(fad.asarray, args[1:])))(args[0]),
    ]
    for k in range(60 if pytestconfig.getoption("--full") else 6):
        rng = random.Random(f"{seed} {k} transforms")
        lines = programs.Writer(rng, True, programs.REAL).program(rng.randint(3, 10))
        check = checks[k % len(checks)]
        with fad.autograd.compiled(False):
            expected = error_or(check, lines)
        with fad.autograd.compiled(True, wait=True):
            for call in range(2):
                found = error_or(check, lines)
                assert found == expected, f"program {k}, call {call}\n" + "\n".join(lines)


def written_outside(f, x, rest):
    """A gradient whose function reads a Tensor of the outer level, which is written to in between."""
    outer = x * 1.0

    def inner(y):
        first = f(y * outer.sum(), *rest)
        outer.mul_(0.5)
        return first + (y * outer).sum()

    return (fad.grad(inner)(x) * outer).sum()


def error_or(check, lines):
    names = programs.REAL

    def f(*leaves):
        env = dict(zip(names, leaves, strict=True)) | {"sin": fnp.sin} | programs.functions(fad)
        for line in lines:
            exec(line, {}, env)
        made = [v for n, v in env.items() if n.startswith("v")]
        return sum([(v * v).sum() * (0.3 + 0.1 * k) for k, v in enumerate(made)])

    try:
        return exact(check(f))
    except GradientError as error:
        return re.sub(", which is output [^,]*", "", str(error))


def outcome(lines):
    """All that a program makes, as data; or where and how it fails."""
    values = programs.leaf_values()
    leaves = {n: fad.tensor(v, requires_grad=True) for n, v in values.items()}
    env = {**leaves, "sin": fnp.sin, "no_grad": fad.no_grad, **programs.functions(fad)}
    failed = programs.run(lines, env, GradientError)
    if failed is not None:
        return failed
    made = {n: v for n, v in env.items() if n.startswith("v")}
    total = 0.0
    try:
        for k, v in enumerate(made.values()):
            if v.requires_grad:
                total = total + (abs(v) * (0.3 + 0.1 * k)).sum()
        if isinstance(total, fad.Tensor):
            total.backward()
        after = {n: (v.version, v.requires_grad, names(v.grad_fn)) for n, v in made.items()}
    except GradientError as error:
        return str(error)
    grads = {n: None if x.grad is None else exact(x.grad) for n, x in leaves.items()}
    return grads, after, {n: exact(v.detach()) for n, v in made.items()}


def test_interrupts_leave_a_write_done_or_not_done():
    """After an interrupt anywhere, what was written is whole: its value is one of two, and steps go on."""
    x = fad.tensor(X, requires_grad=True)
    with fad.autograd.compiled(True, wait=True):
        expected = None
        for _ in range(2):
            expected = exact(fad.grad(loss(stencil))(X))
        rng = random.Random(0)
        for _ in range(60):
            with at_interrupts(rng.randrange(1, 4000), interrupt) as moments:
                try:
                    u = stencil(x, 2)
                    (u**2).sum().backward()
                except KeyboardInterrupt:
                    pass
            x.grad = None
            assert exact(fad.grad(loss(stencil))(X)) == expected, moments.count
    gc.collect()


def test_finalizers_that_read_and_write(full):
    """A finalizer that reads what is being written to, or writes elsewhere, changes nothing."""
    x = fad.tensor(X, requires_grad=True)
    other = fad.tensor(X)
    with fad.autograd.compiled(False):
        u = stencil(x, 2)
        (u**2).sum().backward()
        expected = exact((x.grad, u.detach()))
    with fad.autograd.compiled(True, wait=True):
        for number in range(1, 3000, 1 if full else 61):
            x.grad = None
            made = []

            def act():
                other.add_(1.0)
                made.extend([u.detach() + 0.0 for u in [*boxes]])

            boxes = []
            u = x * 1.0
            boxes.append(u)
            with at_finalizers(number, act):
                for _ in range(2):
                    u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
                    u[0], u[-1] = u[1], u[-2]
            (u**2).sum().backward()
            assert exact((x.grad, u.detach())) == expected, number
