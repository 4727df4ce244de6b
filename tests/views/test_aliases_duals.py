"""Dual Tensors and what they were made from: writes to either, and gradients through both, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, bare
from steps import assert_alike

import fad
import fad.numpy as fnp
from fad.errors import GradientError, LevelError

VALUES = np.array([0.5, -1.5, 2.0], dtype=np.float32)
OURS = SimpleNamespace(
    dual_level=fad.dual_level,
    make_dual=fad.make_dual,
    unpack_dual=fad.unpack_dual,
    enabled=fad.autograd.forward_ad.set_fwd_grad_enabled,
    tensor=lambda scale=1.0, **options: fad.tensor(VALUES * np.float32(scale), **options),
    grad=fad.autograd.grad,
    no_grad=fad.no_grad,
    sin=fnp.sin,
)


@pytest.fixture(scope="module")
def theirs(torch: Any) -> SimpleNamespace:
    forward_ad = torch.autograd.forward_ad
    return SimpleNamespace(
        dual_level=forward_ad.dual_level,
        make_dual=forward_ad.make_dual,
        unpack_dual=forward_ad.unpack_dual,
        enabled=forward_ad._set_fwd_grad_enabled,
        tensor=lambda scale=1.0, **options: torch.tensor(VALUES * np.float32(scale), **options),
        grad=torch.autograd.grad,
        no_grad=torch.no_grad,
        sin=torch.sin,
    )


def numbers(x: Any) -> Any:
    """Values as NumPy arrays, of PyTorch's Tensors too."""
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, tuple):
        return tuple(map(numbers, x))
    return x.detach().numpy() if type(x).__module__ == "torch" else bare(x)


def agree(f: Callable[[Any], Any], theirs: Any) -> None:
    expected = numbers(f(theirs))
    for _ in range(4):  # what repeats is replayed
        assert_close(numbers(f(OURS)), expected)


# Programs of a primal, a tangent and their dual; both are looked at afterwards.
WRITES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "nothing": lambda m, x, t, d: None,
    "to the dual": lambda m, x, t, d: d.mul_(2.0),
    "to the dual, twice": lambda m, x, t, d: d.mul_(2.0).add_(1.0),
    "of a number": lambda m, x, t, d: d.zero_(),
    "of another dual": lambda m, x, t, d: d.copy_(m.make_dual(m.tensor(3.0), m.tensor(4.0))),
    "of a plain Tensor": lambda m, x, t, d: d.copy_(m.tensor(3.0)),
    "to a view of the dual": lambda m, x, t, d: d[1:].mul_(2.0),
    "to a view made before": lambda m, x, t, d: (lambda v: (x.add_(1.0), v.mul_(2.0)))(d[:2]),
    "to the primal": lambda m, x, t, d: x.mul_(2.0),
    "to a view of the primal": lambda m, x, t, d: x[1:].mul_(2.0),
    "to the tangent": lambda m, x, t, d: t.mul_(2.0),
    "to a view of the tangent": lambda m, x, t, d: t[:1].mul_(2.0),
    "to all": lambda m, x, t, d: (d.mul_(2.0), t.add_(1.0), x.sub_(1.0), d.mul_(3.0)),
    "to the parts": lambda m, x, t, d: [v.mul_(5.0) for v in m.unpack_dual(d)],
    "through detach": lambda m, x, t, d: d.detach().mul_(2.0),
    "through detach of a view": lambda m, x, t, d: d[1:].detach().mul_(2.0),
    "through detach of the primal": lambda m, x, t, d: x.detach().mul_(2.0),
    "to a second dual": lambda m, x, t, d: m.make_dual(x, m.tensor(7.0)).mul_(2.0),
    "with a tangent, to the primal": lambda m, x, t, d: x.mul_(
        m.make_dual(m.tensor(2), m.tensor(3))
    ),
    "with tangents off": lambda m, x, t, d: m.enabled(False).__exit__(None, None, None),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, theirs: Any) -> None:
    def program(m: Any) -> Any:
        x, t = m.tensor(), m.tensor(10.0)
        with m.dual_level():
            d = m.make_dual(x, t)
            WRITES[name](m, x, t, d)
            y = m.sin(d * d)
            result = (*m.unpack_dual(d), *m.unpack_dual(y), *m.unpack_dual(x))
        d2 = d * 1.0
        return (*result, x, t, d2)

    agree(program, theirs)


