"""What compiled code closes over, and what its trace has left outside."""

from __future__ import annotations

import functools
import itertools
import linecache
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence

import jax

from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Operand, PyTree
from fad.errors import GradientError, LevelError, describe
from fad.errors.tracebacks import warn_at_users_line
from fad.tape.recorder import ROOT
from fad.tape.vmap import batch_levels, lanes_among, lanes_inside
from fad.views.make_view import is_contiguous

# What compiled code closes over, between its calls.


class Lanes:
    """Stands for the lanes of a vmap around a call: that of this number, whichever it is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def find(self) -> Tensor:
        """The numbers of the lanes."""
        return lanes_inside(batch_levels()[self.number])


class Live:
    """An untracked Tensor that compiled code closes over: each call reads what it is by then."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def find(self) -> Tensor:
        """The Tensor; compiled code around this one closes over it too.

        Raises:
            GradientError: it is tracked by now.
        """
        x = self.tensor
        if x.level is not ROOT or x.requires_grad:
            raise _tracked_capture(x)
        return x


def is_traced(x: object) -> bool:
    """Whether ``x`` is part of a trace around this one, which compiled code must not outlive."""
    if isinstance(x, Tensor):
        return x.level.traces or isinstance(x.value, jax.core.Tracer)
    return isinstance(x, jax.core.Tracer)


def values_now(fixed: Sequence[Operand]) -> list[Operand]:
    """The values at a call, from what `captured` made."""
    return [x.find() if isinstance(x, (Lanes, Live)) else x for x in fixed]


def captured(x: object) -> PyTree:
    """What compiled code may keep of a value that it closes over."""
    if not isinstance(x, Tensor):
        return x
    number = lanes_among(batch_levels(), x)
    if number is not None:
        return Lanes(number)
    if x.level is ROOT and not x.requires_grad:
        return Live(x)
    if x.level.traces:
        return x
    raise _tracked_capture(x)


def _tracked_capture(x: Tensor) -> GradientError:
    where = "the eager graph" if x.level is ROOT else repr(x.level)
    return GradientError(
        f"jit: the compiled function closes over a Tensor ({describe(x)}) that is tracked by "
        f"{where}. Compiled code outlives this call, so it cannot refer to it: pass the Tensor "
        "as an argument, or use stop_gradient on it."
    )


def struct_like(x: object) -> PyTree:
    """The shape and dtype of a Tensor; other things as they are."""
    if isinstance(x, Tensor):
        aval = x.aval
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    return x


def untracked(x: object) -> PyTree:
    """``x`` as ``jax.jit`` may flatten it."""
    if not isinstance(x, Tensor):
        return x
    if x.level is ROOT:
        return new_tensor(x.value, ROOT)
    return new_tensor(struct_like(x), ROOT)


def may_take(t: Tensor, unrecorded: bool) -> bool:
    """Whether ``t``, brought up to date, goes into a call, which may be ``unrecorded``, as its array."""
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.enter(t)
        if not is_contiguous(t):
            return False
    return t._level is ROOT and not (t._requires_grad and not unrecorded)


def is_bare(x: object, unrecorded: bool = False) -> bool:
    """Whether nothing tracks ``x``, so that it may be donated; or if ``unrecorded``, what is
    computed of it.
    """
    if isinstance(x, Tensor):
        if x.level is not ROOT or (x.requires_grad and not unrecorded):
            return False
        x = x.value
    return not isinstance(x, jax.core.Tracer)


# What the trace of a function has left in lists, dicts, attributes and variables outside of it.
#
# Python code of a compiled function runs when it is traced, and not at each call. What it changes is looked
# at after the trace, as far as the function leads there: from what it closes over, the globals that its code
# names, the object that it is a method of, and objects among its arguments, down to the items and attributes
# of these.

_MOST, _DEEP = 2_000, 5
_NUMBERS = (bool, int, float, complex)
_LIBRARIES = {"fad", "jax", "jaxlib", "numpy", "optax", "torch", "pytest", "_pytest"}
_Numbers = dict[str, PyTree]


