"""``gradcheck`` and ``gradgradcheck``: derivatives against finite differences, as in PyTorch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend, jvp, vjp, vmap
from fad.autograd import grad
from fad.errors import FadError
from fad.testing.comparison import bare
from fad.testing.finite_differences import (
    coordinates,
    directional,
    inner,
    jacobian,
    random_like,
    real_coordinates,
)
from fad.testing.gradient_problems import GradcheckError, Problem, problem_of

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


def _recorded(outs: Sequence[Any]) -> list[int]:
    """Which outputs require grad."""
    return [k for k, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check the derivatives of a function against finite differences.

    64-bit types are on while it runs, and inputs are cast to them: float32 would be too coarse.

    Arguments:
        func: a function of Tensors; its outputs of floating or complex dtype are checked.
        inputs: a tuple or list of arguments, or the one argument; pytrees, with anything among
            them. Checked are the Tensors that require grad; where there are none, all floating and
            complex arrays and numbers.
        eps: the step of the finite differences.
        atol, rtol: a numerical derivative ``n`` and an analytical one ``a`` agree where
            ``|n - a| <= atol + rtol |n|``.
        raise_exception: False returns False instead of raising.
        nondet_tol: by how much two backward passes over the same graph may differ.
        check_undefined_grad: whether a cotangent of None means zeros, for each of several outputs.
        check_grad_dtypes: whether gradients have the dtype of their input, and tangents the dtype of
            their output.
        check_batched_grad: whether ``vmap`` over cotangents is a loop over them.
        check_batched_forward_grad: whether ``vmap`` over tangents is a loop over them.
        check_forward_ad: check forward mode.
        check_backward_ad: check reverse mode.
        fast_mode: compare in one random direction instead of entry by entry.
        masked: accepted for PyTorch's sake, where it is about sparse Tensors; arrays here are dense.

    Returns:
        True if all is right, False if not and ``raise_exception`` is False.

    Raises:
        GradcheckError: a derivative is wrong. The message says for which input, output and entry,
            and shows both Jacobians.
        ValueError: there is nothing to check, or a batched check of a mode that is not checked.

    Source: ``torch.autograd.gradcheck``.

    >>> import fad, fad.numpy as fnp
    >>> gradcheck(lambda x, y: fnp.sin(x) @ y, (np.ones(2), np.ones(2)), check_forward_ad=True)
    True
    >>> gradcheck(lambda x: x * fad.stop_gradient(x), np.ones(2), raise_exception=False)
    False
    """
    with jax.enable_x64(True):
        problem = problem_of(func, inputs, "gradcheck")
        if not check_backward_ad and not check_forward_ad:
            raise ValueError(
                "gradcheck: nothing to check: expected at least one of check_forward_ad and "
                "check_backward_ad to be True"
            )
        for batched, name, mode in (
            (check_batched_grad and not check_backward_ad, "check_batched_grad", "backward"),
            (
                check_batched_forward_grad and not check_forward_ad,
                "check_batched_forward_grad",
                "forward",
            ),
        ):
            if batched:
                raise ValueError(
                    f"gradcheck: setting {name}=True requires check_{mode}_ad to be True"
                )
        tolerance = _Tolerance(eps, atol, rtol, nondet_tol, fast_mode)
        try:
            if check_backward_ad and check_undefined_grad:
                _check_undefined(problem)
            if check_backward_ad:
                _check_backward(problem, tolerance, check_grad_dtypes)
            if check_forward_ad:
                _check_forward(problem, tolerance, check_grad_dtypes)
            if check_backward_ad and check_batched_grad:
                _check_batched(problem, tolerance, reverse=True)
            if check_forward_ad and check_batched_forward_grad:
                _check_batched(problem, tolerance, reverse=False)
        except GradcheckError:
            if raise_exception:
                raise
            return False
    return True


@dataclasses.dataclass(frozen=True)
class _Tolerance:
    eps: float
    atol: float
    rtol: float
    nondet: float
    fast: bool

    def agree(self, numerical: Any, analytical: Any) -> np.ndarray:
        tolerance = self.atol + self.rtol * np.abs(numerical)
        return np.asarray(np.abs(numerical - analytical) <= tolerance)


