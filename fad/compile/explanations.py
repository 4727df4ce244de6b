"""What `Compiled.explain` says: why a call traces anew, and what a program does outside of its function."""

from __future__ import annotations

import collections
import functools
import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import jax
import numpy as np

from fad.compile.signatures import OPERANDS, Repeating
from fad.core.avals import aval_of
from fad.core.tensor import Tensor
from fad.core.trees import Static, flatten, path_names
from fad.core.types import PyTree
from fad.errors import describe
from fad.views.make_view import place_of

# What a program was traced for: for each thing that it depends on, a name, and what it is in words.
Seen = dict[str, str]


def seen(call: PyTree, key: Sequence[PyTree]) -> Seen:
    """What a program for a call, its arguments and keyword arguments, depends on; ``key``: of the call."""
    leaves, structure = flatten(call)
    rest, _, _, axes, (grads, inference, hooks, watched), _, config, *lanes = key
    words = [_leaf_in_words(x) if isinstance(x, OPERANDS) else _static_in_words(x) for x in leaves]
    return {
        **dict(zip(_names_of(call), words, strict=True)),
        "the structure of the arguments": str(structure),
        "the number of arguments that repeat an earlier Tensor": f"{_repeats(rest)}",
        "the named axes around the call": ", ".join(map(str, axes)) or "none",
        "the vmaps around the call, for random draws": f"{lanes[0] if lanes else ()}",
        "the grad mode": f"{(grads, inference)}",
        "hooks on saved values": f"{hooks}",
        "anomaly mode, and whether it looks for NaN": f"{watched}",
        "JAX's configuration (jax.config, meshes)": f"{config}",
    }


def _repeats(rest: PyTree) -> int:
    return len(rest.places) - len(set(rest.places)) if isinstance(rest, Repeating) else 0


def _names_of(call: PyTree) -> list[str]:
    args, kwargs = call
    named = [(f"argument {i}", a) for i, a in enumerate(args)]
    named += [(f"argument {name!r}", kwargs[name]) for name in sorted(kwargs)]
    return [f"{name}{path}" for name, a in named for path in path_names(a)]


def _static_in_words(x: object) -> str:
    return f"static {describe(x.value if isinstance(x, Static) else x)}"


def _leaf_in_words(x: PyTree) -> str:
    if isinstance(x, (bool, int, float, complex)):
        return f"a Python {type(x).__name__}"
    aval = x if isinstance(x, jax.ShapeDtypeStruct) else aval_of(x)
    weak = " (weakly typed)" if getattr(aval, "weak_type", False) else ""
    moved = "" if place_of(x) is None else " (a view that is not contiguous)"
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]{weak}{moved}"


# Of functions that are made anew


@functools.lru_cache(maxsize=256)
def made_before(code: Hashable) -> collections.deque[Seen]:
    """What functions of this code were traced for, and what they closed over."""
    return collections.deque(maxlen=8)


def note_made(f: Callable[..., PyTree], code: Hashable, of_call: Seen) -> None:
    """Note what a function was traced for, for others of its code."""
    made_before(code).append({**of_call, **_closure_in_words(f)})


