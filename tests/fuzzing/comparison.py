"""Comparing functions under stacks of transforms, and results bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fad.core import trees
from fad.testing.comparison import bare, difference
from tests.fuzzing.stacks import IN_FAD, IN_JAX, Library, apply_stack

__all__ = ["assert_same_program", "difference_in_bits"]

STACKS: tuple[tuple[str, ...], ...] = (
    (),
    ("vjp",),
    ("jvp",),
    ("vmap",),
    ("vjp", "jvp"),
    ("vmap", "vjp"),
    ("vjp", "vmap"),
)


def difference_in_bits(actual: Any, expected: Any) -> str | None:
    """What first differs between two trees, in words, where every bit counts; None if nothing does.

    Zeros of different signs differ, and a NaN is as good as the same NaN only.

    >>> print(difference_in_bits(np.float32([1.0, 0.0]), np.float32([1.0, -0.0])))
    entry [1] is 0.0 (00000000), expected -0.0 (00000080)
    >>> print(difference_in_bits(np.float32([np.nan]), np.float32([np.nan])))
    None
    """
    got, want = bare(actual), bare(expected)
    structure: Any = jax.tree.structure(got)
    if structure != jax.tree.structure(want):
        return f"structure {structure}, expected {jax.tree.structure(want)}"
    for path, g, w in zip(
        trees.path_names(want), jax.tree.leaves(got), jax.tree.leaves(want), strict=True
    ):
        at = f"{path}: " if path else ""
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return f"{at}{g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
        for where in np.ndindex(g.shape):
            a, b = g[where], w[where]
            if a.tobytes() != b.tobytes():
                entry = f"entry [{', '.join(map(str, where))}] is " if where else ""
                return f"{at}{entry}{a} ({a.tobytes().hex()}), expected {b} ({b.tobytes().hex()})"
    return None


def assert_same_program(
    f: Callable[..., Any],
    expected: Callable[..., Any],
    *args: Any,
    stacks: Sequence[tuple[str, ...]] = STACKS,
    library: Library = IN_JAX,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Fail unless two functions have the same values and the same derivatives, in every order.

    Arguments:
        f: a function of fad.
        expected: a function with the same arguments and results; of JAX, unless ``library`` is
            `IN_FAD`.
        args: arrays, or pytrees of them; those of floating or complex dtype are differentiated.
        stacks: names of transforms (see `tests.fuzzing.stacks.TRANSFORMS`), the innermost first.
        library: of which library ``expected`` is a function.
        rtol, atol: as for `assert_close`.

    Raises:
        AssertionError: they differ under one of the stacks, which the message names.

    >>> import fad.numpy as fnp, jax.numpy as jnp
    >>> assert_same_program(fnp.sin, jnp.sin, jnp.ones(2))
    >>> assert_same_program(fnp.sin, jnp.cos, jnp.ones(2))
    Traceback (most recent call last):
    AssertionError: the functions differ: entry [0] is 0.8415, expected 0.5403
    """
    for names in stacks:
        got = apply_stack(IN_FAD, f, names)(*args)
        want = apply_stack(library, expected, names)(*args)
        found = difference(got, want, rtol, atol)
        if found is not None:
            under = f" under {' of '.join(reversed(names))}" if names else ""
            raise AssertionError(f"the functions differ{under}: {found}")