COMPLEX = "\n(a complex entry is two rows or columns: its real and its imaginary part)"
IN_FAST_MODE = (
    "These are <u, J v> for random u and v; without fast_mode there are the whole Jacobians."
)


def _mismatch(
    problem: Problem, mode: str, k: int, i: int, numerical: str, analytical: str, note: str
) -> GradcheckError:
    return GradcheckError(
        f"Jacobian {mode}mismatch for output {k} with respect to input {i}, "
        f"argument {problem.names[problem.checked[i]] or 'itself'},\n"
        f"numerical: {numerical}\nanalytical: {analytical}\n{note}"
    )


def _compare(
    problem: Problem,
    t: _Tolerance,
    mode: str,
    outputs: Sequence[int],
    fill: Callable[[int, int, np.ndarray], None],
    slope: Callable[[int, np.ndarray, int, np.ndarray], float],
) -> None:
    """Compare derivatives of these outputs with finite differences.

    Arguments:
        mode: which derivatives they are, for the message.
        fill: for an input and an output (by its place in ``outputs``), writes the Jacobian.
        slope: <w, J v> for an input, ``v``, an output, and ``w``.
    """
    values, rng = problem.values(), np.random.default_rng(0)

    for i, x in enumerate(values):
        if t.fast:
            v = random_like(x, rng)
            direction = [v if j == i else None for j in range(len(values))]
            pushed = directional(problem.numbers, values, direction, t.eps)
            for place, k in enumerate(outputs):
                w = random_like(pushed[k], rng)
                numerical, analytical = inner([w], [pushed[k]]), slope(i, v, place, w)
                if not t.agree(numerical, analytical):
                    raise _mismatch(
                        problem, mode, k, i, f"{numerical:.8g}", f"{analytical:.8g}", IN_FAST_MODE
                    )
            continue
        matrices = jacobian(problem.numbers, values, i, t.eps)
        for place, k in enumerate(outputs):
            n = matrices[k]
            a = np.zeros_like(n)
            fill(i, place, a)
            wrong = np.argwhere(~t.agree(n, a))
            if len(wrong):
                row, column = (int(v) for v in wrong[0])
                note = (
                    f"The entry at [{row}, {column}] (coordinate {row} of the input, {column} of the "
                    f"output) is {a[row, column]:.6g}, and {n[row, column]:.6g} by finite differences; "
                    f"{len(wrong)} of {n.size} entries differ.{COMPLEX if np.iscomplexobj(x) else ''}"
                )
                shown = np.array2string(n, precision=6), np.array2string(a, precision=6)
                raise _mismatch(problem, mode, k, i, *shown, note)


