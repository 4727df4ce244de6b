"""Traces of functions in transforms: but for the time, they are those of single operations."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replays import (
    MODES,
    PROGRAMS,
    TIMES,
    TRANSFORMS,
    Table,
    cube,
    hits,
    in_thread,
    in_threads,
    info,
    last_trace,
    law,
    modes_of,
    off,
    one_mode,
    outcome,
    outcomes,
    same,
)

import fad
import fad.numpy as fnp
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.replay import inputs, states
from fad.replay.program import worker

X = jnp.array([0.5, 1.0, 1.5, 2.0])
pytestmark = pytest.mark.usefixtures("fresh_traces")

# Functions of x, and of a list for what they see and leave; each with whether its gradient is replayed.
FUNCTIONS = Table({name: (lambda x, log, f=f: f(x), True) for name, f in PROGRAMS.items()})
function = FUNCTIONS.row


@function()
def a_net(x, log):
    for _ in range(3):
        x = fnp.tanh(x * 1.3) + x / 2
    return (x * x).sum()


@function()
def what_is_seen(x, log):
    values = (x, fnp.sin(x), x * jnp.arange(4.0), 2 * x.sum(), x > 0.5, fnp.argmax(x))
    for y in values:
        dtype = (y.dtype, y.aval.weak_type)
        log.append((y.shape, y.ndim, dtype, y.requires_grad, y.is_leaf, y.output_nr, y.aval.size))
    return (x * x).sum()


@function()
def a_value_and_a_node_are_read(x, log):
    y = fnp.sin(x)
    z = y * 2.0
    log += [y.tolist(), z.grad_fn.name(), [n.name() for n, _ in z.grad_fn.next_functions if n]]
    return fnp.sum(z * z)


@function()
def a_loop_that_reads(x, log):
    y, t = x * 1.0, 0.0
    while t < 1.0:
        k = fnp.sin(y) * 0.5 + y * 0.1
        e = fnp.max(fnp.abs(k)).item()
        y = y + k * 0.1 if e > 0.4 else y + k * 0.05 + 0.01
        t += 0.1 + e * 0.2
    return (y * y).sum()


@function()
def an_earlier_value_is_read(x, log):
    y = fnp.exp(x) * x
    z = fnp.sin(y) + y
    if z.sum().item() > 0.0:
        z = z * y
    log += [y.max().item(), repr(y).split("level=")[0]]
    return (z * y + x).sum()


@function()
def values_are_kept(x, log):
    y = fnp.sin(x) * 2.0
    bool(y[0] > 0)
    z = y * x
    log += [y, z]
    bool(z[1] > 0)
    return (z + y).sum()


@function()
def constants_of_it(x, log):
    y = fnp.sin(x) + 1.0
    outside = np.asarray(fad.stop_gradient(y)) + jnp.sin(fad.stop_gradient(y).array)
    outside = outside * jax.jit(lambda c: c * 2.0)(X)
    return (fad.stop_gradient(y) * x * y.detach().sum().item() * outside).sum()


@function(replayed=None)
def writes(x, log):
    u = x * 1.0
    v = u[1:]
    for k in range(3):
        u[k] = u[k + 1] * 2.0
        if u.sum().item() > 0.5:
            v += 0.25
        v[0].item()
    part = u[1:3]
    z = fnp.sum(part + x[0])
    part += 1.0
    return (u * x).sum() + z


@function()
def a_hook_of_its_input(x, log):
    y = fnp.sin(x) * 2.0
    x.register_hook(lambda g: log.append(g.clone()) or g * 3.0)
    return fnp.sum(y * y)


@function(replayed=False)
def hooks(x, log):
    y = fnp.sin(x) * 2.0
    y.register_hook(lambda g: log.append(g.clone()) or g * 3.0)
    y.grad_fn.register_hook(lambda gi, go: log.append(len(go)))
    return fnp.sum(y * y)


@function(replayed=False)
def no_grad(x, log):
    u = x * 1.0
    with fad.no_grad():
        u[0] = 2.0
        c = fnp.sin(x)
    return fnp.sum(c * x * u)


@function(replayed=False)
def saved_values_are_packed(x, log):
    y = fnp.sin(x)
    with fad.autograd.saved_tensors_hooks(lambda t: t * 2.0, lambda t: t / 2.0):
        z = y * y
    return fnp.sum(z * x)


@function(replayed=False)
def switched_off(x, log):
    y = fnp.sin(x)
    with fad.autograd.compiled(False):
        z = y * y
        log.append(fad.stop_gradient(z)[0].item())
    return fnp.sum(z)


@function(replayed=False)
def other_settings(x, log):
    y = fnp.sin(x)
    with jax.default_matmul_precision("highest"):
        return y @ y


@function(replayed=None)
def settings_that_refuse(x, log):
    y = fnp.sin(x) + jnp.ones(4, jnp.int32)
    with jax.numpy_dtype_promotion("strict"):
        log += [fad.stop_gradient(y).tolist(), outcome(lambda: fnp.sin(x) + jnp.ones(4, jnp.int32))]
    return y.sum()


@function(replayed=False)
def requires_grad_is_assigned(x, log):
    y = x * 2.0
    x.requires_grad = False
    return (fnp.sin(y) + x * 3.0).sum()


class Scaled(fad.Function):
    """Its rule is not the derivative, and checks what it is given."""

    @staticmethod
    def forward(x):
        assert type(x) is fad.Tensor
        return x * 2.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        assert type(x) is type(y) is type(g) is fad.Tensor
        return g * 5.0 * y / x


@function(replayed=False)
def functions_with_rules(x, log):
    return (Scaled.apply(fnp.sin(x)) * 2).sum()


@function(replayed=None)
def an_error(x, log):
    y = fnp.sin(x)
    log.append("before")
    z = y @ fnp.ones(7)
    log.append("after")
    return z


@function()
def an_error_after_a_read(x, log):
    y = fnp.sin(x) * x
    y.sum().item()
    return (y + jnp.ones(3)).sum()


@function(replayed=False)
def child_threads(x, log):
    y = fnp.sin(x)
    parts = in_threads([lambda k=k: y * x + float(k) for k in range(3)])
    return fnp.sum(parts[0] * parts[1] + parts[2])


@function(replayed=None)
def another_thread_reads(x, log):
    y = fnp.sin(x) * x
    log.append(in_thread(lambda: ((fad.stop_gradient(y) * 2).sum().item(), y.sum().item())))
    return (y * y).sum()


@function(replayed=False)
def traced_code_of_its_values(x, log):
    y = fnp.sin(x)
    mixed = jax.jit(lambda c: c * (y * 2.0).value)(X)
    total = fad.jit(lambda a: fnp.sum(a * a))(y)
    return fnp.sum(mixed * y) + total + y[0]


@function()
def an_infinite_derivative(x, log):
    zero = x - X[0]
    slope, _ = fad.grad(lambda x: (fnp.sum(x * x), fnp.log(x)), has_aux=True)(zero)
    return fnp.sum(slope)


def run(name, transform):
    """What a transform of a function gives, and the function leaves."""

    def call():
        log = []
        found = outcome(lambda: TRANSFORMS[transform](lambda x: FUNCTIONS[name][0](x, log))(X))
        lazies = [v._lazy for v in log if isinstance(v, fad.Tensor)]
        assert all([lazy is None or lazy.trace.done for lazy in lazies])
        return [found, *outcomes(*log)]

    return call


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_as_without_replay(name):
    mode = one_mode(name)
    law(run(name, "grad"), FUNCTIONS[name][1], modes=mode)
    tape = run("writes", "tape twice") if name == "writes" else run(name, "tape")
    law(tape, calls=3, modes=[m for m in MODES if m not in mode])


CASES = list(itertools.product(FUNCTIONS, [t for t in TRANSFORMS if t != "grad"]))


@pytest.mark.sweep("case", CASES, sample=30, ids="-".join)
def test_transforms_are_as_without_replay(case):
    replayed = True if case[0] == "a_net" and case[1] != "linearize" else None
    law(run(*case), replayed, calls=4, modes=one_mode(*case))


# Whole calls.

CALLS = Table()
call = CALLS.row


@call()
def weak_types_of_numbers():
    g = lambda x: fnp.sin(x) * x
    found = []
    for _ in range(3):
        g = fad.grad(g)
        found.append(g(2.0))
    return found


def of_a_pytree(p, scale, y):
    h = fnp.tanh(p["w"] * scale + p["b"])
    return fnp.sum(h * y), {"h": h, "best": fnp.argmax(h), "scale": scale, "none": None}


@call()
def several_arguments_pytrees_and_aux():
    p, z = {"w": X, "b": -X}, X + 1j * X
    return [
        fad.grad(of_a_pytree, argnums=(0, 2), has_aux=True)(p, 2.0, X),
        fad.value_and_grad(of_a_pytree, has_aux=True)(p, 2.0, X),
        fad.grad(lambda x, y: fnp.sum(x * x), argnums=(0, 1))(X, X),
        fad.jacrev(lambda x: {"a": x * x, "b": (x.sum(), x[0] * x)})(X),
        fad.jacrev(lambda x: x * x, chunk_size=2)(X),
        fad.grad(lambda z: fnp.sum(fnp.abs(z * z)))(z),
    ]


@call(replayed=None)
def a_write_to_what_was_captured():
    """It comes after what has read it."""

    def g(w):
        def f(x):
            y = fnp.sum(x * (x + w))
            w.mul_(2.0)
            return y + fnp.sum(x * x + w)

        return fad.grad(f)(X)

    v = fad.tensor(X, requires_grad=True)
    r = g(v * 1.0)
    r.sum().backward()
    return [g(fad.tensor(X)), r, v.grad]


@call()
def under_the_tape():
    w = fad.tensor(X, requires_grad=True)
    g = fad.grad(lambda x: fnp.sum(x**3 * w * fnp.sin(w)))(w)
    (dw,) = fad.autograd.grad(g.sum(), w, retain_graph=True)
    (g * 2).sum().backward()
    return [g, dw, w.grad]


@call(replayed=None)
def requires_grad_of_what_is_captured():
    v = fad.tensor(X)

    def f(x):
        y = x * v
        v.requires_grad = True
        return (y * (x * v)).sum()

    return fad.grad(f)(X)


@call()
def the_grad_mode_is_that_of_the_operations():
    v = fad.tensor(X, requires_grad=True)

    def outer(v):
        def f(x):
            y = x * v
            assert y.grad_fn
            return (y * x).sum(), y

        with fad.no_grad():
            g, aux = fad.grad(f, has_aux=True)(X)
        return (g * v * aux).sum()

    def switched(x):
        y = (fnp.sin(x) * v).sum()
        fad.set_grad_enabled(False)
        return y

    with fad.no_grad():
        found = [fad.value_and_grad(lambda x: (x * v * x).sum())(X)]
    try:
        found.append(fad.value_and_grad(switched)(X))
    finally:
        fad.set_grad_enabled(True)
    return [*found, fad.grad(outer)(X + 1.0)]


@call()
def transforms_of_jax_around():
    f = fad.grad(cube)
    g = lambda x: fad.grad(lambda y: cube(y * x))(x)
    return [
        f(X),
        jax.jit(f)(X),
        jax.jit(lambda x: x * f(X))(X),
        jax.vmap(f)(jnp.stack([X, X])),
        jax.jit(lambda t: fad.jvp(f, (X,), (t,))[1])(X),
        jax.jit(lambda t: fad.hvp(cube, (X,), (t,))[1][0])(X),
        jax.jvp(g, (X,), (X,)),
        jax.grad(lambda y: jnp.sum(y * fad.to_jax(f)(X)))(X),
    ]


class Odd:
    def __call__(self, x):
        return cube(x)

    def __getattr__(self, name):
        if name.startswith("__") and name != "__code__":
            raise AttributeError(name)
        return []


@call()
def no_outputs_and_callables_of_every_kind():
    def nothing(x):
        assert fnp.sin(x) is not None
        return ()

    partial = jax.tree_util.Partial(cube)
    return [fad.jacrev(nothing)(X), fad.grad(Odd())(X), fad.grad(partial)(X)]


@call(replayed=None)
def a_scan():
    scanned = lambda x: fad.lax.scan(lambda c, v: (c + v * x[0], None), x[0], fnp.sin(x))[0]
    return fad.grad(scanned)(X)


@call()
def types_of_64_bits_in_a_block():
    wide = lambda x: cube(x.astype("float64"))
    with jax.enable_x64(True):
        found = [fad.grad(wide)(X), fad.jvp(wide, (X,), (X,))]
    assert found[0].dtype == "float32" and found[1][0].dtype == "float64"
    return [*found, fad.jvp(cube, (X,), (X,))]


@call()
def numbers_are_checked_where_jax_checks_them():
    reached, found = [], []

    def f(x):
        y = x * 0
        reached.append(1)
        y = y / y
        reached.append(2)
        return y.sum()

    for transform in (fad.grad(f), lambda x: fad.jvp(f, (x,), (x,))):
        found.append(transform(X))
        with jax.debug_nans(True):
            found.append(outcome(lambda t=transform: t(X)).split(":")[0])
    g = fad.grad(lambda x: fnp.sum(fnp.sqrt(x)) * 0.0)
    found.append(g(X))
    with fad.autograd.detect_anomaly():
        found.append(re.findall(r"\w+Backward\b", outcome(lambda: g(X * 0.0))))
    assert "SqrtBackward" in found[-1] and "FloatingPointError" in found
    return [reached, found]


@call()
def a_failure_leaves_nothing_behind():
    v, kept = fad.tensor(X), []

    def f(x, end):
        kept.append(x * v)
        return cube(x) + end()

    calls = [lambda: fad.grad(f)(X, lambda: 1 // 0), lambda: fad.jvp(f, (X, 0.0), (X, 0.0))]
    found = [*map(outcome, calls), fad.grad(f)(X, lambda: 1.0)]
    v.add_(1.0)
    return [*found, *[k.value for k in kept[:1]]]


@call(replayed=False)
def a_vjp_is_called_later_and_in_another_thread():
    _, pull = fad.vjp(lambda x: fnp.sin(x) * fnp.exp(x), X)
    return [in_thread(lambda: pull(jnp.ones(4))), pull(jnp.ones(4))]


@call()
def on_another_device():
    there = jax.devices()[-1]
    found = [TRANSFORMS[t](cube)(jax.device_put(X, there)) for t in ("grad", "vmap", "hessian")]
    assert all(g.devices() == {there} for g in found)
    assert fad.grad(cube)(X).devices() == X.devices()
    return found


@call()
def an_output_that_is_kept():
    kept = []

    def f(x):
        kept.append(fnp.sin(x))
        return fnp.sum(kept[-1] * kept[-1])

    g = fad.grad(f)(X)
    node = kept[0].grad_fn
    return [g, fad.tensor(kept[0]).detach(), node.name(), outcome(lambda: node(jnp.ones(4)))]


def _reads(x, times):
    for k in range(times):
        ((x * 2.0 + float(k)).sum() * 3.0).item()


@call()
def gradients_are_those_of_their_arguments():
    """Segments whose outputs are gone are freed, and with them what had the arguments as inputs."""
    functions = [
        lambda x, y: [_reads(y, 6), (y * y).sum() * 2.0 + (x * 3.0).sum()][1],
        lambda x, y: [_reads(x, 6), _reads(y, 6), (y * y).sum() * 2.0 + x[0]][2],
        lambda x, y: [_reads(x, 6), _reads(y, 6), (y * y).sum() * 2.0][2],
        lambda x, y: [_reads(x, 3), jnp.float32(2.0)][1],
    ]
    return [fad.grad(f, argnums=(0, 1))(X, jnp.ones(3)) for f in functions]


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_as_without_replay(name):
    law(*CALLS[name], calls=4, modes=modes_of(name))


LARGEST = 1 << 14  # in place of `inputs.LARGE`, so that the test takes less time


@pytest.mark.parametrize("size", [1, 4_000, LARGEST, LARGEST + 1])
def test_arrays_of_all_sizes(size, monkeypatch):
    """Large arrays alone, and together with small ones."""
    for module in (inputs, states):
        monkeypatch.setattr(module, "LARGE", LARGEST)
    x = jnp.linspace(0.0, 1.0, size)

    def f(x):
        y = fnp.sin(x * 2)
        return (y * y).mean() + (fnp.tanh(y[:3]) * 0.5).sum()

    law(lambda: [fad.grad(f)(x), fad.jvp(f, (x,), (x,))], size <= LARGEST or None, calls=3)
    fad.autograd.compiled.clear_cache()
    for _ in range(TIMES):
        fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))(jnp.ones(LARGEST + size))
    assert hits() == 0


def test_against_jax():
    f = lambda m: lambda x: m.sum(m.sin(x) * x**3 * 2.0 + 1.0)
    g, h = f(fnp), f(jnp)
    rows = jnp.stack([X, 2 * X])
    for _ in range(TIMES):
        same(fad.value_and_grad(g)(X), jax.value_and_grad(h)(X))
        same(fad.hessian(g)(X), jax.hessian(h)(X))
        same(fad.jvp(fad.grad(g), (X,), (X,)), jax.jvp(jax.grad(h), (X,), (X,)))
        same(fad.vmap(fad.grad(g))(rows), jax.vmap(jax.grad(h))(rows))
    assert hits() > 0


# How many programs run, and when.


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap"])
def test_a_function_that_repeats_is_one_program_for_all_values(name):
    transform = TRANSFORMS[name](cube)
    with fad.autograd.compiled(wait=True):
        for _ in range(TIMES):
            transform(X)
        before, compiled = info("hits"), info("compiled")
        assert before > 0 and compiled > 0
        for k in range(4):
            transform(X + k)
        assert (info("hits"), info("compiled")) == (before + 4, compiled)


def test_the_cache_is_looked_at_and_cleared_in_one_place():
    info, w = fad.autograd.compiled.cache_info, fad.tensor(X, requires_grad=True)
    with off():
        fad.grad(cube)(X)
    seen = [info()]
    with fad.autograd.compiled(wait=True):
        for run in (lambda: cube(w).backward(), lambda: fad.jvp(cube, (X,), (X,))):
            for _ in range(2 * TIMES):
                run()
            seen.append(info())
    for name in ("structures", "compiled", "hits"):
        assert 0 == seen[0][name] < seen[1][name] < seen[2][name]
    assert seen[-1]["queued"] == seen[-1]["refused"] == 0
    fad.autograd.compiled.clear_cache()
    assert set(info().values()) == {0}


@pytest.mark.parametrize("transform", ["vmap", "grad", "jacfwd"])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_outputs_that_only_the_tuple_of_the_caller_refers_to(monkeypatch, place, transform):
    """A segment ends between the two uses of the pair that an operation gives."""
    monkeypatch.setattr(states, "ends_segment", lambda path, *_: (len(path) + 1) % 4 == place)
    pair = Primitive("pair", lambda x: (jnp.sin(x), jnp.cos(x)), deferrable=True)

    def f(x):
        for _ in range(8):
            both = bind(pair, (x,))
            x = both[0] * 0.5
            x = x + both[1]
            del both
        return x.sum()

    law(lambda: TRANSFORMS[transform](f)(X), True)


def test_explain_names_what_ended_a_trace():
    def looks(x):
        return fnp.sum(fnp.sin(x)) if fnp.sin(x).grad_fn is not None else fnp.sum(x)

    def reads(x):
        y = fnp.sin(x)
        return fnp.sum(y) if y[0].item() > -2.0 else fnp.sum(x)

    with fad.autograd.compiled(wait=True):
        fad.grad(looks)(X)
        assert re.fullmatch(
            r"looks \(1 operations\): recorded: grad_fn in test_trace\.py:\d+ reads a value or a node",
            last_trace(),
        )
        fad.grad(reads)(X)
        assert last_trace() == "reads (3 operations): replayed, in 2 segments"
        fad.grad(cube)(X)
        assert last_trace().endswith("replayed")
    fad.autograd.compiled.clear_cache()
    for _ in range(2):
        fad.grad(reads)(X)
    assert last_trace() == "reads (3 operations): recorded: it is new"


def test_explain_counts_what_ran_one_by_one_and_says_which_line_it_was():
    """A step with a double backward pass, and one with a hook: a line for each, and once what to write."""
    w = fad.tensor(X, requires_grad=True)
    x = fad.tensor(X, requires_grad=True)

    def penalized():
        (slope,) = fad.autograd.grad((w * fnp.sin(x)).sum(), x, create_graph=True)
        (slope**2).sum().backward()

    def hooked():
        h = fnp.sin(w * x)
        h.register_hook(lambda g: g * 2.0)
        (h * w).sum().backward()

    for step, called in ((penalized, "grad"), (hooked, "register_hook")):
        fad.autograd.compiled.clear_cache()
        for _ in range(12):
            step()
        with fad.autograd.profile() as profile:
            step()
        advice, *lines = fad.autograd.compiled.explain().splitlines()
        assert "fad.jit" in advice
        (line,) = [line for line in lines if f"{called} in test_trace.py" in line]
        (said,) = re.findall(r"; then (\d+) nodes one by one", line)
        (own,) = re.findall(r"\((\d+) operations\)", line)
        recorded = len(profile.pairs())
        passed = sum(e.kind == "backward" for e in profile.events())
        passed += called == "grad"  # x, where that pass ends
        assert int(said) == recorded - int(own) + passed


def test_explain_tells_steps_of_different_forms_apart():
    """One loop of two kinds of step, whose traces are alike: the numbers of both are said, and no mean."""
    w = fad.tensor(X, requires_grad=True)
    x = fad.tensor(X, requires_grad=True)

    def step(penalties):
        (slope,) = fad.autograd.grad((w * fnp.sin(x)).sum(), x, create_graph=True)
        for _ in range(penalties):
            slope = slope * w
        slope.sum().backward()

    fad.autograd.compiled.clear_cache()
    for k in range(9):
        step(20 if k % 3 == 2 else 1)
    line = fad.autograd.compiled.explain().splitlines()[-1]
    said = re.search(r"; then (\d+) \((\d+) ×\) or (\d+) \((\d+) ×\) nodes one by one$", line)
    few, often, many, rarely = map(int, said.groups())
    assert often > rarely > 1 and many - few == 2 * 19, line


def test_explain_says_what_has_a_program_recorded_again():
    w = fad.tensor(X, requires_grad=True)
    with fad.autograd.compiled(wait=True):
        for _ in range(3):
            y = fnp.sin(w * 2.0).sum()
            y.item()
            fad.autograd.grad(y, w, create_graph=True)
    line = fad.autograd.compiled.explain().splitlines()[-1]
    assert re.search(
        r"recorded again, since grad in test_trace\.py:\d+ reads a node of it", line
    ), line


def test_segments_are_not_run_while_their_program_is_compiled(monkeypatch):
    submitted = []

    def only_the_first(program, avals):
        submitted.append(program)
        return len(submitted) > 1 or program.compile(avals) is None

    monkeypatch.setattr(worker, "submit", only_the_first)
    loop = run("a_loop_that_reads", "grad")
    with off():
        expected = loop()
    for _ in range(TIMES):
        assert loop() == expected
    assert len(submitted) > 1
    assert re.search("recorded: .*is being compiled", last_trace())