def test_a_dual_is_its_parts(theirs: Any) -> None:
    def program(m: Any) -> Any:
        base, t = m.tensor(), m.tensor(10.0)
        x = base[1:]
        with m.dual_level():
            d = m.make_dual(x, t[1:])
            same = m.make_dual(base, t)
            tangent = m.unpack_dual(same).tangent
            d.mul_(2.0)
            again = m.unpack_dual(same).tangent
            outside = tangent is t, again is t
        d.mul_(3.0)  # it is its primal now
        return *outside, base, t, d

    agree(program, theirs)
    x = fad.tensor(VALUES)
    with fad.dual_level():
        d = fad.make_dual(x, VALUES)
        d.mul_(2.0)
        assert fad.unpack_dual(d).primal is x and x.version == d.version == 1


def test_a_write_of_a_dual_to_itself() -> None:
    """Here PyTorch reads the tangent's factor after it has changed it."""
    x, t = fad.tensor(VALUES), fad.tensor(VALUES * 3)
    with fad.dual_level():
        d = fad.make_dual(x, t)
        d.mul_(d)
        assert_close(tuple(fad.unpack_dual(d)), (VALUES**2, 6 * VALUES**2))
    assert_close((x, t), (VALUES**2, 6 * VALUES**2))


@pytest.mark.parametrize(
    ("primal", "tangent"),
    [(fad.tensor, np.asarray), (np.asarray, fad.tensor), (np.asarray, np.asarray)],
)
def test_of_arrays(primal: Any, tangent: Any) -> None:
    x, t = primal(VALUES), tangent(VALUES * 3)
    with fad.dual_level():
        d = fad.make_dual(x, t)
        d.mul_(d)
        p, q = fad.unpack_dual(d)
        assert_close((p, q), (VALUES**2, 6 * VALUES**2))
    for given, out, before in ((x, p, VALUES), (t, q, VALUES * 3)):
        assert_close(given, out if isinstance(given, fad.Tensor) else before)


# Forward over reverse: `x` requires grad.
GRADIENTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "of the primal": lambda m, x, t: (lambda d: (d * d * d).sum())(m.make_dual(x, t)),
    "of a result": lambda m, x, t: (lambda d: (d * d).sum())(m.make_dual(m.sin(x), t)),
    "beside the dual": lambda m, x, t: (m.make_dual(x, t) * x * x).sum(),
    "beside another dual": lambda m, x, t: (m.make_dual(m.tensor(2.0), t) * m.sin(x * x)).sum(),
    "two duals": lambda m, x, t: (m.make_dual(x, t) * m.sin(m.make_dual(x, t * 2.0))).sum(),
    "a view": lambda m, x, t: (lambda d: (d[1:] * d[:-1] * x[1:]).sum())(m.make_dual(x, t)),
    "a written dual": lambda m, x, t: (lambda d: (d.mul_(3.0) * d).sum())(m.make_dual(x * 1.0, t)),
    "a written view": lambda m, x, t: (lambda z, d: (d[1:].mul_(3.0), (d * z).sum())[1])(
        *(lambda z: (z, m.make_dual(z, t)))(x * 1.0)
    ),
    "a written primal": lambda m, x, t: (lambda z, d: (z.mul_(3.0), (d * d).sum())[1])(
        *(lambda z: (z, m.make_dual(z, t)))(x * 1.0)
    ),
    "an index": lambda m, x, t: (lambda d: (d[[0, 0, 2]] ** 2).sum())(m.make_dual(x, t)),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_duals(name: str, create_graph: bool, theirs: Any) -> None:
    def program(m: Any) -> Any:
        x, t = m.tensor(requires_grad=True), m.tensor(4.0)
        with m.dual_level():
            y = GRADIENTS[name](m, x, t)
            (g,) = m.grad(y, x, create_graph=create_graph)
            primal, tangent = m.unpack_dual(g)
            result = [y.requires_grad, primal.requires_grad, primal, tangent]
            if create_graph and tangent is not None and tangent.requires_grad:
                result += m.grad(tangent.sum(), x, retain_graph=True, allow_unused=True)
            if create_graph and primal.requires_grad:
                result += m.grad((primal * primal).sum(), x, allow_unused=True)
        return tuple(result)

    agree(program, theirs)


def test_a_dual_that_is_a_leaf(theirs: Any) -> None:
    def program(m: Any) -> Any:
        x = m.tensor(requires_grad=True)
        with m.dual_level():
            d = m.make_dual(m.tensor(2.0), m.tensor(4.0)).requires_grad_()
            gradients = m.grad((d * d * x).sum(), (x, d))
            return tuple(part for g in gradients for part in m.unpack_dual(g))

    agree(program, theirs)


def test_the_tangent_requires_grad(theirs: Any) -> None:
    def program(m: Any) -> Any:
        x, t = m.tensor(requires_grad=True), m.tensor(4.0, requires_grad=True)
        with m.dual_level():
            d = m.make_dual(x * x, t)
            y = (d * d * x).sum()
            (g,) = m.grad(y, x, create_graph=True)
            tangent = m.unpack_dual(g).tangent
            return (tangent, *m.grad(tangent.sum(), (x, t)))

    agree(program, theirs)


