"""``torch.autograd.forward_ad``'s names: dual Tensors, in blocks or between two calls."""

from __future__ import annotations

import threading
from typing import Any

from fad.errors import LevelError
from fad.transforms.forward import UnpackedDual as UnpackedDualTensor
from fad.transforms.forward import dual_level as dual_level
from fad.transforms.forward import make_dual as make_dual
from fad.transforms.forward import unpack_dual as unpack_dual

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class _Entered(threading.local):
    """The blocks that this thread has entered by `enter_dual_level`, with their levels."""

    def __init__(self) -> None:
        self.blocks: list[tuple[dual_level, Any]] = []


_entered = _Entered()


def enter_dual_level() -> Any:
    """Begin a dual level without a ``with`` block; `exit_dual_level` ends it.

    Returns:
        The level, for `make_dual`, `unpack_dual` and `exit_dual_level`.

    Source: ``torch.autograd.forward_ad.enter_dual_level``, which refuses to nest.

    >>> import fad
    >>> from fad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(fad.tensor(3.0), fad.tensor(1.0))
    >>> float(forward_ad.unpack_dual(x * x).tangent)
    6.0
    >>> forward_ad.exit_dual_level(level=level)
    """
    block = dual_level()
    level = block.__enter__()
    _entered.blocks.append((block, level))
    return level


def exit_dual_level(*, level: Any = None) -> None:
    """End the dual level that `enter_dual_level` began last in this thread.

    Arguments:
        level: that level; default the last.

    Raises:
        LevelError: there is none, or ``level`` is not the last one.

    Source: ``torch.autograd.forward_ad.exit_dual_level``.
    """
    if not _entered.blocks:
        raise LevelError(
            "exit_dual_level: no dual level was begun in this thread: call enter_dual_level first"
        )
    block, last = _entered.blocks[-1]
    if level is not None and level is not last:
        raise LevelError(
            "Trying to exit a forward AD level that was not the last one that was created: got "
            f"{level!r}, the last one is {last!r}"
        )
    _entered.blocks.pop()
    block.__exit__(None, None, None)
