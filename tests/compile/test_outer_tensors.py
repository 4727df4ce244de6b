"""What stands in a body of `jit` for Tensors outside: views, aliases, arguments."""

from __future__ import annotations

import pytest
from helpers import assert_close

import fad
from fad.errors import GradientError, LevelError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


def test_views_and_aliases_outside_see_what_is_written():
    base = fad.zeros(4)
    view, peer, held = base[1:3], base.detach(), base.array

    @fad.jit
    def step(x):
        view.add_(x)
        base[0] = view.sum()
        return peer * 1.0

    for k in (1.0, 2.0, 3.0):
        out = step(fad.tensor(1.0))
        assert base.tolist() == peer.tolist() == out.tolist() == [2 * k, k, k, 0.0]
        assert view.tolist() == [k, k] and base.version == view.version == 2 * k
    assert held.tolist() == [0.0] * 4
    y = (leaf(1.0, 1.0, 1.0, 1.0) * base).sum()
    step(fad.tensor(1.0))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        y.backward()


def test_one_tensor_as_an_argument_and_from_outside():
    w = fad.tensor([1.0, 2.0])
    step = fad.jit(lambda x: (w.mul_(2.0), x + w)[1])
    assert step(fad.tensor([1.0, 1.0])).tolist() == [3.0, 5.0]
    assert step(w).tolist() == [8.0, 16.0] and w.tolist() == [4.0, 8.0]
    assert step(fad.tensor([1.0, 1.0])).tolist() == [9.0, 17.0]
    for bad in (w[:], w.detach()):
        with pytest.raises(LevelError, match="shares its storage with leaf 0"):
            step(bad)
    assert w.tolist() == [8.0, 16.0]


def test_what_was_only_detached_reads_like_any_other_tensor_from_outside() -> None:
    def run(compiled: bool) -> list[object]:
        w, v = (fad.tensor(x, requires_grad=True) for x in ([1.0, 2.0], [2.0, 1.0]))

        def detached(x: fad.Tensor) -> fad.Tensor:
            loss = (w.detach() * v * x).sum()
            loss.backward()
            with fad.no_grad():
                w.sub_(1.0)
            return loss.detach()

        def read(x: fad.Tensor) -> fad.Tensor:
            part = w.detach() * x
            assert w.grad is None and w.is_leaf and w.data.shape == (2,)
            return part.sum()

        def within(x: fad.Tensor) -> fad.Tensor:
            return (w * x).sum().detach()

        def nested(x: fad.Tensor) -> fad.Tensor:
            w.detach().mul_(2.0)
            return calls(x) + w.detach().sum()

        def added(x: fad.Tensor) -> fad.Tensor:
            w.data.add_(1.0)
            out = fad.ones(2)
            out.add_(w.detach() * x)
            return out.sum()

        steps = detached, read, nested, added
        calls = fad.jit(within) if compiled else within
        if compiled:
            steps = tuple(map(fad.jit, steps))
        values: list[object] = []
        for k in range(3):
            for step in steps:
                values += [float(step(fad.tensor(3.0 + k))), w.tolist(), w.grad, v.grad.tolist()]
        return values

    assert run(True) == run(False)


ALIASES = {
    "detached": lambda z: z.detach(),
    "a view": lambda z: z[1:],
    "every other": lambda z: z[::2],
}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_an_argument_that_shares_its_storage_is_a_leaf(alias: str, inside: bool, writes: bool):
    def step(x: fad.Tensor) -> fad.Tensor:
        x.requires_grad_(inside or x.requires_grad)
        loss = (x**3).sum()
        loss.backward()
        if writes:
            with fad.no_grad():
                x.sub_(x.grad * 0.01)
        return loss.detach()

    def run(f):
        z = fad.tensor([1.0, 2.0, 3.0, 4.0])
        seen = []
        for _ in range(3):
            x = ALIASES[alias](z).requires_grad_(not inside)
            for _ in range(2):
                seen += [float(f(x)), x.grad.tolist(), x.requires_grad, x.tolist(), z.tolist()]
                seen += [x.version, z.version]
        return seen

    expected = run(step)
    assert [pytest.approx(x, rel=1e-5) for x in expected] == run(fad.jit(step))


@pytest.mark.parametrize("alias", ["detach", "data", "both used"])
def test_a_tensor_whose_storage_has_another_name_outside_gets_its_gradient(alias):
    w, v = (fad.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    other = w.data if alias == "data" else w.detach()
    f = lambda: (w * v * (other if alias == "both used" else 1.0)).sum()
    compiled = fad.jit(f)
    for _ in range(3):
        f().backward()
        expected = w.grad, v.grad
        w.grad = v.grad = None
        compiled().backward()
        assert_close((w.grad, v.grad), expected)
        w.grad = v.grad = None
        with fad.no_grad():
            w.mul_(1.5)
    h = w * 2.0
    kept = h.detach()
    fad.jit(lambda: (h * v).sum())().backward()
    assert_close(w.grad, 2.0 * v.detach())
    assert kept.tolist() == h.tolist()
