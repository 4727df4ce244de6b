"""View ops of your own: `view_function`."""

from __future__ import annotations

from collections.abc import Callable

from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Operand, PyTree, Value
from fad.views.aliases import snapshot
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import attach


def view_function(
    forward: Callable[..., PyTree],
    write_back: Callable[..., Value] | None = None,
    *,
    name: str | None = None,
) -> Callable[..., PyTree]:
    """A function whose results are views of its argument: a view op of your own.

    Arguments:
        forward: ``forward(x, *numbers)`` in plain JAX: the view of an array.
        write_back: ``write_back(x, view, *numbers)`` in plain JAX: ``x`` with a changed view in it.
            Without it, ``forward`` must select elements of ``x`` (of any dtype), none of them twice;
            what they are is found by calling it on their numbers.
        name: its name in graphs; default is that of ``forward``.

    Returns:
        A function of a Tensor, and of numbers that do not need a new compilation each. Its results
        are views: they show writes to the Tensor, and writes to them change it, at every level. Given
        an array it returns an array.

    Raises:
        ValueError: at the first write, if ``forward`` does not select and there is no write_back.

    >>> import fad
    >>> corners = fad.autograd.view_function(lambda x: x[:: x.shape[0] - 1, :: x.shape[1] - 1])
    >>> x = fad.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    >>> corners(x).zero_().shape, x.tolist()
    ((2, 2), [[0.0, 2.0, 0.0], [4.0, 5.0, 6.0], [0.0, 8.0, 0.0]])
    """
    label = str(name or getattr(forward, "__name__", "view"))
    primitive = Primitive("view" if label == "<lambda>" else label, forward)
    if write_back is None:
        op = ViewOp(primitive, Write.SELECTION)
    else:
        op = ViewOp(primitive, Write.FUNCTION, write_back, selects=False, whole=False)

    def function(x: PyTree, *numbers: Operand) -> PyTree:
        if numbers and write_back is None:
            raise TypeError(
                f"{label}: a view function that takes numbers needs a write_back(x, view, *numbers)"
            )
        fixed = [snapshot(n) if isinstance(n, Tensor) else n for n in numbers]
        return attach(bind(primitive, (x, *numbers)), x, Step(op, tuple(fixed)))

    function.__name__ = function.__qualname__ = label
    function.__doc__ = forward.__doc__
    return function