def numbers_around(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> _Numbers:
    """The numbers that ``f`` leads to, by names for the places where they are."""
    return {place: x for place, x in _places(f, statics) if type(x) in _NUMBERS}


def names_around(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> dict[int, str]:
    """Names for the Tensors that ``f`` leads to, by their ids."""
    found: dict[int, str] = {}
    for place, x in _places(f, statics):
        if isinstance(x, Tensor):
            found.setdefault(id(x), place)
    return found


def places_around(
    f: Callable[..., PyTree], statics: Sequence[PyTree]
) -> dict[int, list[Callable[[], object]]]:
    """For each Tensor that ``f`` leads to, by its id: functions that look at the places where it is."""
    found: dict[int, list[Callable[[], object]]] = {}
    for _, x in _places(f, statics):
        if isinstance(x, types.FunctionType):
            for cell in x.__closure__ or ():
                _note_place(found, functools.partial(getattr, cell, "cell_contents", None))
            for name in _names(x.__code__):
                if isinstance(x.__globals__.get(name), Tensor):
                    _note_place(found, functools.partial(x.__globals__.get, name))
        elif isinstance(x, dict):
            for key in list(x):
                _note_place(found, functools.partial(x.get, key))
        elif isinstance(x, list):
            for k, item in enumerate(x[:_MOST]):
                if isinstance(item, Tensor):
                    _note_place(found, functools.partial(_item, x, k))
        elif not isinstance(x, (Tensor, types.MethodType, type)):
            own = getattr(x, "__dict__", {})
            for key in list(own) if type(own) is dict else ():
                _note_place(found, functools.partial(own.get, key))
    return found


def _item(x: list[object], k: int) -> object:
    return x[k] if k < len(x) else None


def _note_place(found: dict[int, list[Callable[[], object]]], look: Callable[[], object]) -> None:
    try:
        x = look()
    except ValueError:  # a variable without a value
        return
    if isinstance(x, Tensor):
        found.setdefault(id(x), []).append(look)


def check_left(
    f: Callable[..., PyTree], statics: Sequence[PyTree], level: PyTree, before: _Numbers
) -> None:
    """Refuse values of a trace of ``f`` at ``level`` that have stayed outside, and warn of changed numbers.

    Raises:
        LevelError: a Tensor of the trace is in a list, a dict, an attribute or a variable.
    """
    changed = []
    for place, x in _places(f, statics):
        if isinstance(x, Tensor):
            if x._level is level and isinstance(x._value, jax.core.Tracer):
                raise LevelError(
                    f"jit: after the trace, {place} is a Tensor of it ({describe(x)}), which has a "
                    f"value at no "
                    f"call{_line(f, place)}: Python code of a compiled function runs once, when it "
                    f"is traced. Return "
                    "the Tensor from the function, and keep it where it is called; or write into a "
                    "Tensor that is "
                    "made outside (t.copy_(x), buffer[i] = x)."
                )
        elif type(x) in _NUMBERS and place in before:
            old = before[place]
            if type(old) is not type(x) or (old != x and not (old != old and x != x)):
                changed.append((place, old, x))
    for place, old, x in changed:
        warn_at_users_line(
            f"jit: the function changes {place} from {old!r} to {x!r}{_line(f, place)}, and that "
            f"happens when it "
            "is traced, not at each call: the compiled program has the number of the trace. Keep it "
            "as a Tensor, "
            "made outside, and write to that (t = fad.tensor(0); t.add_(1)).",
            UserWarning,
        )


def _places(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> Iterator[tuple[str, PyTree]]:
    """The values that ``f`` leads to, each with a name for its place, outermost first."""
    seen: set[int] = set()
    todo: list[tuple[str, PyTree, int]] = [
        (f"<argument {type(x).__name__}>", x, 0) for x in statics
    ]
    todo.append(("", f, 0))
    count = 0
    while todo and count < _MOST:
        following: list[tuple[str, PyTree, int]] = []
        for place, x, depth in todo:
            count += 1
            if place or isinstance(x, types.FunctionType):
                yield place, x
            if type(x) in _NUMBERS or x is None or isinstance(x, (str, bytes, Tensor)):
                continue
            if depth < _DEEP and id(x) not in seen and count < _MOST:
                seen.add(id(x))
                following += [(name, y, depth + 1) for name, y in _parts(place, x)]
        todo = following


def _parts(place: str, x: PyTree) -> list[tuple[str, PyTree]]:
    """What is in ``x``, with names."""
    kind = type(x)
    if isinstance(x, types.MethodType):
        return [("self", x.__self__), ("", x.__func__)]
    if isinstance(x, types.FunctionType):
        return _of_function(x)
    if hasattr(kind, "__wrapped__") or (place == "" and hasattr(x, "__wrapped__")):
        return [("", x.__wrapped__)]
    if kind is dict or isinstance(x, dict):
        return [(f"{place}[{k!r}]", v) for k, v in itertools.islice(list(x.items()), _MOST)]
    if isinstance(x, (list, tuple)):
        return [(f"{place}[{k}]", v) for k, v in enumerate(x[:_MOST])]
    module = str(kind.__module__).partition(".")[0]
    if isinstance(x, type) or module in _LIBRARIES or module in sys.stdlib_module_names:
        return []
    return [(f"{place}.{name}", v) for name, v in list(getattr(x, "__dict__", {}).items())]


def _of_function(f: types.FunctionType) -> list[tuple[str, PyTree]]:
    """What a function closes over, and the globals that its code names."""
    found = []
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # it has none yet
            continue
    if str(f.__module__).partition(".")[0] in _LIBRARIES:
        return found
    for name in _names(f.__code__):
        value = f.__globals__.get(name)
        if value is not None and not isinstance(value, (types.ModuleType, type)):
            found.append((name, value))
    return found


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _line(f: Callable[..., PyTree], place: str) -> str:
    """Where the code of ``f`` may have put something there, for messages."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    code = getattr(getattr(f, "__func__", f), "__code__", None)
    if code is None:
        return ""
    words = re.findall(r"\w+", place)
    lines = sorted({line for _, _, line in code.co_lines() if line})
    for own in _inner(code):
        lines += sorted({line for _, _, line in own.co_lines() if line})
    written = r"\b{}\b.*([^=!<>]=[^=]|\.(append|add|insert|extend|update|setdefault)\()"
    for word in [w for w in reversed(words) if not w.isdigit()]:
        for line in lines:
            text = linecache.getline(code.co_filename, line)
            if re.search(written.format(re.escape(word)), text):
                return f" ({code.co_filename}:{line}: {text.strip()})"
    return f" (a function of {code.co_filename}:{code.co_firstlineno})"


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]
