"""In anomaly mode: where a NaN that reaches the result of a backward pass was born.

NOTE [a NaN that reaches a result]

    x = fad.tensor([0.0, 4.0], requires_grad=True)
    with fad.autograd.detect_anomaly():
        fad.safe_where(x > 0, fad.numpy.sqrt, fad.numpy.zeros_like, x).sum().backward()
    x.grad.tolist()  # -> [0.0, 0.25]

The backward pass of a branch that is not taken may well compute a NaN, which the choice then drops. So the
node that makes a NaN is remembered, along with the nodes that it flows into, and it is an error where it
arrives: at a leaf, or at an input that a gradient is asked for. PyTorch raises at the node.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from fad.core.level import state
from fad.core.types import Array, MaybeValue, Operand
from fad.errors import GradientError
from fad.tape.anomaly import (
    Place,
    call_when_executed,
    explain,
    flagged,
    flags_of,
    has_nan,
    nans,
    parts_of,
)
from fad.tape.graph import Node
from fad.tape.running import running


class NanOrigins:
    """The NaN of one backward pass: for each node that one flows into, what made it.

    ``traced``: of a program that is traced, the flags of what each node gave so far.
    """

    __slots__ = ("origins", "traced")

    def __init__(self) -> None:
        self.origins: dict[Node, str] = {}
        self.traced: list[tuple[Node, list[Place], list[Operand]]] = []

    def follow(
        self,
        node: Node,
        cotangents: Sequence[MaybeValue],
        grads: Sequence[MaybeValue],
        edges: Sequence[tuple[Node, int] | None],
    ) -> None:
        """Remember a NaN among the gradients that a node gave for its edges."""
        if state.host is not None and running.watched is not True:
            self.traced.append((node, *flags_of(grads)))
        bad = {i: g for i, g in enumerate(grads) if g is not None and has_nan(g)}
        if not bad:
            return
        origin = self.origins.get(node)
        if origin is None:
            k, grad = next(iter(bad.items()))
            _, lanes = next(nans(grad))
            origin = _said(node, k, lanes, _dropped(cotangents, grad))
        for i in bad:
            edge = edges[i] if i < len(edges) else None
            if edge is not None:
                self.origins.setdefault(edge[0], origin)

    def arrive(self, node: Node, value: MaybeValue) -> None:
        """Raise if a result has a NaN.

        Raises:
            GradientError: it has; the error says which node made it, and where that was recorded.
        """
        if value is None:
            return
        if node in self.origins and has_nan(value):
            raise GradientError(self.origins[node])
        if self.traced and running.watched is not True:
            self._check_when_executed(value)

    def _check_when_executed(self, value: MaybeValue) -> None:
        places, flags = flags_of([value])
        if not flags:
            return
        count = len(flags)
        nodes = [(explain(node), node.name(), own) for node, own, _ in self.traced]

        def check(*flags: Array) -> tuple[()]:
            if not flagged(places, flags[:count]):
                return ()
            at = count
            for told, name, own in nodes:
                for _, k, lanes in flagged(own, flags[at : at + len(own)]):
                    raise GradientError(_returned(name, k, lanes) + told)
                at += len(own)
            return ()

        call_when_executed(check, [*flags, *[flag for _, _, own in self.traced for flag in own]])


def _returned(name: str, k: int, lanes: str) -> str:
    return f"Function '{name}' returned nan values in its {k}th output{lanes}. "


def _said(node: Node, k: int, lanes: str, element: str) -> str:
    dropped = ""
    if element:
        dropped = (
            f"At element {element} the cotangent is 0: the value is not used, as where `where` takes the "
            "other branch, but its derivative is infinite or nan, and 0 times that is nan. Write "
            "fad.safe_where(condition, f, g, x), which keeps it out. "
        )
    return _returned(node.name(), k, lanes) + dropped + explain(node)


def _dropped(cotangents: Sequence[MaybeValue], grad: Operand) -> str:
    """The first element of a gradient that is NaN, if each has the cotangent 0; else an empty text."""
    of_grad = [part for _, part, _ in parts_of(grad)][:1]
    of_cotangents = [[part for _, part, _ in parts_of(c)][:1] for c in cotangents if c is not None]
    if len(of_cotangents) != 1:
        return ""
    arrays = [*of_cotangents[0], *of_grad]
    if not all(isinstance(a, (jax.Array, np.ndarray)) for a in arrays):
        return ""
    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        return ""
    cotangent, found = (np.asarray(a) for a in arrays)
    bad = np.isnan(found.astype(np.complex64))
    if cotangent.shape != found.shape or (cotangent[bad] != 0).any():
        return ""
    return str([int(i) for i in np.argwhere(bad)[0]])
