"""The table of docs/functions-and-compiled-calls.md, row by row: what things mean in a body of `fad.jit`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, counted, is_idle

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError, LevelError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


def descent(w: fad.Tensor) -> Callable[[Any], fad.Tensor]:
    def step(x):
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss.detach()

    return step


def test_a_result_whose_graph_the_body_has_freed_says_so():
    w = leaf(1.0)

    @fad.jit
    def step(x, keep):
        loss = (w * w * x).sum()
        loss.backward(retain_graph=keep)
        return loss

    step = fad.jit(step.__wrapped__, static_argnames="keep")
    for _ in range(2):
        loss = step(fad.tensor(2.0), keep=False)
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
    w.grad = None
    step(fad.tensor(2.0), keep=True).backward()
    assert w.grad.tolist() == [8.0]


def freeing(w, keep=False):
    """A loss at ``w`` and x, whose graph a pass in the body frees unless ``keep``."""

    def loss(x):
        y = (w * x * x).sum()
        fad.autograd.grad(y, w, retain_graph=keep)
        return y

    return fad.jit(loss)


def test_what_the_body_has_freed_a_level_around_the_call_differentiates():
    """A pass in the body frees the graph there; what levels around record is of the program as a whole."""
    x, xs = jnp.array([1.0, 0.5]), jnp.array([[1.0, 0.5], [2.0, 3.0]])
    w = leaf(1, 2)
    f = freeing(w)
    for _ in range(2):
        assert_close(fad.grad(f)(x), jnp.array([2.0, 2.0]))
        assert_close(fad.value_and_grad(f)(x), (jnp.float32(1.5), jnp.array([2.0, 2.0])))
        assert_close(fad.vmap(fad.grad(f))(xs), 2 * w.array * xs)
        assert_close(fad.vjp(f, x)[1](2.0), (jnp.array([4.0, 4.0]),))
        assert_close(fad.jacfwd(f)(x), jnp.array([2.0, 2.0]))
        assert_close(fad.hessian(f)(x), jnp.diag(jnp.array([2.0, 4.0])))
        assert_close(fad.grad(fad.checkpoint(f))(x), jnp.array([2.0, 2.0]))
        assert_close(fad.jit(fad.grad(f))(x), jnp.array([2.0, 2.0]))
        assert_close(fad.grad(lambda x: f(x) + x.sum())(x), jnp.array([3.0, 3.0]))
        with pytest.raises(GradientError, match="a second time"):
            f(x).backward()


def test_the_loss_of_a_step_has_a_derivative_in_the_batch():
    w = leaf(1, 2)

    @fad.jit
    def step(x):
        penalty = (w * w).sum()
        (g,) = fad.autograd.grad(penalty, w)
        with fad.no_grad():
            w.sub_(0.25 * g)
        return (penalty * x).sum()

    assert_close(fad.grad(step)(jnp.array([1.0, 0.5])), jnp.array([5.0, 5.0]))
    assert_close(w.detach(), fad.tensor([0.5, 1.0]))
    assert_close(fad.grad(step)(jnp.array([1.0, 0.5])), jnp.array([1.25, 1.25]))


def test_a_derivative_of_what_the_body_has_freed_is_tracked_as_of_one_that_it_keeps():
    x = jnp.array([1.0, 0.5])
    for keep in (False, True):
        w = leaf(1, 2)
        f = freeing(w, keep)
        (fad.grad(f)(x) + w).sum().backward()  # 2 w x + w
        assert_close(w.grad, fad.tensor([3.0, 2.0]))
        w.grad = None
        (fad.jvp(f, (x,), (x,))[1] + w.sum()).backward()  # 2 w x x + w
        assert_close(w.grad, fad.tensor([3.0, 1.5]))


def test_gradients_are_state_and_none_is_part_of_the_program():
    w = leaf(1.0)
    step, traces = counted(lambda x: (w * x).sum().backward())
    for k in range(4):
        step(2.0)
        assert w.grad.tolist() == [2.0 * (k + 1)]
    assert len(traces) == 2
    w.grad = None
    held = None
    for _ in range(2):
        step(3.0)
        held = held or w.grad
    assert w.grad is held and held.tolist() == [6.0] and len(traces) == 2

    @fad.jit
    def clear(x):
        had = w.grad is not None
        w.grad = x
        return had

    x = fad.tensor([5.0])
    clear.__wrapped__(x)
    assert w.grad is x


def test_grads_given_from_outside_and_inside():
    w, other = leaf(1.0), fad.tensor([7.0])

    @fad.jit
    def step(x):
        w.grad = other
        (w * x).sum().backward()
        return w.grad

    for k in range(3):
        out = step(fad.tensor(1.0))
        assert w.grad is other and out is other and other.tolist() == [8.0 + k]


def test_what_is_changed_outside_between_calls_is_read():
    w = leaf(1.0, 2.0)
    step, traces = counted(descent(w))
    eager = leaf(1.0, 2.0)
    for k, change in enumerate(
        [
            lambda t: None,
            lambda t: fad.no_grad()(t.mul_)(2.0),
            lambda t: setattr(t, "data", fad.tensor([3.0, 4.0])),
            lambda t: fad.no_grad()(t.copy_)(fad.tensor([0.5, 0.25])),
            lambda t: None,
        ]
    ):
        change(w), change(eager)
        assert_close(step(1.0 + k), descent(eager)(1.0 + k))
        assert_close(w.detach(), eager.detach())
    w.requires_grad_(False)
    with pytest.raises(GradientError, match="does not require grad"):
        step(1.0)
    w.requires_grad_(True)
    step(1.0)
    assert len(traces) <= 7


@pytest.mark.parametrize("cut", [lambda w: w.detach(), lambda w: w.data, lambda w: w[...].detach()])
@pytest.mark.parametrize("nested", [False, True])
def test_a_parameter_that_is_only_detached_has_no_grad(cut, nested):
    """As that of a frozen layer, which a loop over all parameters finds; also after it was written to."""
    w, v = leaf(1.0, 2.0), leaf(3.0, 4.0)

    @fad.jit
    def step(x):
        (cut(w) * v * x).sum().backward()
        found = w.grad
        with fad.no_grad():
            w.sub_(v.grad)
            v.grad = None
        assert w.is_leaf and w.grad is None
        return found

    call = fad.jit(lambda x: step(x)) if nested else step
    for x in (1.0, 2.0):
        assert call(x) is None
    assert w.tolist() == [0.0, 0.0] and w.grad is v.grad is None and w.requires_grad


@pytest.mark.parametrize("freeze", [lambda w: w.detach_(), lambda w: w.requires_grad_(False)])
def test_a_step_that_does_nothing_but_to_freeze_a_parameter(freeze):
    w = leaf(1.0, 2.0)

    @fad.jit
    def step(x):
        freeze(w)
        return (w * x).sum()

    for _ in range(3):
        assert step(3.0).item() == 9.0 and not w.requires_grad and w.tolist() == [1.0, 2.0]


def test_an_argument_that_is_written_to_is_that_of_the_caller():
    @fad.jit
    def step(p, x):
        ((p["w"] * x) ** 2).sum().backward()
        with fad.no_grad():
            p["w"] -= p["w"].grad
            p["w"].grad = None
        x *= 2.0
        return p["w"].sum()

    for _ in range(3):
        w, x = leaf(1.0, 2.0), fad.tensor(0.5)
        step({"w": w}, x)
        assert w.tolist() == [0.5, 1.0] and float(x) == 1.0 and w.grad is None and w.is_leaf
    array = jnp.array(0.5)
    step({"w": w}, array)
    assert array == 0.5


def test_hooks_registered_in_the_body_and_outside():
    w = leaf(1.0)
    seen = []
    handle = w.register_hook(lambda g: (seen.append(1), g * 3)[1])

    @fad.jit
    def step(x):
        y = w * x
        y.register_hook(lambda g: g * 2)
        inner = w.register_hook(lambda g: g + 1)
        y.sum().backward()
        inner.remove()
        g = w.grad
        w.grad = None
        return g

    assert step(fad.tensor(2.0)).tolist() == step(fad.tensor(2.0)).tolist() == [13.0]
    assert len(seen) == 1
    handle.remove()
    assert step(fad.tensor(2.0)).tolist() == [5.0]
    with pytest.raises(HostValueError, match=r"fnp\.where.*hooks=True"):
        w.register_hook(lambda g: g if float(g.sum()) > 0 else -g)
        step(fad.tensor(2.0))


def test_a_failed_trace_or_call_writes_nothing():
    w = leaf(1.0, 2.0)
    buffer = fad.zeros(2)

    def fails(x, how):
        buffer.add_(1.0)
        (w * x).sum().backward()
        with fad.no_grad():
            w.mul_(2.0)
        if how:
            raise how
        return x

    def untouched():
        same = w.tolist() == [1.0, 2.0] and buffer.tolist() == [0.0, 0.0] and w.grad is None
        return same and w.version == buffer.version == 0 and is_idle() and w.level.kind == "eager"

    f = fad.jit(fails, static_argnums=1)
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            f(fad.tensor(1.0), error)
        assert untouched()
    with pytest.raises(TypeError):
        f(fad.tensor([1.0, 2.0, 3.0]), None)
    assert untouched()
    f(fad.tensor(1.0), None)
    assert w.tolist() == [2.0, 4.0] and buffer.version == 1


def test_transforms_around_a_step():
    def eager_and_compiled(make):
        for compile in (lambda f: f, fad.jit):
            yield make(compile)

    def counting(compile):
        count = fad.tensor(0.0)

        def f(x):
            count.add_(1.0)
            return (x * count).sum()

        return compile(f), count

    for f, count in eager_and_compiled(counting):
        assert fad.grad(f)(jnp.ones(2)).tolist() == [1.0, 1.0] and float(count) == 1.0
        assert fad.jvp(f, (jnp.ones(2),), (jnp.ones(2),))[1] == 4.0 and float(count) == 2.0
        assert fad.vmap(f)(jnp.ones((2, 3))).tolist() == [9.0, 9.0] and float(count) == 3.0

    def writing(compile):
        kept = fad.zeros(2)
        return compile(lambda x: (kept.copy_(x), x.sum())[1]), kept

    for f, kept in eager_and_compiled(writing):
        assert fad.grad(f)(jnp.ones(2)).tolist() == [1.0, 1.0] and kept.tolist() == [1.0, 1.0]
        with pytest.raises(LevelError, match="captured from outside of the mapped function"):
            fad.vmap(f)(jnp.full((2, 2), 3.0))
        assert kept.tolist() == [1.0, 1.0]

    for compile in (lambda f: f, fad.jit):
        w = leaf(1.0, 2.0)
        with pytest.raises(GradientError, match="inside of a transform"):
            fad.grad(compile(descent(w)))(jnp.ones(2))
        assert w.tolist() == [1.0, 2.0] and w.grad is None


def test_jit_in_jit():
    w, count = leaf(1.0, 2.0), fad.tensor(0)
    inner = fad.jit(descent(w))

    @fad.jit
    def outer(x):
        total = 0.0
        for k in range(3):
            total = total + inner(x * (k + 1))
            count.add_(1)
        return total

    eager = leaf(1.0, 2.0)
    for k in (1.0, 0.5):
        x = fad.tensor([k, k])
        expected = sum([descent(eager)(x * (i + 1)) for i in range(3)])
        assert_close(outer(x), expected)
        assert_close(w.detach(), eager.detach())
    assert int(count) == 6 and w.version == eager.version and w.grad is None


def test_a_nested_call_returns_the_tensor_from_outside_itself():
    w, total, x = leaf(1.0, 2.0), fad.tensor([0.0, 0.0]), fad.tensor([1.0, 1.0])
    inner = fad.jit(lambda v: (w, total.add_(v), v.mul_(2.0)))

    @fad.jit
    def outer(v):
        first, second, third = inner(v)
        assert first is w and second is total and third is v
        return first, second, third

    for _ in range(3):
        assert all([a is b for a, b in zip(outer(x), (w, total, x), strict=True)])
        assert w.is_leaf and w.requires_grad
    assert total.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("view", [False, True])
def test_the_shape_of_a_tensor_from_outside_is_not_changed_in_place(view: bool) -> None:
    w = fad.tensor([[1.0, 2.0], [3.0, 4.0]])
    row = w[1]
    changed = (lambda: row.unsqueeze_(0)) if view else (lambda: w.transpose_(0, 1))
    with pytest.raises(LevelError, match="the shape of a Tensor from outside"):
        fad.jit(lambda x: (row.mul_(2.0), changed())[1] * x)(fad.tensor(2.0))
    assert w.tolist() == [[1.0, 2.0], [3.0, 4.0]] and row.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("writes", [False, True])
def test_a_view_whose_shape_changes_between_calls_is_as_it_is_at_each(writes: bool) -> None:
    def outcome(compile: Any) -> Any:
        w = fad.tensor([[1.0, 2.0], [3.0, 4.0]])
        row, copy = w[1], w.detach().T

        def step(x):
            if writes:
                row.add_(1.0)
                copy.mul_(2.0)
            return row * x, copy * x

        f, found = compile(step), []
        events = lambda: row.unsqueeze_(0), lambda: row.squeeze_(), lambda: w.transpose_(0, 1)
        for event in (*events, lambda: copy.transpose_(0, 1), lambda: None):
            for _ in range(3):
                found.append([x.tolist() for x in (*f(fad.tensor(2.0)), w, row, copy)])
            event()
        return found

    assert outcome(fad.jit) == outcome(lambda f: f)


def test_a_result_with_a_history_of_what_the_body_lets_require_grad_is_refused():
    p = fad.tensor([1.0, 2.0])
    step = lambda x: (p.requires_grad_() * x).sum()
    with pytest.raises(GradientError, match=r"Write requires_grad_\(\) before the call"):
        fad.jit(step)(fad.tensor(2.0))
    assert not p.requires_grad
    q, r = fad.tensor(2.0, requires_grad=True), fad.tensor(1.0)
    fad.jit(
        lambda: (r.requires_grad_(), q * 3.0)[1]
    )().backward()  # which has nothing to do with it
    assert q.grad == 3.0 and r.requires_grad
    assert float(fad.jit(lambda x: step(x).detach())(fad.tensor(2.0))) == 6.0 and p.requires_grad


@pytest.mark.parametrize("writes", ["a number", "an operand", "a view"])
@pytest.mark.parametrize("first_use", ["before", "in the body"])
@pytest.mark.parametrize("loop", ["scan", "cond", "while"])
def test_bodies_inside_that_write_to_what_is_outside_are_refused(loop, first_use, writes):
    total = fad.tensor([0.0])
    peer = total.detach()

    def body(c):
        (total[:1] if writes == "a view" else total).add_(c if writes == "an operand" else 1.0)
        return c + 1.0

    @fad.jit
    def step(x):
        if first_use == "before":
            total.add_(1.0)
        if loop == "scan":
            return fad.lax.scan(lambda c, _: (body(c), None), x, None, length=2)[0]
        if loop == "cond":
            return fad.lax.cond(x > 0, body, lambda c: c, x)
        return fad.lax.while_loop(lambda c: c < 3.0, body, x)

    with pytest.raises(LevelError, match="which runs more than once.*carry it"):
        step(fad.tensor(1.0))
    assert float(total) == float(peer) == 0.0


def test_a_loop_inside_reads_what_is_outside():
    w = leaf(2.0)

    @fad.jit
    def step(x):
        y = fad.lax.scan(lambda c, _: (c * w, None), x, None, length=3)[0]
        y.sum().backward()
        g, w.grad = w.grad, None
        return g

    for _ in range(2):
        assert step(fad.tensor([1.0])).tolist() == [12.0]


def test_under_a_transform_of_jax_nothing_of_its_trace_stays_outside():
    w, buffer = leaf(1.0, 2.0), fad.zeros(2)

    def eager(x):
        (w * x).sum().backward()
        return x

    step = fad.jit(lambda x: (buffer.add_(x), x)[1])
    for f in (eager, fad.jit(eager), step):
        with pytest.raises((GradientError, LevelError), match="a value of the trace must not stay"):
            jax.jit(f)(jnp.ones(2))
    assert w.grad is None and buffer.tolist() == [0.0, 0.0] and buffer.version == 0
    step(jnp.ones(2))
    assert buffer.tolist() == [1.0, 1.0]


def test_explain_lower_and_eval_shape():
    weights, m = [leaf(1.0, 2.0)], fad.zeros(2)

    def step(x):
        (weights[0] * x).sum().backward()
        with fad.no_grad():
            m.add_(weights[0].grad)
            weights[0].sub_(m)
        weights[0].grad = None
        return m.sum()

    f, x = fad.jit(step), fad.tensor(1.0)
    assert f.eval_shape(x).shape == () and "stablehlo" in f.lower(x).as_text()
    assert weights[0].tolist() == [1.0, 2.0] and m.version == 0
    f(x)
    text = f.explain(x)
    assert "weights[0] (float32[2], requires grad): is written to, its memory is donated" in text
    assert "m (float32[2]): is written to" in text
    weights[0].grad = fad.ones(2)
    assert "weights[0] has a .grad now" in f.explain(x)
    assert "argument 0 is float32[3], was float32[]" in f.explain(fad.ones(3))


def test_a_tensor_that_takes_the_place_of_another_is_found():
    class Model:
        def __init__(self):
            self.w = leaf(1.0)
            self.all = [fad.tensor([2.0])]

        @fad.jit
        def __call__(self, x):
            return (self.w * self.all[0] * x).detach()

    model, x = Model(), fad.tensor([1.0])
    for w, y in ((1.0, 2.0), (1.0, 2.0), (3.0, 2.0), (3.0, 5.0)):
        model.w = model.w if w == 1.0 else leaf(w)
        model.all[0] = fad.tensor([y])
        assert model(x).tolist() == model(x).tolist() == [w * y]


def test_an_object_that_cannot_be_hashed_is_known_by_its_identity():
    @dataclasses.dataclass
    class Model:
        w: Any

        @fad.jit
        def step(self, x):
            self.w.add_(x)

    a, b = Model(fad.zeros(2)), Model(fad.zeros(2))
    a.step(fad.tensor(1.0)), a.step(fad.tensor(1.0)), b.step(fad.tensor(5.0))
    assert a.w.tolist() == [2.0, 2.0] and b.w.tolist() == [5.0, 5.0]


def test_references_to_one_gradient_part_and_join():
    def make(compile):
        a, b, m = leaf(1.0), leaf(2.0), fad.tensor([0.0])
        a.grad = b.grad = m

        def step(x):
            a.grad.add_(x)
            b.grad.add_(2 * x)
            m.mul_(0.5)
            return a.grad + 10 * b.grad

        return compile(step), a, b, m

    eager, compiled = make(lambda f: f), make(fad.jit)
    changes = [
        lambda a, b, m: None,
        lambda a, b, m: None,
        lambda a, b, m: setattr(b, "grad", fad.ones(1)),
        lambda a, b, m: setattr(a, "grad", fad.ones(1)),
        lambda a, b, m: setattr(b, "grad", a.grad),
        lambda a, b, m: setattr(a, "grad", m),
        lambda a, b, m: setattr(b, "grad", m),
    ]
    for change in changes:
        for _, *tensors in (eager, compiled):
            change(*tensors)
        for _ in range(2):
            x = fad.tensor([3.0])
            assert_close(compiled[0](x), eager[0](x))
            for t, u in zip(compiled[1:], eager[1:], strict=True):
                assert_close(t.detach(), u.detach())
            assert_close(compiled[1].grad, eager[1].grad)
            assert_close(compiled[2].grad, eager[2].grad)


def test_a_view_that_takes_the_place_of_another_is_found():
    base = fad.tensor([[1.0], [2.0]])
    rows = {"row": base[0]}
    f = fad.jit(lambda x: (rows["row"].add_(x), base * 1.0)[1])
    for k, expected in ((0, [2.0, 2.0]), (0, [3.0, 2.0]), (1, [3.0, 3.0]), (1, [3.0, 4.0])):
        rows["row"] = base[k] if k else rows["row"]
        assert f(fad.tensor(1.0))[:, 0].tolist() == expected


def test_an_argument_that_shares_its_storage_with_what_is_written_to_is_refused():
    base = fad.zeros(4)
    writes = fad.jit(lambda p: (p.add_(1.0), base * 1.0)[1])
    for make in (lambda: base.view(2, 2), lambda: base.detach()):
        with pytest.raises(LevelError, match=r"shares its storage with leaf 0.*clone"):
            writes(make())
    assert base.tolist() == [0.0] * 4
    assert writes(fad.zeros(4)).tolist() == [0.0] * 4


def test_whether_it_requires_grad_is_state():
    def make(compile):
        a, b = leaf(1.0), fad.tensor([2.0])

        def step(x):
            x.requires_grad_()
            ((a * b - x) ** 2).sum().backward()
            with fad.no_grad():
                for p in (a, b):
                    if p.grad is not None:
                        p.sub_(0.1 * p.grad)
                        p.grad = None
            b.requires_grad_()
            return x.detach() + x.grad

        return compile(step), a, b

    eager, compiled = make(lambda f: f), make(fad.jit)
    for k in range(4):
        x, y = fad.tensor([float(k)]), fad.tensor([float(k)])
        assert_close(compiled[0](x), eager[0](y))
        assert x.requires_grad and x.grad.tolist() == y.grad.tolist()
        for t, u in zip(compiled[1:], eager[1:], strict=True):
            assert t.requires_grad is u.requires_grad
            assert_close(t.detach(), u.detach())
    assert len(compiled[0]._quick) == 2


@pytest.mark.parametrize("calls_before", [0, 1, 6])
def test_one_tensor_given_twice_and_written_to_is_refused(calls_before: int) -> None:
    @fad.jit
    def step(x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
        x.add_(1.0)
        return y * 1.0

    for _ in range(calls_before):
        x, y = fad.zeros(2), fad.ones(2)
        assert step(x, y).tolist() == x.tolist() == y.tolist() == [1.0, 1.0]
    x = fad.zeros(2)
    for _ in range(3):
        with pytest.raises(LevelError, match="shares its storage with leaf 1"):
            step(x, x)
    assert x.tolist() == [0.0, 0.0] and x.version == 0
    assert step(x, y := fad.ones(2)).tolist() == y.tolist() == x.tolist()


def test_a_function_without_arguments_gives_tensors_where_it_uses_some() -> None:
    w = fad.tensor([1.0, 2.0])
    double = fad.jit(lambda: {"y": w * 2.0, "n": fad.numpy.ones(2)})
    for _ in range(6):
        assert [type(x) for x in double().values()] == [fad.Tensor, fad.Tensor]
    assert isinstance(fad.jit(lambda: jnp.ones(2))(), jax.Array)
    assert isinstance(fad.jit(lambda x: x * w)(jnp.ones(2)), jax.Array)


@pytest.mark.parametrize("compile", [lambda f: f, fad.jit], ids=["eager", "jit"])
def test_a_result_has_the_version_of_what_the_body_has_written(compile: Any) -> None:
    def pure(x, other):
        y = x * 1.0
        for _ in range(8):
            y.add_(1.0)
        return {"y": y, "part": y[:1], "new": x * 2.0, "number": 1}

    total, w = fad.zeros(2), leaf(1.0, 2.0)

    def acts(x, other):
        y = x * w
        y.mul_(2.0)
        total.add_(x)
        w.grad = fad.ones(2).mul_(3.0)
        return y, y * 2.0, w.grad

    pure, alone, acts = compile(pure), compile(lambda x: (x * 1.0).add_(1.0)), compile(acts)
    for k in range(5):
        x, other = fad.ones(2), jnp.ones(2) if k == 3 else fad.ones(2)
        out = pure(x, other)
        assert [t.version for t in (out["y"], out["part"], out["new"])] == [8, 8, 0]
        assert alone(x).version == 1 and type(alone(x)) is fad.Tensor
        assert [t.version for t in acts(x, other)] == [1, 0, 1]
        assert w.grad.version == 1 and total.version == k + 1
        out = fad.vmap(pure, in_dims=(0, None))(fad.ones((3, 2)), other)
        assert out["y"].tolist() == [[9.0, 9.0]] * 3


@pytest.mark.parametrize("compile", [lambda f: f, fad.jit], ids=["eager", "jit"])
def test_random_keys_are_arrays_unless_a_tensor_has_them(compile: Any) -> None:
    total, held = fad.zeros(()), fad.tensor(fad.random.key(0))

    def acts(x, key):
        first, second = fad.random.split(key)
        total.add_(x)
        return first, {"second": second}, x * 2.0

    def uses():
        first, second = fad.random.split(held)
        held.copy_(first)
        return first, second

    pure = compile(lambda x, key: (x * 2.0, fad.random.split(key, 3)))
    fixed = compile(lambda x: (x, fad.random.key(3)))
    acts, uses = compile(acts), compile(uses)
    for k in range(4):
        key, x = fad.random.key(k), fad.tensor(1.0)
        first, second = acts(x, key)[:2]
        parts = [first, second["second"], pure(x, key)[1], fixed(x)[1]]
        assert not any([isinstance(p, fad.Tensor) for p in parts])
        assert (
            fad.random.key_data(first).tolist()
            == jax.random.key_data(jax.random.split(key)[0]).tolist()
        )
        assert isinstance(pure(x, fad.tensor(key))[1], fad.Tensor)
        assert isinstance(acts(x, fad.tensor(key))[0], fad.Tensor)
        assert all([isinstance(p, fad.Tensor) for p in uses()])
    assert held.version == 4


@pytest.mark.parametrize("keyed", [fad.random.key, lambda k: fad.random.split(fad.random.key(k))])
def test_a_random_key_alone_gives_tensors_where_others_are_used(keyed: Any) -> None:
    mean = fad.tensor([1.0, 2.0])

    @fad.jit
    def sample(keys):
        key = keys if keys.ndim == 0 else keys[0]
        return mean + fad.random.normal(key, (4, 2)), fad.random.split(key)

    for k in range(4):
        drawn, split = sample(keyed(k))
        assert drawn.std(dim=0).shape == (2,) and not isinstance(split, fad.Tensor)
    plain = fad.jit(lambda key: fad.random.normal(key, (4,)))
    assert not isinstance(plain(keyed(0) if keyed(0).ndim == 0 else keyed(0)[0]), fad.Tensor)
    both = fad.jit(lambda key, x: mean + x)
    assert not isinstance(both(keyed(0), jnp.ones(2)), fad.Tensor)


@pytest.mark.parametrize("compile", [lambda f: f, fad.jit], ids=["eager", "jit"])
def test_an_argument_that_is_written_to_and_returned_is_the_same_tensor(compile: Any) -> None:
    total = fad.zeros(())

    def acts(x, y):
        total.add_(1.0)
        x[0] = y[1]
        return {"y": y.mul_(2.0), "x": x, "sum": (x + y).sum()}

    for step in (compile(acts), compile(lambda x, y: {"x": x.add_(y), "y": y.exp_()})):
        for k in range(4):
            x, y = fad.tensor([1.0, 2.0]), fad.tensor([3.0, k])
            part = fad.tensor([5.0, 1.0, 2.0])[1:] if k == 3 else x
            out = step(part, y)
            assert out["x"] is part and out["y"] is y
            out["x"].add_(1.0)
            assert part.version == out["x"].version and part.tolist() == out["x"].tolist()
    step = compile(lambda x: fad.tensor(x).mul_(2.0) if isinstance(x, jax.Array) else x.mul_(2.0))
    assert step(jnp.ones(2)).tolist() == [2.0, 2.0]
    w = leaf(1.0, 2.0)
    y = w * 1.0
    assert step(y) is y
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]
    assert fad.grad(lambda x: step(x * 1.0).sum())(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert fad.vmap(lambda x: step(x * 1.0))(jnp.ones((2, 2))).tolist() == [[2.0] * 2] * 2
    assert fad.jit(lambda x: step(x * 1.0))(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert fad.eval_shape(step, fad.ones(3)).shape == (3,)


AROUND: dict[str, Callable[[Any], Any]] = {
    "grad": fad.grad,
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (x,)),
    "hessian": fad.hessian,
    "vmap": lambda f: lambda x: fad.vmap(f)(fnp.stack([x, 2 * x])),
    "vmap of grad": lambda f: lambda x: fad.vmap(fad.grad(f))(fnp.stack([x, 2 * x])),
    "vmap of jvp": lambda f: (
        lambda x: fad.vmap(lambda v: fad.jvp(f, (v,), (v,)))(fnp.stack([x, 2 * x]))
    ),
    "grad of vmap": lambda f: fad.grad(lambda x: fad.vmap(f)(fnp.stack([x, 2 * x])).sum()),
    "vmap of hessian": lambda f: lambda x: fad.vmap(fad.hessian(f))(fnp.stack([x, 2 * x])),
    "jvp of vmap": lambda f: (
        lambda x: fad.jvp(fad.vmap(f), (fnp.stack([x, x]),), (fnp.stack([x, x]),))
    ),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("depends", [False, True])
def test_what_is_written_is_at_the_levels_of_what_it_depends_on(around: Any, depends: bool) -> None:
    """As an eager call does: a value that depends on the argument may be refused, or belong to its level."""

    def outcome(compile: Any) -> Any:
        w, count, seen = fad.tensor([1.0, 2.0]), fad.tensor(0.0), fad.zeros(2)

        def step(x):
            count.add_(1.0)
            seen.copy_(2.0 * w)
            if depends:
                w.sub_(0.1 * x)
            return ((w * x) ** 2).sum() * count

        results = []
        for _ in range(3):
            try:
                out = around(compile(step))(fad.tensor([1.0, 3.0]))
                results += [leaf.tolist() for leaf in jax.tree.leaves(out)]
            except (GradientError, LevelError) as error:
                results.append(type(error))
        if LevelError in results:  # what was written before it, a compiled call does not write
            return results
        levels = [t._level.id == 0 for t in (count, seen, w)]
        return results, levels, [(t.tolist(), t.version) for t in (count, seen, w)]

    for a, b in zip(
        jax.tree.leaves(outcome(fad.jit)), jax.tree.leaves(outcome(lambda f: f)), strict=True
    ):
        assert a == b or a == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize("mapped_twice", [False, True])
@pytest.mark.parametrize(
    "written", ["of ones", "of the argument", "of what is written", "index", "beside"]
)
def test_a_collective_gives_what_is_written_the_level_of_its_axis(
    written: str, mapped_twice: bool
) -> None:
    def outcome(compile: Any) -> Any:
        c, count = fad.tensor(0.0), fad.tensor(0.0)

        def step(v):
            if written == "of ones":
                c.add_(fad.lax.psum(fnp.ones(()), "i"))
            elif written == "of the argument":
                c.add_(fad.lax.psum(v, "i"))
            elif written == "of what is written":
                c.add_(fad.lax.psum(c * 1.0, "i"))
            elif written == "index":
                c.add_(fad.lax.axis_index("i") * 1.0)
            else:
                count.add_(1.0)
                c.copy_(count * 2.0)
            return v * fad.lax.psum(v, "i")

        mapped, v = fad.vmap(compile(step), axis_name="i"), fnp.ones(3)
        if mapped_twice:
            mapped, v = fad.vmap(mapped, axis_name="j"), fnp.ones((2, 3))
        results = []
        for _ in range(2):
            try:
                results.append(mapped(v).tolist())
            except LevelError as error:
                results.append(str(error).partition("(")[0])
        return results, c.tolist(), count.tolist()

    assert outcome(fad.jit) == outcome(lambda f: f)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", ["replaced", "written to", "both", "computed", "added to"])
def test_a_grad_that_the_body_returns_is_the_one_that_was_there(case: str, nested: bool) -> None:
    def outcome(compile: Any) -> Any:
        p = leaf(1.0, 2.0)
        p.grad = fad.tensor([1.0, 2.0])

        def step(v):
            grad = p.grad
            if case == "written to":
                grad.mul_(3.0)
            if case == "computed":
                p.grad = grad * v
                return (grad,)
            if case != "added to":
                p.grad = None
            (p * v).sum().backward()
            return (grad, p.grad, v) if case == "both" else (grad,)

        compiled, outcomes = compile(step), []
        for k in range(6):
            before = p.grad
            results = compiled(fad.tensor(2.0 + k))
            same = (results[0] is before, results[0] is p.grad)
            outcomes.append(([x.tolist() for x in results], p.grad.tolist(), same))
            if k == 3:
                p.grad = fad.tensor([7.0, 7.0])
        return outcomes

    compile = (lambda f: fad.jit(fad.jit(f))) if nested else fad.jit
    assert outcome(compile) == outcome(lambda f: f)


@pytest.mark.parametrize("first", ["its own", "shared", "the same"])
@pytest.mark.parametrize("case", ["read", "written to", "both", "added to", "replaced"])
def test_a_grad_may_come_to_share_a_storage_and_no_longer_do(case: str, first: str) -> None:
    def outcome(compile: Any) -> Any:
        w, p = fad.tensor([1.0, 2.0]), leaf(1.0, 1.0)

        def step(v):
            if case == "read":
                w.add_(1.0)
                return p.grad * 1.0
            if case in ("written to", "both"):
                p.grad.add_(1.0)
            if case == "both":
                w.mul_(2.0)
            if case == "added to":
                (p * v).sum().backward()
            if case == "replaced":
                before, p.grad = p.grad * 1.0, None
                (p * v).sum().backward()
                w.add_(before)
            return w * 1.0

        compiled, outcomes = compile(step), []
        kinds = ["its own", "shared", "the same"]
        start = kinds.index(first)
        for k in range(start, start + 7):
            kind = kinds[k % 3]
            grad = fad.tensor([5.0, float(k)])
            p.grad = grad if kind == "its own" else w.detach() if kind == "shared" else w
            for _ in range(4):
                outcomes.append(compiled(fad.tensor(1.0)).tolist())
            outcomes += [w.tolist(), p.grad.tolist(), w.version]
        return outcomes

    assert outcome(fad.jit) == outcome(lambda f: f)