def _check_backward(problem: Problem, t: _Tolerance, dtypes: bool) -> None:
    variables, values = problem.variables(), problem.values()
    outs = problem.call(variables)
    differentiable = _recorded(outs)
    if not differentiable:
        for i in range(len(values)):
            for k, n in enumerate(jacobian(problem.numbers, values, i, t.eps)):
                if not t.agree(n, np.zeros_like(n)).all():
                    raise GradcheckError(
                        f"output {k} does not require grad, but changes with input {i}: the "
                        "numerical gradient was expected to be zero. Is it computed outside of fad, "
                        "or detached?"
                    )
        return

    def pull(k: int, w: np.ndarray) -> list[np.ndarray]:
        grads = grad(outs[k], variables, jnp.asarray(w), retain_graph=True, allow_unused=True)
        for i, (x, g) in enumerate(zip(variables, grads, strict=True)):
            if dtypes and g is not None and g.dtype != x.dtype:
                raise GradcheckError(
                    f"the gradient of output {k} with respect to input {i} has dtype {g.dtype}, "
                    f"expected that of the input: {x.dtype}"
                )
        pairs = zip(values, grads, strict=True)
        return [np.zeros_like(x) if g is None else bare(g.detach()) for x, g in pairs]

    rng = np.random.default_rng(0)
    bare_outs = [bare(outs[k].detach()) for k in differentiable]
    for k, o in zip(differentiable, bare_outs, strict=True):
        w = random_like(o, rng)
        first, second = pull(k, w), pull(k, w)
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            if not np.all(np.abs(a - b) <= t.nondet):
                raise GradcheckError(
                    f"Backward is not reentrant: running it twice with the same input and "
                    f"cotangent gives different gradients of output {k} with respect to input {i}, "
                    f"by up to {np.max(np.abs(a - b)):.3g}. The tolerance for nondeterminism "
                    f"(nondet_tol) is {t.nondet}."
                )
    pulled = [  # by output, by coordinate of it, by input
        [pull(k, w) for w in ([] if t.fast else coordinates(o))]
        for k, o in zip(differentiable, bare_outs, strict=True)
    ]

    def fill(i: int, place: int, a: np.ndarray) -> None:
        for c, grads in enumerate(pulled[place]):
            a[:, c] = real_coordinates(grads[i])

    def slope(i: int, v: np.ndarray, place: int, w: np.ndarray) -> float:
        return inner([pull(differentiable[place], w)[i]], [v])

    _compare(problem, t, "", differentiable, fill, slope)


def _check_forward(problem: Problem, t: _Tolerance, dtypes: bool) -> None:
    values = problem.values()

    def push(i: int, v: np.ndarray) -> list[np.ndarray]:
        tangents = [jnp.asarray(v) if j == i else None for j in range(len(values))]
        primals = [jnp.asarray(x) for x in values]
        outs, out_t = jvp(lambda *xs: problem.call(xs), tuple(primals), tuple(tangents))
        for k, (o, d) in enumerate(zip(outs, out_t, strict=True)):
            if dtypes and o.dtype != d.dtype:
                raise GradcheckError(
                    f"the tangent of output {k} with respect to input {i} has dtype {d.dtype}, "
                    f"expected that of the output: {o.dtype}"
                )
        return [bare(d) for d in out_t]

    count = len(problem.numbers(values))

    @functools.cache
    def rows(i: int) -> list[list[np.ndarray]]:
        return [push(i, v) for v in coordinates(values[i])]

    def fill(i: int, place: int, a: np.ndarray) -> None:
        for r, pushed in enumerate(rows(i)):
            a[r] = real_coordinates(pushed[place])

    def slope(i: int, v: np.ndarray, place: int, w: np.ndarray) -> float:
        return inner([w], [push(i, v)[place]])

    _compare(problem, t, "computed with forward mode ", range(count), fill, slope)


def _check_undefined(problem: Problem) -> None:
    values = [jnp.asarray(x) for x in problem.values()]
    outs, pull = vjp(lambda *xs: problem.call(xs), *values)
    if len(outs) < 2:
        return
    rng = np.random.default_rng(0)
    for k in range(len(outs)):
        expected = (
            "Expected backward to handle undefined cotangents (None) as zeros: with one for output "
            f"{k} alone"
        )
        w = jnp.asarray(random_like(bare(outs[k]), rng))
        try:
            undefined = pull([w if j == k else None for j in range(len(outs))])
        except (TypeError, AttributeError, FadError) as error:
            raised = f"{type(error).__name__}: {error}"
            raise GradcheckError(f"{expected} it raised {raised}") from error
        zeros = pull([w if j == k else jnp.zeros_like(o) for j, o in enumerate(outs)])
        for i, (a, b) in enumerate(zip(undefined, zeros, strict=True)):
            if not np.allclose(bare(a), bare(b)):
                raise GradcheckError(
                    f"{expected}, the gradient with respect to input {i} is {a}, and {b} with zeros "
                    "for the others"
                )