def _closure_in_words(f: Callable[..., PyTree]) -> Seen:
    f = inspect.unwrap(f)
    names = getattr(getattr(f, "__code__", None), "co_freevars", ())
    words = {}
    for name, cell in zip(names, getattr(f, "__closure__", None) or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        words[f"{name}, which it closes over,"] = _in_words(value)
    return words


def _in_words(value: PyTree) -> str:
    """A value from outside, which code of the user does not describe."""
    if type(value) in (bool, int, float, complex, str):
        return repr(value)
    described = (Tensor, jax.Array, np.ndarray, types.FunctionType, type)
    if value is None or issubclass(type(value), described):
        return describe(value)
    return object.__repr__(value)


# Of a call


def differences(
    who: str, f: Callable[..., PyTree], code: Hashable, now: Seen, earlier: Sequence[Seen]
) -> str:
    """How a call of ``f`` differs from the nearest of those for which ``who`` has programs; if it has
    none, from those of other functions of its code.
    """
    of_code = () if earlier else made_before(code)
    if of_code:
        now = {**now, **_closure_in_words(f)}
        lines = min([_changes(now, old) for old in reversed(of_code)], key=len)
        same = ["the arguments and what it closes over are the same"]
        first = f"{who} has compiled nothing yet, but another function of its code:"
        return "\n  ".join([first, *(lines or same)])
    if not earlier:
        return f"{who} has compiled nothing yet"
    lines = min([_changes(now, old) for old in reversed(earlier)], key=len)
    if not lines:
        return f"{who} is compiled for these arguments"
    calls = "1 earlier call" if len(earlier) == 1 else f"{len(earlier)} earlier calls"
    return "\n  ".join([f"{who} traces anew, not as in {calls}:", *lines])


def _changes(now: Seen, old: Seen) -> list[str]:
    lines = []
    for name in [*now, *[n for n in old if n not in now]]:
        new, was = now.get(name), old.get(name)
        if new == was:
            continue
        if was is None:
            lines.append(f"{name} is {new}, and was not there")
        elif new is None:
            lines.append(f"{name} is not there, and was {was}")
        else:
            lines.append(f"{name} is {new}, was {was}" if len(new) < 200 else f"{name} has changed")
    return lines


class Names:
    """What texts call the Tensors of a call: by the places from which it comes to them, or as arguments."""

    def __init__(self, places: Iterable[PyTree], call: PyTree) -> None:
        self._around: dict[int, str] = {}
        for place in places:
            if issubclass(type(place.value), Tensor):
                self._around.setdefault(id(place.value), place.name)
        named = zip(_names_of(call), flatten(call)[0], strict=True)
        self._arguments = [name for name, x in named if isinstance(x, OPERANDS)]

    def of(self, x: PyTree) -> str:
        """The name of an `OuterTensor`, of a Tensor outside, of a leaf, by its number, or of a place."""
        if isinstance(x, str):
            return x
        if isinstance(x, int):
            return self._arguments[x]
        if isinstance(x, Tensor):
            return self._around.get(id(x), "a Tensor")
        if x.source is None:
            return self.of(x.tensor)
        return self.of(x.source) if isinstance(x.source, int) else f"{self.of(x.source)}.grad"


def changes_outside(who: str, changes: Iterable[tuple[PyTree, str]], names: Names) -> str:
    """How what is outside differs from what it was for the trace."""
    lines = dict.fromkeys([f"{names.of(x)} {words}" for x, words in changes])
    return "\n  ".join([f"{who} traces anew, as what it uses outside has changed:", *lines])


def program(who: str, entry: PyTree, names: Names, donated: Sequence[PyTree]) -> str:
    """Which Tensors are state, what is done to them, whose memory is ``donated``; which loops are rolled."""
    lines = [] if entry.step.is_pure else list(_of_state(entry.step, names, donated))
    lines = ["state:", *lines] if lines else []
    lines += [f"{n} × {p} operations, rolled" for n, p in entry.loops]
    return "\n  ".join([f"{who} is compiled for these arguments", *lines])


def _of_state(step: PyTree, names: Names, donated: Sequence[PyTree]) -> Iterator[str]:
    for outer in step.outers:
        facts = [outer.aval.str_short()]
        facts += ["requires grad"] if outer.facts.requires_grad else []
        facts += ["has a .grad"] if outer.facts.has_grad else []
        words = [_effect_in_words(e) for e in step.effects if e.outer is outer]
        words += ["its memory is donated"] if outer in donated else []
        words += ["its numbers are part of the program"] if outer.numbers is not None else []
        if words or not isinstance(outer.source, int):
            yield f"  {names.of(outer)} ({', '.join(facts)}): {', '.join(words) or 'is read'}"


def _effect_in_words(effect: PyTree) -> str:
    if effect.what == "value":
        return "is written to"
    if effect.what == "grad":
        return "loses its .grad" if effect.output < 0 and effect.new is None else "gets a .grad"
    return "requires grad from then on" if effect.new else "does not require grad from then on"
