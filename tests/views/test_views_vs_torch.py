"""Random programs of views and writes: fad, PyTorch and NumPy agree on values, gradients and errors."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import inplace_programs as programs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fad
import fad.numpy as fnp
from fad.errors import FadError

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

FAD_ERRORS = (FadError, ValueError, TypeError)


def leaves_of(backend: str) -> dict[str, Any]:
    values = programs.leaf_values()
    if backend == "torch":
        env = {n: torch.tensor(v, requires_grad=True) for n, v in values.items()}
        functions = programs.functions(torch.autograd)
        return env | functions | {"no_grad": torch.no_grad, "sin": torch.sin}
    env = {n: fad.tensor(v, requires_grad=True) for n, v in values.items()}
    return env | programs.functions(fad) | {"no_grad": fad.no_grad, "sin": fnp.sin}


def is_torch_alone(line: str, message: str) -> bool:
    """Whether PyTorch refuses what is right here.

    It cannot read what it overwrites; immutable arrays can. And it takes a view for a leaf if its base
    came to require grad by a write through another view, and its grad_fn was not read since.
    """
    if "some elements of the input tensor and the written-to tensor refer to" in message:
        return True
    return message.startswith("a leaf Variable") and line[0] not in programs.LEAVES


def is_hook_of_view(lines: list[str], at: int) -> bool:
    """Whether a hook is put on a view made under no_grad, or on what is computed of one.

    PyTorch says that such a view requires grad, as its base does, though no gradient arrives there.
    """
    hook = re.search(r"(v\d+)\.(register_hook|retain_grad)", lines[at])
    if hook is None:
        return False
    env = leaves_of("torch")
    programs.run(lines[:at], env, RuntimeError)
    unrecorded = any([re.match(r"with no_grad\(\): v\d+ = ", line) for line in lines[:at]])
    return unrecorded and env[hook[1]].requires_grad


def where(raised: tuple[int, str] | None) -> int | None:
    return None if raised is None else raised[0]


def aliases(env: dict[str, Any]) -> list[str]:
    return [n for n in env if n.startswith("v")]


def loss_line(names: list[str]) -> str:
    terms = [f"({n} * {n}).sum().real * {0.3 + 0.1 * k}" for k, n in enumerate(names)]
    return f"loss = {' + '.join(terms)}"


def check(lines: list[str]) -> None:
    ours, theirs = leaves_of("fad"), leaves_of("torch")
    raised = programs.run(lines, theirs, RuntimeError)
    if raised is not None and is_torch_alone(lines[raised[0]], raised[1]):
        return check(lines[: raised[0]])
    got = programs.run(lines, ours, FAD_ERRORS)
    if got is not None and got[0] < (raised or [len(lines)])[0] and is_hook_of_view(lines, got[0]):
        return check([*lines[: got[0]], *lines[got[0] + 1 :]])
    assert where(got) == where(raised), f"fad: {got}, torch: {raised}{text(lines)}"
    if raised is not None and lines[raised[0]].split(": ")[-1].startswith(("double_", "shift_")):
        return check(lines[: raised[0]])  # PyTorch has changed the values by then; fad has not
    if raised is None:
        numbers: dict[str, Any] = programs.numpy_names()
        numbers |= {n: programs.as_numpy(v) for n, v in programs.leaf_values().items()}
        programs.run([line.replace("with no_grad(): ", "") for line in lines], numbers, ValueError)
        for name in aliases(theirs):
            np.testing.assert_allclose(
                number(ours[name]), numbers[name], 1e-4, 1e-5, err_msg=text(lines)
            )
            if not np.allclose(number(theirs[name]), numbers[name], 1e-4, 1e-5):
                return  # PyTorch copied between parts of the same memory
    for name in aliases(theirs):
        np.testing.assert_allclose(
            number(ours[name]),
            number(theirs[name]),
            1e-4,
            1e-5,
            err_msg=f"{name} in\n{text(lines)}",
        )
    # Of what cannot be used any more both say so; the rest makes a loss.
    usable = []
    for name in aliases(theirs):
        bad = programs.run([f"probe = {name} * 1.0"], theirs, RuntimeError)
        got = programs.run([f"probe = {name} * 1.0"], ours, FAD_ERRORS)
        assert where(got) == where(bad), f"{name}: {got} {bad}{text(lines)}"
        if bad is None:
            usable.append(name)
    last = [loss_line(usable)]
    got = programs.run(last, ours, FAD_ERRORS)
    assert where(got) == where(programs.run(last, theirs, RuntimeError)), f"{got}{text(lines)}"
    if not theirs["loss"].requires_grad:
        assert not ours["loss"].requires_grad
        return
    first = differentiate(torch.autograd.grad, theirs, RuntimeError)
    second = differentiate(fad.autograd.grad, ours, FAD_ERRORS)
    assert (first is None) == (second is None), f"{first} {second}\n{text(lines)}"
    if first is None or second is None:
        return
    for expected, got in itertools.zip_longest(first, second):  # no gradient is a gradient of zero
        np.testing.assert_allclose(number(got), number(expected), 1e-3, 1e-4, err_msg=text(lines))
    # `.grad` of leaves and of what retains it.
    backward = ["loss.backward()"]
    got = programs.run(backward, ours, FAD_ERRORS)
    raised = programs.run(backward, theirs, RuntimeError)
    if got is None and raised is not None and "view was created in no_grad" in raised[1]:
        return  # in PyTorch such a view is a leaf of the loss, as it says that it requires grad
    assert where(got) == where(raised), f"fad: {got}, torch: {raised}{text(lines)}"
    for name in [*programs.LEAVES, *usable]:
        assert ours[name].retains_grad == theirs[name].retains_grad, f"{name}{text(lines)}"
        if theirs[name].is_leaf or theirs[name].retains_grad:
            np.testing.assert_allclose(
                number(ours[name].grad), number(theirs[name].grad), 1e-3, 1e-4, err_msg=text(lines)
            )


def differentiate(grad: Any, env: dict[str, Any], error: Any) -> list[Any] | None:
    """Gradients of the loss, and the gradient of a function of them; None if that is an error."""
    inputs = [env[n] for n in programs.LEAVES]
    try:
        first = grad(env["loss"], inputs, create_graph=True, allow_unused=True)
    except error:
        return None
    total = sum([(g * g).sum().real for g in first if g is not None and g.requires_grad], start=0.0)
    if not hasattr(total, "requires_grad") or not total.requires_grad:
        return list(first)
    return [*first, *grad(total, inputs, retain_graph=True, allow_unused=True)]


def number(x: Any) -> Any:
    if x is None:
        return 0.0
    x = x.detach()
    return (x.resolve_conj().resolve_neg() if isinstance(x, torch.Tensor) else x).numpy()


def text(lines: list[str]) -> str:
    return "\n" + "\n".join(lines)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(2, 9))
def test_programs_agree_with_torch(rng: random.Random, length: int) -> None:
    check(programs.Writer(rng).program(length))


@pytest.mark.full
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=2000)
@given(st.randoms(use_true_random=False), st.integers(2, 14))
def test_many_programs_agree_with_torch(rng: random.Random, length: int) -> None:
    check(programs.Writer(rng).program(length))