def _check_batched(problem: Problem, t: _Tolerance, reverse: bool) -> None:
    values = [jnp.asarray(x) for x in problem.values()]
    rng = np.random.default_rng(0)

    def draw(like: Sequence[Any]) -> list[jax.Array]:
        return [jnp.stack([random_like(bare(x), rng) for _ in range(2)]) for x in like]

    run: Callable[..., Any]
    if reverse:
        outs, pull = vjp(lambda *xs: problem.call(xs), *values)
        if not outs:
            return
        directions = draw(outs)
        run = lambda *w: pull(list(w))  # noqa: E731
        what, of = "gradient", "vmap over cotangents"
    else:
        directions = draw(values)
        run = lambda *v: jvp(lambda *xs: problem.call(xs), tuple(values), v)[1]  # noqa: E731
        what, of = "tangent", "vmap over tangents"
    try:
        batched = vmap(run)(*directions)
    except FadError as error:
        raise GradcheckError(f"the batched {what} ({of}) raised: {error}") from error
    loop = [run(*[g[lane] for g in directions]) for lane in range(2)]
    for k, b in enumerate(batched):
        stacked = np.stack([bare(x[k]) for x in loop])
        if not t.agree(stacked, bare(b)).all():
            raise GradcheckError(
                f"For {'input' if reverse else 'output'} {k}, the batched {what} ({of}) differs from "
                f"a loop:\nloop: {stacked}\nvmap: {bare(b)}"
            )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives: `gradcheck` of the gradients, as functions of inputs and cotangents.

    Arguments:
        func, inputs: as for `gradcheck`.
        grad_outputs: a cotangent for each output of floating or complex dtype; default are random
            ones.
        gen_non_contig_grad_outputs: accepted for PyTorch's sake; arrays have no strides here.
        check_fwd_over_rev: differentiate the gradients in forward mode.
        check_rev_over_rev: differentiate the gradients in reverse mode.

    For the other arguments see `gradcheck`: they are about the gradients.

    Returns:
        True if all is right, False if not and ``raise_exception`` is False.

    Raises:
        GradcheckError: a second derivative is wrong. Inputs after the inputs of ``func`` are cotangents.

    Source: ``torch.autograd.gradgradcheck``.

    >>> import fad.numpy as fnp
    >>> gradgradcheck(lambda x: fnp.sin(x) * x, np.ones(2))
    True
    """
    with jax.enable_x64(True):
        problem = problem_of(func, inputs, "gradgradcheck")
        values = problem.values()
        variables = problem.variables()
        outs = problem.call(variables)
        differentiable = _recorded(outs)
        if not differentiable:
            raise ValueError("gradgradcheck: no output requires grad")
        if grad_outputs is None:
            rng = np.random.default_rng(0)
            weights = [random_like(bare(outs[k].detach()), rng) for k in differentiable]
        else:
            weights = [1.0 * bare(w) for w in extend.flatten(grad_outputs)[0]]
            if len(weights) != len(differentiable):
                raise ValueError(
                    f"gradgradcheck: got {len(weights)} grad_outputs for {len(differentiable)} outputs that "
                    "require grad"
                )
        count = len(values)
        names = [problem.names[k] or "itself" for k in problem.checked]
        names += [f"cotangent of output {k}" for k in differentiable]

        def gradients(*operands: Any) -> Any:
            def inner_call(*xs: Any) -> Any:
                outs = problem.call(xs)
                return [outs[k] for k in differentiable]

            _, pull = vjp(inner_call, *operands[:count])
            return pull(list(operands[count:]))

        try:
            return gradcheck(
                gradients,
                (*values, *weights),
                eps=eps,
                atol=atol,
                rtol=rtol,
                raise_exception=raise_exception,
                nondet_tol=nondet_tol,
                check_undefined_grad=check_undefined_grad,
                check_grad_dtypes=check_grad_dtypes,
                check_batched_grad=check_batched_grad,
                check_forward_ad=check_fwd_over_rev,
                check_backward_ad=check_rev_over_rev,
                fast_mode=fast_mode,
                masked=masked,
            )
        except GradcheckError as error:
            listed = ", ".join(f"input {i} is {name}" for i, name in enumerate(names))
            raise GradcheckError(f"second derivatives: {error}\n({listed})") from error
