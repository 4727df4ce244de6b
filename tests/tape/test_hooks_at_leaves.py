"""Where a graph ends: gradients are added up, from several threads too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, leaf
from nodes import edge

import fad
from fad import autograd
from fad.autograd import GradientEdge
from fad.errors import LevelError


def test_threads_accumulate_without_loss() -> None:
    x = leaf(np.zeros(4, np.float32))

    def work(k: int) -> None:
        for _ in range(20):
            (x * float(k)).sum().backward()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert_close(x.grad, np.full(4, 20.0 * 28.0, np.float32))


def test_accumulate_grad() -> None:
    x = leaf([1.0, 2.0])
    node = edge(x).node
    assert isinstance(node, autograd.AccumulateGrad) and node.variable is x
    assert node.sequence_nr == 2**64 - 1 and node.topological_nr == 0 and node.num_outputs == 0
    assert node.input_metadata(0)[:2] == ((2,), np.float32)
    made = autograd.AccumulateGrad(x)
    assert made(fad.tensor([3.0, 4.0])) == () and x.grad.tolist() == [3.0, 4.0]
    autograd.backward(GradientEdge(made, 0), fad.tensor([1.0, 1.0]))
    assert x.grad.tolist() == [4.0, 5.0]


# In place, as in PyTorch. Each program takes `tensor`, and returns what it has seen.


def _version(t: Any) -> int:
    return t.version if isinstance(t, fad.Tensor) else t._version


def _same_tensor(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    held, version = x.grad, _version(x.grad)
    (x * x).sum().backward()
    return [x.grad is held, held.tolist(), _version(held) - version]


def _views_of_it(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    part, detached = x.grad[1:], x.grad.detach()
    (x * x).sum().backward()
    return [part.tolist(), detached.tolist(), x.grad.tolist()]


def _view_of_a_flat_one(tensor: Any) -> list[Any]:
    flat = tensor([0.0, 0.0, 5.0])
    x = tensor([1.0, 2.0], requires_grad=True)
    x.grad = flat[:2]
    (x * x).sum().backward()
    return [flat.tolist(), x.grad.tolist()]


def _one_for_two(tensor: Any) -> list[Any]:
    a, b = tensor(1.0, requires_grad=True), tensor(1.0, requires_grad=True)
    a.backward(tensor(5.0))
    b.grad = a.grad
    (b * 2.0).backward()
    return [a.grad.item(), b.grad is a.grad]


def _given_ones(tensor: Any) -> list[Any]:
    seen = []
    for create_graph in (False, True):
        x, g = tensor(1.0, requires_grad=True), tensor(5.0)
        x.backward(g, create_graph=create_graph)
        seen.append(x.grad is g)
        (x * 2.0).backward()
        seen += [g.item(), x.grad.item()]
    return seen


def _with_create_graph(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    before = x.grad
    (x * x).sum().backward(create_graph=True)
    held, version = x.grad, _version(x.grad)
    seen = [held is before, before.tolist(), held.requires_grad]
    (x * x).sum().backward()
    return [*seen, x.grad is held, held.tolist(), _version(held) - version, held.requires_grad]


def _with_create_graph_of_a_constant(tensor: Any) -> list[Any]:
    x = tensor(3.0, requires_grad=True)
    (2.0 * x).backward(create_graph=True)
    before = x.grad
    (2.0 * x).backward(create_graph=True)
    return [x.grad is before, before.item(), x.grad.item(), x.grad.requires_grad]


def _saved_by_a_graph(tensor: Any) -> list[Any]:
    x = tensor(2.0, requires_grad=True)
    (x**3).backward(create_graph=True)
    square = x.grad * x.grad
    (x * x).backward()
    try:
        square.backward()
    except RuntimeError as error:
        return ["modified by an inplace operation" in str(error)]
    return [False]


def _retained(tensor: Any) -> list[Any]:
    x = tensor(3.0, requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    y.backward(retain_graph=True)
    before = y.grad
    y.backward()
    return [y.grad is before, before.item(), y.grad.item()]


def _zeroed(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    seen = []
    for _ in range(4):
        (x * x).sum().backward()
        held = x.grad
        seen.append(held.tolist())
        held.zero_()
    return [*seen, x.grad is held]


def _by_hand(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    node = (x * 1.0).grad_fn.next_functions[0][0]
    node(tensor([1.0, 1.0]))
    first = x.grad
    node(tensor([1.0, 1.0]))
    return [first.tolist(), x.grad.tolist(), x.grad is first]


PROGRAMS = [
    _same_tensor,
    _views_of_it,
    _view_of_a_flat_one,
    _one_for_two,
    _given_ones,
    _with_create_graph,
    _with_create_graph_of_a_constant,
    _saved_by_a_graph,
    _retained,
    _zeroed,
    _by_hand,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_grad_is_accumulated_into(program: Callable[[Any], list[Any]], torch: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of create_graph
        expected = program(torch.tensor)
    assert program(fad.tensor) == expected


def test_grad_inside_a_level_is_accumulated_into() -> None:
    def f(x: Any) -> Any:
        t = x.detach().requires_grad_()
        (t * t * x).sum().backward()
        held = t.grad
        (t * t).sum().backward()
        assert t.grad is held
        return (held * x).sum()

    x = np.array([1.0, 2.0], np.float32)
    # The gradient is held = 2 t x + 2 t, t a constant everywhere; outer levels differentiate it.
    assert_close(fad.grad(f)(x), 2 * x * x + 2 * x)
    assert_close(fad.vmap(fad.grad(f))(x), 2 * x * x + 2 * x)
    assert_close(fad.grad(lambda x: fad.grad(f)(x).sum())(x), 2 * x)


def test_grad_of_outside_is_not_written_to_in_traced_code() -> None:
    x = leaf([1.0, 2.0])
    x.grad = fad.tensor([1.0, 1.0])
    held = x.grad

    def f(y: Any) -> Any:
        t = y.detach().requires_grad_()
        t.grad = held
        (t * t).sum().backward()
        return y

    with pytest.raises(LevelError, match="runs more than once"):
        fad.lax.map(f, np.ones((1, 2), np.float32))
    assert held.tolist() == [1.0, 1.0]
    step = fad.jit(f)
    for expected in ([3.0, 3.0], [5.0, 5.0]):
        step(np.ones(2, np.float32))
        assert held.tolist() == expected and x.grad is held


# At dual levels. Each program takes a library and whether passes are recorded, and returns Tensors and facts.


def _parts(lib: Any, *tensors: Any) -> list[Any]:
    """Numbers of the primal and of the tangent, and what is recorded, of each Tensor."""
    seen: list[Any] = []
    for t in tensors:
        if t is None:
            seen.append(None)
            continue
        primal, tangent = lib.autograd.forward_ad.unpack_dual(t)
        numbers = None if tangent is None else np.asarray(tangent.tolist())
        seen += [np.asarray(primal.tolist()), numbers, t.requires_grad]
    return seen


def _dual(lib: Any, x: Any, t: Any = (1.0, -2.0)) -> Any:
    return lib.autograd.forward_ad.make_dual(x, lib.tensor(list(t)))


def _of_a_leaf(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.autograd.forward_ad.dual_level():
        (_dual(lib, p) ** 3).sum().backward(create_graph=record)
        held, seen = p.grad, _parts(lib, p.grad)
    with lib.autograd.forward_ad.dual_level():
        return [*seen, held is p.grad, *_parts(lib, p.grad), p.grad.tolist()]


def _added_to(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    (p * p).sum().backward()
    before, seen = p.grad, []
    with lib.autograd.forward_ad.dual_level():
        d = _dual(lib, p)
        for loss in (lambda: (d**3).sum(), lambda: (p * p).sum(), lambda: (d * d).sum()):
            loss().backward(create_graph=record)
            seen += [*_parts(lib, p.grad, before), p.grad is before]
    (p * p).sum().backward(create_graph=record)
    (p * p).sum().backward()
    return [*seen, p.grad.tolist(), before.tolist(), p.grad.requires_grad, p.grad is before]


def _shared_grad(lib: Any, record: bool) -> list[Any]:
    a = lib.tensor([1.0, 2.0], requires_grad=True)
    b = lib.tensor([1.0, 2.0], requires_grad=True)
    flat = lib.tensor([0.0, 0.0, 5.0])
    a.grad = b.grad = flat[:2]
    detached = flat.detach()
    with lib.autograd.forward_ad.dual_level():
        (_dual(lib, a) ** 3).sum().backward(create_graph=record)
        seen = _parts(lib, a.grad, b.grad, flat, detached)
    return [*seen, a.grad.tolist(), b.grad.tolist(), flat.tolist(), detached.tolist()]


def _in_hooks(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    seen: list[Any] = []
    p.register_post_accumulate_grad_hook(lambda q: seen.extend(_parts(lib, q.grad)))
    with lib.autograd.forward_ad.dual_level():
        d = _dual(lib, p)
        handle = p.register_hook(lambda g: seen.extend(_parts(lib, g)))
        (d**3).sum().backward(create_graph=record)
        handle.remove()
        p.register_hook(lambda g: g * d)
        (p * p).sum().backward(create_graph=record)
    return seen


def _of_inputs(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    q = lib.tensor([3.0, 4.0], requires_grad=True)
    with lib.autograd.forward_ad.dual_level():
        d = _dual(lib, p)
        y = d * d
        (y * y * q).sum().backward(create_graph=record, inputs=[q, y], retain_graph=True)
        (y * q).sum().backward(create_graph=record, inputs=[p], retain_graph=True)
        lib.autograd.backward([y.sum(), (q * d).sum()], create_graph=record)
        return _parts(lib, p.grad, q.grad, y.grad)


def _retained_dual(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    z = p * 2.0
    z.retain_grad()
    with lib.autograd.forward_ad.dual_level():
        d = _dual(lib, z)
        d.retain_grad()
        y = d * d
        y.retain_grad()
        (y * y).sum().backward(create_graph=record, retain_graph=True)
        (d * d).sum().backward(create_graph=record)
        seen = _parts(lib, z.grad, d.grad, y.grad, p.grad)
    return [*seen, z.grad.tolist(), d.grad.tolist(), y.grad.tolist()]


def _dual_leaf(lib: Any, record: bool) -> list[Any]:
    with lib.autograd.forward_ad.dual_level():
        d = _dual(lib, lib.tensor([1.0, 2.0])).requires_grad_()
        (d**3).sum().backward(create_graph=record)
        seen = _parts(lib, d.grad)
        (d * d).sum().backward(create_graph=record)
        return [*seen, *_parts(lib, d.grad)]


def _dual_constants(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    p.grad = lib.tensor([0.0, 0.0])
    with lib.autograd.forward_ad.dual_level():
        c = _dual(lib, lib.tensor([3.0, 4.0]))
        (p * p * c).sum().backward(create_graph=record)
        seen = _parts(lib, p.grad)
        (p * p).backward(c, create_graph=record)
        return [*seen, *_parts(lib, p.grad)]


def _second_order(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.autograd.forward_ad.dual_level():
        (_dual(lib, p) ** 4).sum().backward(create_graph=True)
        g, p.grad = p.grad, None
        g.sum().backward(create_graph=record)
        return _parts(lib, g, p.grad)


def _zeroed_dual(lib: Any, record: bool) -> list[Any]:
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    with lib.autograd.forward_ad.dual_level():
        rate = lib.autograd.forward_ad.make_dual(lib.tensor(0.125), lib.tensor(1.0))
        for _ in range(3):
            (p**3).sum().backward(create_graph=record)
            with lib.no_grad():
                p.sub_(rate * p.grad)
            seen += _parts(lib, p, p.grad)
            p.grad.detach_().zero_()
            seen += _parts(lib, p.grad)
    (p * p).sum().backward()
    return [*seen, p.is_leaf, p.tolist(), p.grad.tolist()]


DUAL_PROGRAMS = [
    _of_a_leaf,
    _added_to,
    _shared_grad,
    _in_hooks,
    _of_inputs,
    _retained_dual,
    _dual_leaf,
    _dual_constants,
    _second_order,
    _zeroed_dual,
]


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("program", DUAL_PROGRAMS)
def test_grad_has_the_tangent_of_the_gradient(
    program: Callable[[Any, bool], list[Any]], record: bool, torch: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of create_graph
        expected = program(torch, record)
    for _ in range(3):  # what repeats is replayed
        found = program(fad, record)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            if isinstance(theirs, (np.ndarray, list)):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)
            else:
                assert ours == theirs


def test_grad_has_tangents_of_nested_levels() -> None:
    x, one = np.array([0.5, -1.5], np.float32), fad.tensor([1.0, 1.0])
    p = leaf(x)
    with fad.dual_level() as outer:
        d = fad.make_dual(p, one)
        with fad.dual_level() as inner:
            (fad.make_dual(d, one) ** 4).sum().backward(create_graph=True)
            second = fad.unpack_dual(p.grad, inner).tangent
            third = fad.unpack_dual(second, outer).tangent
            assert_close(third, 24 * x)
            (fourth,) = autograd.grad(third.sum(), p, retain_graph=True)
        assert_close(fad.unpack_dual(p.grad, outer).tangent, 12 * x**2)
    assert_close((p.grad, fourth), (4 * x**3, 24 * np.ones_like(x)))


def test_the_tangent_of_grad_inside_of_transforms() -> None:
    def product(x: Any, v: Any) -> Any:
        """The Hessian of the sum of x**3, times v."""
        with fad.dual_level():
            d = fad.make_dual(x, v).requires_grad_()
            (d**3).sum().backward(create_graph=True)
            return fad.unpack_dual(d.grad).tangent

    x, v = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0], np.float32)
    assert_close(product(fad.tensor(x), fad.tensor(v)), 6 * x * v)
    assert_close(fad.jvp(product, (x, v), (v, v))[1], 6 * v * v + 6 * x * v)
    assert_close(fad.grad(lambda x: product(x, fad.tensor(v)).sum())(x), 6 * v)
    assert_close(fad.vmap(product)(np.stack([x, v]), np.stack([v, x])), np.stack([6 * x * v] * 2))


def test_the_tangent_of_grad_through_vmap_and_for_complex_numbers(torch: Any) -> None:
    x, v = np.array([[1.0, 2.0]] * 2, np.float32), np.array([[1.0, 0.0], [0.0, 3.0]], np.float32)
    p = leaf(x)
    with fad.dual_level():
        d = fad.make_dual(p, fad.tensor(v))
        fad.vmap(lambda row: (row**3).sum())(d).sum().backward(create_graph=True)
        assert_close(fad.unpack_dual(p.grad).tangent, 6 * x * v)
    seen = []
    for lib in (torch, fad):
        z = lib.tensor([1.0 + 1.0j, 2.0], requires_grad=True)
        with lib.autograd.forward_ad.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            d = lib.autograd.forward_ad.make_dual(z, lib.tensor([1.0j, 2.0 - 1.0j]))
            (d**3).real.sum().backward(create_graph=True)
            seen.append(lib.autograd.forward_ad.unpack_dual(z.grad).tangent.tolist())
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-6)
