"""A backward pass, made node by node, and what its numbers are."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from fad import autograd, errors, extend

# What has numbers: a Tensor, an array, a number. None is a gradient of zero.
Value: TypeAlias = Any
# A nest of containers around values of any types: arguments and results of a user's function.
PyTree: TypeAlias = Value
Node: TypeAlias = autograd.Node
NumpyArray: TypeAlias = NDArray[np.generic]


@dataclasses.dataclass(eq=False)
class Visit:
    """A node of a pass: the gradients that came in, and the gradients that went out."""

    node: Node
    incoming: list[Value]
    outgoing: list[Value]


class Pass:
    """A backward pass, made by calling one node after the other; nothing is freed, no hook is called."""

    def __init__(self, roots: Sequence[tuple[Node, int, Value]], ends: Sequence[Value]) -> None:
        self.visits: dict[Node, Visit] = {}
        # What arrives at an input of a node: from which visit, by which of its edges.
        self.arrivals: dict[tuple[Node, int], list[tuple[Visit | None, int, Value]]] = {}
        counts: dict[Node, int] = collections.Counter()
        todo, seen = [node for node, _, _ in roots], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            for target, _ in edges_of(node):
                if target is not None:
                    counts[target] += 1
                    todo.append(target)
        for node, nr, gradient in roots:
            self.arrivals.setdefault((node, nr), []).append((None, 0, gradient))
        ready = [node for node in dict.fromkeys(node for node, _, _ in roots) if not counts[node]]
        while ready:
            node = ready.pop()
            visit = self._visited(node, node in ends)
            for k, (target, nr) in enumerate(edges_of(node)):
                if target is None:
                    continue
                gradient_out = visit.outgoing[k] if k < len(visit.outgoing) else None
                self.arrivals.setdefault((target, nr), []).append((visit, k, gradient_out))
                counts[target] -= 1
                if not counts[target]:
                    ready.append(target)

    def _visited(self, node: Node, end: bool) -> Visit:
        count = max([1, node.num_inputs, *[nr + 1 for n, nr in self.arrivals if n is node]][:3])
        incoming = [self.total(node, nr) for nr in range(count)]
        outgoing: list[Value] = [None] * len(edges_of(node))
        if not is_leaf(node) and any(g is not None for g in incoming):
            with autograd.no_grad():
                returned = node(*incoming)
            outgoing = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        visit = self.visits[node] = Visit(node, incoming, outgoing)
        return visit

    def total(self, node: Node, nr: int) -> Value:
        """The gradient that arrives at an input of a node; None is zero."""
        parts = [g for _, _, g in self.arrivals.get((node, nr), []) if g is not None]
        with autograd.no_grad():
            return functools.reduce(lambda a, b: a + b, parts) if parts else None

    def leading_to(self, target: tuple[Node, int]) -> set[Node]:
        """The nodes whose gradients reach ``target``, an input of a node."""
        nodes: set[Node] = set()
        for node in reversed(self.visits):
            if any(t in nodes or (t, nr) == target for t, nr in edges_of(node)):
                nodes.add(node)
        return nodes

    def deaths(self, target: tuple[Node, int]) -> list[tuple[Visit, int]]:
        """Where gradients that are not zero become zero, on the way to ``target``: node and edge."""
        reach = self.leading_to(target)
        return [
            (visit, k)
            for node, visit in self.visits.items()
            if node in reach and any(map(any_nonzero, visit.incoming))
            for k, (t, nr) in enumerate(edges_of(node))
            if (t in reach or (t, nr) == target) and not any_nonzero(item(visit.outgoing, k))
        ]

    def cancellations(self, target: tuple[Node, int]) -> list[tuple[Node, int]]:
        """Where gradients that are not zero add up to zero, on the way to ``target``."""
        reach = self.leading_to(target)
        return [
            key
            for key, arrived in self.arrivals.items()
            if (key[0] in reach or key == target)
            and sum(any_nonzero(g) for _, _, g in arrived) > 1
            and not any_nonzero(self.total(*key))
        ]

    def birth(self, target: tuple[Node, int]) -> tuple[Visit, int] | None:
        """The node that made the NaN or infinity at ``target`` from finite gradients; None for a sum."""
        last: tuple[Visit, int] | None = None
        while True:
            bad = [
                (visit, k)
                for visit, k, g in self.arrivals.get(target, [])
                if visit is not None and any_not_finite(g)
            ]
            if not bad:
                return last
            last = bad[0]
            visit = last[0]
            inputs = [nr for nr, g in enumerate(visit.incoming) if any_not_finite(g)]
            if not inputs:
                return last
            target = (visit.node, inputs[0])


def edges_of(node: Node) -> Sequence[tuple[Value, int]]:
    return () if is_leaf(node) else node.next_functions


def is_leaf(node: Node) -> bool:
    return isinstance(node, autograd.AccumulateGrad)


def item(items: Sequence[Value], k: int) -> Value:
    return items[k] if k < len(items) else None


def numbers(x: Value) -> NumpyArray | None:
    """A value in NumPy, where it has numbers; else None."""
    if isinstance(x, extend.Tensor):
        try:
            x = x.array
        except errors.FadError:  # it is batched
            return None
    if x is None or isinstance(x, jax.core.Tracer):
        return None
    dtype = getattr(x, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return None
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def is_inexact(x: Value) -> bool:
    dtype = getattr(x, "dtype", None)
    return (
        isinstance(x, (float, complex))
        if dtype is None
        else jax.numpy.issubdtype(dtype, np.inexact)
    )


def any_nonzero(x: Value) -> bool:
    array = numbers(x)
    return array is not None and bool((array != 0).any())  # NaN is not zero


def not_finite(x: Value) -> NumpyArray | None:
    """Where a value is NaN or infinite; None if its dtype is not floating."""
    array = numbers(x) if is_inexact(x) else None
    return None if array is None else ~np.isfinite(array)


def any_nan(x: Value) -> bool:
    array = numbers(x) if is_inexact(x) else None
    return array is not None and bool((array != array).any())


def any_not_finite(x: Value) -> bool:
    bad = not_finite(x)
    return bad is not None and bool(bad.any())
