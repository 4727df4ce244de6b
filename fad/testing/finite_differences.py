"""Derivatives from values alone: central differences, and complex steps.

Functions here take a list of NumPy arrays to a list of NumPy arrays. Complex numbers count as pairs
of real ones: the derivative along ``v`` is the derivative of ``t -> f(x + t v)`` for real ``t``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Values = list[np.ndarray]
Fn = Callable[[Values], Values]


def random_like(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A direction without symmetry, whose entries are not small."""
    v = rng.uniform(0.5, 1.5, x.shape) * rng.choice([-1.0, 1.0], x.shape)
    if np.iscomplexobj(x):
        v = v + 1j * rng.uniform(0.5, 1.5, x.shape)
    return np.asarray(v).astype(x.dtype)


def directional(
    f: Fn,
    xs: Sequence[np.ndarray],
    vs: Sequence[np.ndarray | None],
    eps: float = 1e-5,
    complex_step: bool = False,
) -> Values:
    """The derivative of ``f`` at ``xs`` along ``vs`` (None is zero).

    Arguments:
        f: takes and returns lists of arrays of floating or complex dtype.
        xs: where.
        vs: the direction, an array for each of ``xs``.
        eps: the step. Central differences are wrong by O(eps^2), and by rounding over eps.
        complex_step: take the imaginary part of ``f(x + i eps v)`` instead, which does not round;
            for real inputs, and a function that is analytic where it is given complex numbers.

    Source: Squire & Trapp, "Using complex variables to estimate derivatives of real functions", 1998.

    >>> [float(d.round(6)) for d in directional(lambda x: [np.sin(x[0])], [np.array(0.0)], [np.array(2.0)])]
    [2.0]
    """
    if complex_step:
        outs = f(
            [x if v is None else x + 1e-30j * v for x, v in zip(xs, vs, strict=True)],
        )
        return [np.imag(o) / 1e-30 for o in outs]
    above = f([x if v is None else x + eps * v for x, v in zip(xs, vs, strict=True)])
    below = f([x if v is None else x - eps * v for x, v in zip(xs, vs, strict=True)])
    return [
        (np.asarray(a, _wide(a)) - np.asarray(b, _wide(b))) / (2 * eps)
        for a, b in zip(above, below, strict=True)
    ]


def _wide(x: np.ndarray) -> type:
    return np.complex128 if np.iscomplexobj(x) else np.float64


def inner(w: Sequence[np.ndarray | None], x: Sequence[np.ndarray | None]) -> float:
    """``Re <w, x>``, summed over the arrays; None is zero.

    >>> inner([np.array([1j])], [np.array([2j])])
    2.0
    """
    total = 0.0
    for a, b in zip(w, x, strict=True):
        if a is not None and b is not None:
            wide = np.conj(np.asarray(a, _wide(a))) * np.asarray(b, _wide(b))
            total += float(np.sum(wide).real)
    return total


def coordinates(x: np.ndarray) -> list[np.ndarray]:
    """A direction for each real coordinate of ``x``: two for a complex entry.

    >>> [d.tolist() for d in coordinates(np.zeros(1, complex))]
    [[(1+0j)], [1j]]
    """
    directions = []
    for k in range(x.size):
        for unit in (1.0, 1j) if np.iscomplexobj(x) else (1.0,):
            d = np.zeros(x.shape, x.dtype)
            d.flat[k] = unit
            directions.append(d)
    return directions


def real_coordinates(x: np.ndarray) -> np.ndarray:
    """The real coordinates of ``x`` as a vector, in the order of `coordinates`."""
    flat = np.asarray(x).reshape(-1)
    if np.iscomplexobj(flat):
        return np.stack([flat.real, flat.imag], -1).reshape(-1)
    return flat


def jacobian(f: Fn, xs: Sequence[np.ndarray], at: int, eps: float = 1e-6) -> Values:
    """The Jacobian of every output in input number ``at``, by central differences.

    Returns:
        A matrix for each output; a row for each real coordinate of the input, a column for each of
        the output, as PyTorch prints them.

    >>> jacobian(lambda x: [x[0] * np.array([1.0, 2.0])], [np.array(0.0)], 0)[0].round(6).tolist()
    [[1.0, 2.0]]
    """
    x = xs[at]
    none: list[np.ndarray | None] = [None] * len(xs)
    rows = [
        directional(f, xs, [*none[:at], d, *none[at + 1 :]], eps)
        for d in coordinates(np.asarray(x))
    ]
    if not rows:
        return [np.zeros((0, real_coordinates(o).size)) for o in f(list(xs))]
    return [np.stack([real_coordinates(o) for o in outs]) for outs in zip(*rows, strict=True)]