def test_backward_adds_the_primal_to_a_leaf(theirs: Any) -> None:
    def program(m: Any) -> Any:
        x = m.tensor(requires_grad=True)
        seen = []
        x.register_hook(lambda g: seen.append(m.unpack_dual(g).tangent))
        with m.dual_level():
            d = m.make_dual(x, m.tensor(3.0))
            (d * d).sum().backward()
            inside = m.unpack_dual(x.grad).tangent
            (d * d * d).sum().backward()
        return inside, x.grad, *seen

    agree(program, theirs)


def test_no_grad_and_after_the_level(theirs: Any) -> None:
    def program(m: Any) -> Any:
        x = m.tensor(requires_grad=True)
        with m.dual_level():
            with m.no_grad():
                off = m.make_dual(x * 1.0, m.tensor(3.0)).requires_grad
            d = m.make_dual(x * x, m.tensor(3.0))
            y = (d * d).sum()
        return off, *m.grad(y, x)

    agree(program, theirs)


def test_levels_inside_of_levels() -> None:
    """The third derivative, by two levels and the tape."""
    for _ in range(4):
        x = fad.tensor(VALUES, requires_grad=True)
        one = fad.tensor(np.ones_like(VALUES))
        with fad.dual_level() as outer:
            d = fad.make_dual(x, one)
            with fad.dual_level() as inner:
                e = fad.make_dual(d, one)
                (g,) = fad.autograd.grad((e**4).sum(), x)
                second = fad.unpack_dual(g, inner).tangent
            third = fad.unpack_dual(second, outer).tangent
        assert_close(fad.unpack_dual(third).primal, 24 * VALUES)
        assert not third.requires_grad


def test_a_dual_level_inside_of_grad() -> None:
    def f(x: fad.Tensor) -> fad.Tensor:
        with fad.dual_level():
            d = fad.make_dual(x, fad.tensor(np.ones_like(VALUES))).requires_grad_()
            (g,) = fad.autograd.grad((d**4).sum(), d)
            tangent = fad.unpack_dual(g).tangent
        return tangent.sum()

    assert_close(fad.grad(f)(VALUES), 24 * VALUES)
    x = fad.tensor(VALUES, requires_grad=True)
    w = fad.tensor(VALUES * 2, requires_grad=True)
    with fad.dual_level():
        d = fad.make_dual(x, fad.tensor(np.ones_like(VALUES)))
        y = fad.grad(lambda v: (v * v * d * w).sum())(w)  # 2 w d w
        (g,) = fad.autograd.grad(y.sum(), w)
        assert_close(tuple(fad.unpack_dual(g)), (8 * VALUES * VALUES, 8 * VALUES))


def test_refused_writes_change_nothing(theirs: Any) -> None:
    def program(m: Any) -> Any:
        leaf, x, t = m.tensor(requires_grad=True), m.tensor(), m.tensor(2.0, requires_grad=True)
        with m.dual_level():
            for pair in ((leaf, x), (x, t)):
                d = m.make_dual(*pair)
                with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
                    d.mul_(2.0)
            with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
                m.make_dual(leaf, x)[1:].mul_(2.0)
        return leaf, x, t

    program(theirs)  # where the tangent is refused, the primal has been changed already
    assert_close(program(OURS), (VALUES, VALUES, VALUES * 2))


def test_what_a_dual_saved(theirs: Any) -> None:
    def program(m: Any) -> Any:
        x = m.tensor(requires_grad=True)
        z = x * 1.0
        for write in (lambda d: z.mul_(2.0), lambda d: d.mul_(2.0), lambda d: d[1:].mul_(2.0)):
            with m.dual_level():
                d = m.make_dual(z, m.tensor(3.0))
                y = (d * d).sum()
                write(d)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    m.grad(y, x)
        return z

    agree(program, theirs)


def test_detach_in_place_is_refused(theirs: Any) -> None:
    for m in (OURS, theirs):
        with m.dual_level(), pytest.raises(RuntimeError, match="Can't detach views in-place"):
            m.make_dual(m.tensor(), m.tensor()).detach_()


