"""What errors of Functions say: of bodies that close over tracked values, read numbers, or save nothing.

The library asks where it raises them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

import jax

from fad import Tensor
from fad.errors import describe
from fad.extend import bottom, flatten, outlived
from fad.extend.types import PyTree


def closes_over(
    name: str,
    called: str,
    bodies: Sequence[Callable[..., object]],
    reached: object,
    blamed: Callable[[object], bool],
) -> str:
    """The message for a body that closes over a value which a transform tracks.

    Arguments:
        name, called: the operation, and how it is called.
        bodies: the user's code that it runs.
        reached: an output that depends on it, None if unknown.
        blamed: says of a value whether it is such a one.
    """
    for body in bodies:
        for variable, value in _closed_over(body):
            if blamed(value):
                what = f"{variable!r} ({describe(value)}{_where(value)})"
                of = getattr(body, "__name__", type(body).__name__)
                return (
                    f"{name}.{of} closes over {what}, which is not among its arguments, "
                    f"so its derivative would be lost. Pass {variable} as an argument of "
                    f"{called}, or use fad.stop_gradient({variable}) if no derivative is wanted."
                )
    through = "" if reached is None else f"; it reached the output {describe(reached)}"
    return (
        f"{name} closes over a value{_where(reached)} that is not among its arguments, so its "
        f"derivative would be lost{through}. Pass the value as an argument of {called}, or use "
        "fad.stop_gradient on it if no derivative is wanted."
    )


def _closed_over(body: Callable[..., object]) -> Iterator[tuple[str, object]]:
    """The variables of outer scopes that ``body`` names, and the leaves of their values."""
    try:
        variables = inspect.getclosurevars(inspect.unwrap(body))
    except TypeError:  # not written in Python
        return
    for variable, value in (*variables.nonlocals.items(), *variables.globals.items()):
        try:
            leaves = flatten(value)[0]
        except (TypeError, ValueError):  # a dict whose keys do not compare
            leaves = [value]
        for leaf in leaves:
            yield variable, leaf


def _where(x: PyTree) -> str:
    """Which transform tracks ``x``."""
    x = outlived(x)
    if isinstance(x, Tensor) and x.level.kind != "eager":
        return f" of {x.level!r}"
    if isinstance(x, Tensor) and x.requires_grad:
        return " of the eager graph"
    return " of a running JAX transform" if isinstance(bottom(x), jax.core.Tracer) else ""


def needs_numbers(
    rules: PyTree, rule: str, error: Exception, is_batched: bool, is_traced: bool
) -> str:
    """The message for a body that needs numbers where its arguments have none."""
    signature = rules.signature
    if is_batched:
        names = ", ".join(rules.argument_names())
        advice = f"Write a vmap rule, which gets whole batches: vmap(info, in_dims, {names})."
    elif is_traced:
        advice = (
            "Under jit it would run on no numbers: call it outside of jit and of native JAX "
            "transforms, or wrap the host code in jax.pure_callback (fad.from_jax makes that a fad "
            "function)."
        )
    elif rule in ("forward", "setup_context"):
        missing = "a vjp" if signature.jvp else "a jvp" if signature.vjp else "a vjp or jvp"
        advice = (
            f"A derivative cannot be taken through a body that leaves JAX: write {missing} rule "
            "that keeps to fad.numpy, and save inputs and outputs alone."
        )
    else:
        advice = (
            "A derivative cannot be taken through a body that leaves JAX: write it with fad.numpy, "
            f"write the {'jvp' if rule == signature.vjp else 'vjp'} rule too, or mark it with "
            "@once_differentiable."
        )
    return f"{rules.name}.{rule} needs concrete values on the host. {advice} ({error})"


def saved_nothing(rules: PyTree, rule: str) -> str:
    """The message for a rule that reads saved Tensors where none were saved."""
    save = "ctx.save_for_forward" if rule == "jvp" else "ctx.save_for_backward"
    if rules.signature.has_setup or rules.signature.combined:
        where = "setup_context" if rules.signature.has_setup else "forward"
        names = ", ".join(rules.argument_names())
        advice = f"{where} does not call {save}. Write {save}({names}) there"
    else:
        advice = (
            f"{rules.name} has no setup_context. Write\n\n    @staticmethod\n"
            f"    def setup_context(ctx, inputs, output):\n        {save}(*inputs)\n"
        )
    return f"{rules.name}.{rule} reads ctx.saved_tensors, and nothing was saved: {advice}"
