"""gradcheck and gradgradcheck, next to PyTorch's."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from functions import Product, Sine
from wrong_rules import MissingConjugate, Pair, WrongFactor, Z

import fad
import fad.numpy as fnp
from fad.testing import GradcheckError, check_function, gradcheck, gradgradcheck

X = np.array([0.3, -0.5, 1.2])
Y = np.array([1.5, 2.0, -0.7])


class Scaled(fad.Function):
    """x^2, whose rules are wrong by the factors on the class."""

    reverse, forward_mode = 1.0, 1.0

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @classmethod
    def with_factors(cls, reverse: float, forward_mode: float) -> Any:
        def vjp(ctx: Any, g: Any) -> Any:
            return 2.0 * reverse * g * ctx.saved_tensors[0]

        def jvp(ctx: Any, x_t: Any) -> Any:
            return 2.0 * forward_mode * x_t * ctx.saved_tensors[0]

        return type("Scaled", (cls,), {"vjp": staticmethod(vjp), "jvp": staticmethod(jvp)})


def torch_scaled(torch: Any, reverse: float, forward_mode: float) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2.0 * reverse * g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, x_t):
            return 2.0 * forward_mode * x_t * ctx.saved_tensors[0]

    return Scaled.apply


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.5, 1.0), (1.0, 1.5), (1.0 + 1e-5, 1.0)])
@pytest.mark.parametrize("modes", [(True, False), (False, True), (True, True)])
def test_gradcheck_says_what_pytorchs_says(
    torch: Any, factors: tuple[float, float], modes: tuple[bool, bool], fast: bool
) -> None:
    backward, forward = modes
    options = {
        "check_backward_ad": backward,
        "check_forward_ad": forward,
        "fast_mode": fast,
        "raise_exception": False,
    }
    x = torch.tensor(X, requires_grad=True)
    theirs = torch.autograd.gradcheck(torch_scaled(torch, *factors), (x,), **options)
    ours = gradcheck(Scaled.with_factors(*factors).apply, (X,), **options)
    assert ours == theirs


def test_the_message_of_gradcheck_is_pytorchs_and_more(torch: Any) -> None:
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError) as theirs:
        torch.autograd.gradcheck(torch_scaled(torch, 1.5, 1.0), (x,))
    with pytest.raises(GradcheckError) as ours:
        gradcheck(Scaled.with_factors(1.5, 1.0).apply, (X,))
    for message in map(str, (theirs.value, ours.value)):
        assert "Jacobian mismatch for output 0 with respect to input 0" in message
        assert "numerical:" in message and "analytical:" in message
    assert "The entry at [0, 0]" in str(ours.value) and "is 0.9, and 0.6" in str(ours.value)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 0"):
        gradcheck(Scaled.with_factors(1.0, 1.5).apply, X, check_forward_ad=True)


def test_gradcheck_takes_trees_complex_numbers_and_more_outputs() -> None:
    def f(p: Any, z: Any, n: Any) -> Any:
        return {"a": fnp.sin(p["w"]) * fnp.abs(z) + n, "b": (z * fnp.conj(z), fnp.real(z))}

    options = {
        "check_forward_ad": True,
        "check_batched_grad": True,
        "check_batched_forward_grad": True,
        "check_grad_dtypes": True,
    }
    assert gradcheck(f, ({"w": np.ones(2)}, Z, 3), **options)
    assert gradcheck(f, ({"w": np.ones(2)}, Z, 3), fast_mode=True, **options)
    assert gradgradcheck(f, ({"w": np.ones(2)}, Z, 3), check_fwd_over_rev=True)

    def lost(p: Any, z: Any) -> Any:
        return p["v"], fad.stop_gradient(p["w"][0]) * z

    with pytest.raises(
        GradcheckError, match=r"output 1 with respect to input 1, argument \[0\]\['w'\]\[0\]"
    ):
        gradcheck(lost, ({"v": X, "w": [Y]}, Y))
    with pytest.raises(GradcheckError, match=r"a complex entry is two rows"):
        gradcheck(MissingConjugate.apply, (Z, Z))


def test_tensors_that_require_grad_are_those_that_are_checked() -> None:
    f = lambda x, y: x * fad.stop_gradient(y)
    x, y = fad.tensor(X, requires_grad=True), fad.tensor(Y)
    assert gradcheck(f, (x, y))
    assert not gradcheck(f, (X, Y), raise_exception=False)
    assert x.grad is None and x.dtype == jnp.float32


def test_gradcheck_turns_64_bits_on_around_itself() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(x.dtype)
        return x * x

    assert gradcheck(f, jnp.ones(2, jnp.float32))
    assert set(map(str, seen)) == {"float64"}
    assert jnp.ones(1).dtype == jnp.float32
    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: 1 / 0, X)
    assert jnp.ones(1).dtype == jnp.float32


def test_gradcheck_finds_other_faults() -> None:
    class Noisy(Sine):
        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return Sine.vjp(ctx, g) * (1.0 + 1e-7 * np.random.uniform())

    with pytest.raises(GradcheckError, match=r"Backward is not reentrant.*nondet_tol\) is 0\.0"):
        gradcheck(Noisy.apply, X)
    assert gradcheck(Noisy.apply, X, nondet_tol=1e-6)

    class NoneForOnes(Pair):
        @staticmethod
        def vjp(ctx: Any, g: Any, h: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2.0 * x * (1.0 if g is None else g) + (0.0 if h is None else 3.0 * h)

    with pytest.raises(GradcheckError, match="undefined cotangents"):
        gradcheck(NoneForOnes.apply, X)

    class NoneNotExpected(Pair):
        @staticmethod
        def vjp(ctx: Any, g: Any, h: Any) -> Any:
            return 2.0 * ctx.saved_tensors[0] * g + 3.0 * h

    with pytest.raises(GradcheckError, match="undefined cotangents.*it raised TypeError"):
        gradcheck(NoneNotExpected.apply, X, check_batched_grad=True)

    class Lanes(Sine):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return fnp.sin(x) * 2.0, in_dims[0]

    mapped = lambda x: fad.vmap(Lanes.apply)(x[None])[0]
    assert not gradcheck(lambda x: Lanes.apply(x) - mapped(x), X, raise_exception=False)
    with pytest.raises(GradcheckError, match="does not require grad, but changes with input 0"):
        gradcheck(lambda x: x.detach() * 2.0, X)
    assert gradcheck(lambda x: fnp.floor(x) * 0.0, X)
    assert gradcheck(lambda x: (x * 2.0, fnp.argmax(x)), X)  # integers have no derivative


def test_batched_gradients_are_compared_with_a_loop() -> None:
    from fad.tape.vmap import BatchLevel

    class OtherUnderVmap(Sine):
        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            k = 2.0 if isinstance(g.level, BatchLevel) else 1.0
            return k * Sine.vjp(ctx, g)

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            k = 2.0 if isinstance(t.level, BatchLevel) else 1.0
            return k * t * fnp.cos(ctx.saved_tensors[0])

    assert gradcheck(OtherUnderVmap.apply, X, check_forward_ad=True)
    with pytest.raises(GradcheckError, match="batched gradient .* differs from a loop"):
        gradcheck(OtherUnderVmap.apply, X, check_batched_grad=True)
    with pytest.raises(GradcheckError, match="batched tangent .* differs from a loop"):
        gradcheck(OtherUnderVmap.apply, X, check_forward_ad=True, check_batched_forward_grad=True)


def test_gradgradcheck_finds_what_is_wrong_at_second_order(torch: Any) -> None:
    class Detached(Sine):
        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * fnp.cos(ctx.saved_tensors[0].detach())

    assert gradcheck(Detached.apply, X)
    with pytest.raises(GradcheckError, match=r"second derivatives: Jacobian mismatch"):
        gradgradcheck(Detached.apply, X)
    assert gradgradcheck(Sine.apply, X, check_fwd_over_rev=True, check_batched_grad=True)
    assert gradgradcheck(Product.apply, (X, Y), [np.ones(3)], fast_mode=True)
    x = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: torch.sin(x) * x, (x,))
    assert gradgradcheck(lambda x: fnp.sin(x) * x, (X,))
    with pytest.raises(ValueError, match="got 2 grad_outputs for 1"):
        gradgradcheck(Sine.apply, X, [X, X])
    with pytest.raises(ValueError, match="no output requires grad"):
        gradgradcheck(fnp.argmax, X)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gradcheck(3.0, X), TypeError, "must be a function, got float"),
        (lambda: gradcheck(fnp.sin, np.arange(3)), ValueError, "floating or complex"),
        (lambda: gradcheck(fnp.sin, ()), ValueError, "got no input"),
        (
            lambda: gradcheck(fnp.sin, X, check_backward_ad=False),
            ValueError,
            "expected at least one of",
        ),
    ],
)
def test_bad_arguments_of_gradcheck(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_checker_leaves_no_trace() -> None:
    check_function(WrongFactor, X, raise_exception=False)
    assert fad.core.level.state.levels == () and fad.is_grad_enabled()
    assert jnp.ones(1).dtype == jnp.float32


@pytest.mark.filterwarnings("ignore:Converting a tensor:UserWarning")
def test_an_output_whose_shape_depends_on_the_value_is_refused(torch: Any) -> None:
    def f(cat: Any) -> Any:
        return lambda x: cat([x, x]) if x[0].item() > 0.3 else x

    for options in (
        {},
        {"fast_mode": True},
        {"check_forward_ad": True, "check_backward_ad": False},
    ):
        with pytest.raises(GradcheckError, match="same shapes and dtypes"):
            gradcheck(f(fnp.concatenate), X, **options)
    assert not gradcheck(f(fnp.concatenate), X, raise_exception=False)
    with pytest.raises(AssertionError, match="same shape"):
        torch.autograd.gradcheck(f(torch.cat), torch.tensor(X, requires_grad=True))


def test_the_inputs_of_the_function_require_grad(torch: Any) -> None:
    """So that hooks and `requires_grad` in the function work, in every call."""
    for lib, check in ((fad, (gradcheck, gradgradcheck)), (torch, vars(torch.autograd))):
        first, second = check if lib is fad else (check["gradcheck"], check["gradgradcheck"])
        seen = []

        def f(x: Any) -> Any:
            seen.append(x.requires_grad)
            x.register_hook(lambda g: None)
            return x * x

        x = lib.tensor(X, requires_grad=True)
        assert first(f, (x,), check_batched_grad=lib is fad)
        assert second(f, (x,))
        assert all(seen)


def test_the_inputs_of_the_function_do_not_require_grad_in_forward_mode(torch: Any) -> None:
    found = []
    for lib in (fad, torch):
        seen = set()

        def f(x: Any, y: Any, n: int, seen: set[Any] = seen) -> Any:
            seen.add((x.requires_grad, y.requires_grad))
            return x * y + n, x.clone()

        x, y = (lib.tensor(v).double() for v in ([0.3, 0.5], [0.7, -0.5]))
        options = {"check_backward_ad": False, "check_undefined_grad": False}
        assert lib.autograd.gradcheck(
            f,
            (x.requires_grad_(), y, 3),
            check_forward_ad=True,
            check_batched_forward_grad=True,
            **options,
        )
        found.append(seen)
    assert found[0] == found[1] == {(True, False), (False, False)}


def test_a_function_that_closes_over_a_tracked_tensor(torch: Any) -> None:
    for lib in (fad, torch):
        x, w = lib.tensor(X, requires_grad=True), lib.tensor(Y, requires_grad=True)
        for f in (lambda x: x * x * w, lambda x: (x * x * w, 2.0 * x)):
            for options in ({}, {"fast_mode": True}, {"check_forward_ad": True}):
                check = lib.testing.gradcheck if lib is fad else lib.autograd.gradcheck
                assert check(f, (x,), **options)
        if lib is fad:
            assert gradcheck(lambda x: x * w, x, check_batched_grad=True)
            assert gradgradcheck(lambda x: x * x * w, x, check_fwd_over_rev=True)


def test_a_function_without_outputs_that_have_derivatives(torch: Any) -> None:
    for f in (lambda x: (), lambda x: x > 0):
        assert gradcheck(f, X, check_batched_grad=True, check_forward_ad=True)
    x = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: (), x, check_batched_grad=True)


def overlapping(x: Any, y: Any) -> Any:
    u = x * 1.0
    u[1:-1] += u[:-2].clone() * y[1:-1]
    u[2:] *= u[1:-1].clone()
    u[:3] = u[1:4].clone() * u[:3].clone() + y[:3]
    return (u * u).sum()


@pytest.mark.parametrize("seed", range(2))
def test_passes_over_one_graph_give_the_same_bits(seed: int) -> None:
    """Also where the pass is compiled in between, and parts that overlap were written to."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 6)).astype(np.float32)
    a, b = fad.tensor(x, requires_grad=True), fad.tensor(y, requires_grad=True)
    out = overlapping(a, b)

    def run() -> list[bytes]:
        first = fad.autograd.grad(out, [a, b], create_graph=True)
        second = fad.autograd.grad(sum([(g * g).sum() for g in first]), [a, b], retain_graph=True)
        return [g.numpy(force=True).tobytes() for g in (*first, *second)]

    expected = run()
    assert all(run() == expected for _ in range(12))
    assert gradgradcheck(overlapping, (x, y))


def test_a_batched_check_needs_its_mode(torch: Any) -> None:
    for options in (
        {"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True},
        {"check_batched_forward_grad": True},
    ):
        with pytest.raises(ValueError, match="check_batched.*requires"):
            gradcheck(fnp.sin, X, **options)
        with pytest.raises(AssertionError, match="requires"):
            torch.autograd.gradcheck(torch.sin, torch.tensor(X, requires_grad=True), **options)