def test_writes_from_inside_of_another_transform() -> None:
    x, t = fad.tensor(VALUES), fad.tensor(VALUES)
    with fad.dual_level():
        d = fad.make_dual(x, t)
        with pytest.raises(LevelError, match="a write to a dual"):
            fad.grad(lambda w: d.mul_(w).sum())(fad.tensor(VALUES))
        assert_close((x, t), (VALUES, VALUES))
        assert_close(tuple(fad.unpack_dual(d)), (VALUES, VALUES))
        # What belongs to the level may be passed in, and is changed for the caller.
        out = fad.vmap(lambda a: a.mul_(3.0))(d)
        assert out is d
        assert_close((x, t), (VALUES * 3, VALUES * 3))
        pure = fad.functionalize(lambda a, b: (a.mul_(2.0), b * 1.0))(d, x)
        assert_close(tuple(fad.unpack_dual(pure[0])), (VALUES * 6, VALUES * 6))
        assert_close((x, t, pure[1]), (VALUES * 3, VALUES * 3, VALUES * 6))


def test_a_gradient_of_what_is_hidden_is_still_refused() -> None:
    x = fad.tensor(VALUES, requires_grad=True)
    with fad.dual_level():
        d = fad.make_dual(fad.tensor(VALUES), fad.tensor(VALUES)).requires_grad_()

        def f(v: fad.Tensor) -> fad.Tensor:
            with pytest.raises(GradientError, match="inside of it"):
                fad.autograd.grad((v * d).sum(), x)
            return (v * d).sum()

        fad.grad(f)(x)


def hessian_product_of_captured_weights() -> Any:
    w, v = fad.tensor(VALUES, requires_grad=True), fad.tensor(VALUES)

    def step(x: fad.Tensor) -> fad.Tensor:
        with fad.dual_level():
            d = fad.make_dual(w, v)
            (fnp.sin(d) * d**2 * x).sum().backward(create_graph=True)
            product = fad.unpack_dual(w.grad).tangent
        with fad.no_grad():
            w.sub_(0.1 * product.detach())
            w.grad = None
        return product.detach()

    return step, lambda k: (fad.tensor(VALUES * np.float32(k + 1)),), [w]


def gradient_of_a_product() -> Any:
    w, v = fad.tensor(VALUES, requires_grad=True), fad.tensor(VALUES)

    def step(x: fad.Tensor) -> fad.Tensor:
        with fad.dual_level():
            (g,) = fad.autograd.grad((fad.make_dual(w, v) ** 3 * x).sum(), w, create_graph=True)
            product = fad.unpack_dual(g).tangent
        product.sum().backward()
        gradient = w.grad * 1.0
        w.grad = None
        return gradient

    return step, lambda k: (fad.tensor(VALUES),), [w]


def pass_that_is_not_recorded() -> Any:
    w, v = fad.tensor(VALUES, requires_grad=True), fad.tensor(VALUES)

    def step(x: fad.Tensor) -> tuple[fad.Tensor, fad.Tensor]:
        with fad.dual_level():
            d = fad.make_dual(w, v)
            (g,) = fad.autograd.grad((d * x) ** 3, w, fnp.ones(3))
            tangent = fad.unpack_dual(g).tangent
            (d**2).sum().backward()
        gradient = w.grad * 1.0
        w.grad = None
        return tangent.detach(), gradient

    return step, lambda k: (fad.tensor(VALUES),), [w]


def two_levels_and_a_leaf_of_the_body() -> Any:
    v = fad.tensor(VALUES)

    def step(x: fad.Tensor) -> tuple[fad.Tensor, fad.Tensor]:
        leaf = x.detach().clone().requires_grad_()
        with fad.dual_level() as outer, fad.dual_level() as inner:
            d = fad.make_dual(fad.make_dual(leaf, v, level=outer), 2.0 * v, level=inner)
            (g,) = fad.autograd.grad((d**4).sum(), leaf, create_graph=True)
            primal, tangent = fad.unpack_dual(fad.unpack_dual(g, inner).tangent, outer)
        return primal.detach(), tangent.detach()

    return step, lambda k: (fad.tensor(VALUES),), []


@pytest.mark.parametrize(
    "make",
    [
        hessian_product_of_captured_weights,
        gradient_of_a_product,
        pass_that_is_not_recorded,
        two_levels_and_a_leaf_of_the_body,
    ],
    ids=lambda make: make.__name__,
)
def test_forward_over_reverse_in_the_body_of_jit(make: Callable[[], Any]) -> None:
    assert_alike(make, calls=3)


def test_derivatives_of_a_compiled_product() -> None:
    def product(x: fad.Tensor) -> fad.Tensor:
        leaf = x.detach().requires_grad_()
        with fad.dual_level():
            (g,) = fad.autograd.grad((fad.make_dual(leaf, x) ** 3).sum(), leaf, create_graph=True)
            return (fad.unpack_dual(g).tangent * x).sum()  # 6 leaf x x

    x = fad.tensor(VALUES)
    assert_close(fad.grad(fad.jit(product))(x), 12.0 * VALUES**2)
    assert_close(fad.jvp(fad.jit(product), (x,), (x,))[1], 12.0 * (VALUES**3).sum())
