"""What a compiled program depends on: as a key, and in words.

NOTE [what compiled code depends on]

A compiled program is found again by everything that its trace could see: the arguments' structure,
shapes, dtypes and static values, and where the elements of views are, see NOTE [addresses]; the named axes
of running vmaps; the grad mode and the hooks on saved values; JAX's configuration; and if the function draws
random numbers, by the randomness of running vmaps, and which arguments differ between their lanes. It refers
to no Tensor of a level and to nothing tracked (a closure over such is an error), and a program that closes
over a tracer of an outer JAX transform is not kept at all. So no call can use a level, a tape or a tracer of
an earlier one.
"""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Hashable, Sequence

import jax

from fad.bridge.signatures import is_dynamic
from fad.core import jaxapi, trees
from fad.core.avals import aval_key, aval_of
from fad.core.caches import Cache
from fad.core.level import state
from fad.core.partition import Static
from fad.core.types import Operand, PyTree
from fad.errors import describe
from fad.levels.batch import batch_levels
from fad.levels.body_numbers import code_of
from fad.levels.named_axes import axes_of, named_levels
from fad.levels.randomness import differs
from fad.tape.anomaly import mode as anomaly
from fad.tape.grad_mode import is_grad_enabled, is_inference_mode_enabled
from fad.transforms.boundary import argument_names
from fad.views.addresses import place_of


def key_of(leaves: list[PyTree], rest: object) -> tuple[Hashable, ...]:
    """The key of a call: its array leaves, the ``rest`` of its arguments, and what else a trace can see."""
    outside = state.outside_jax_trace >= 0
    places = tuple(map(place_of, leaves))
    return (
        rest,
        aval_key(leaves),
        places,
        axes_of(named_levels()),
        _modes(),
        outside,
        jaxapi.trace_context(),
    )


def lanes(leaves: Sequence[Operand]) -> tuple[Hashable, ...]:
    """What decides how a function draws random numbers: for each running vmap its randomness, and if that
    matters, which arguments differ between lanes.
    """
    found: list[PyTree] = []
    for level in batch_levels():
        randomness = level.randomness if level.id > state.outside_jax_trace else "traced apart"
        strict = level.draws.strict and level.id > state.outside_jax_trace
        found.append((randomness, tuple([differs(x, level) for x in leaves]) if strict else ()))
    return tuple(found)


def _modes() -> tuple[Hashable, ...]:
    watched = (anomaly.on, anomaly.check_nan)
    return (is_grad_enabled(), is_inference_mode_enabled(), bool(state.saved_hooks), watched)


def in_words(args: PyTree, kwargs: PyTree, draws: bool) -> dict[str, str]:
    """What a program for these arguments depends on; ``draws``: it draws random numbers."""
    leaves, structure = trees.flatten((args, kwargs))
    grads, inference, hooks, watched = _modes()
    return {
        **dict(zip(argument_names(args, kwargs), map(_leaf_in_words, leaves), strict=True)),
        "the structure of the arguments": str(structure),
        "the named axes around the call": ", ".join(map(str, axes_of(named_levels()))) or "none",
        "the vmaps around the call, for random draws": f"{lanes(leaves) if draws else ()}",
        "the grad mode": f"{(grads, inference)}",
        "hooks on saved values": f"{hooks}",
        "anomaly mode, and whether it looks for NaN": f"{watched}",
        "JAX's configuration (jax.config, meshes)": f"{jaxapi.trace_context()}",
    }


_made = Cache()  # by code, what functions were traced for, in words


def note_made(f: Callable[..., PyTree], seen: dict[str, str]) -> None:
    """Note what a function was traced for, for others of its code."""
    fresh: collections.deque[dict[str, str]] = collections.deque(maxlen=8)
    of_code = _made.get(code_of(f)) or _made.put(code_of(f), fresh)
    of_code.append({**seen, **_closure_in_words(f)})


def made_before(f: Callable[..., PyTree]) -> list[dict[str, str]]:
    """What functions of the code of ``f`` were traced for, and what they close over."""
    return list(_made.get(code_of(f)) or ())


def _closure_in_words(f: Callable[..., PyTree]) -> dict[str, str]:
    f = inspect.unwrap(f)
    names = getattr(getattr(f, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(f, "__closure__", None) or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        plain = isinstance(value, (bool, int, float, complex, str))
        found[f"{name}, which it closes over,"] = repr(value) if plain else describe(value)
    return found


def differences(
    who: str, f: Callable[..., PyTree], now: dict[str, str], earlier: Sequence[dict[str, str]]
) -> str:
    """How a call of ``f`` differs from the nearest of those for which ``who`` has programs; if it has
    none, from those of other functions that the same line has made.
    """
    of_code = () if earlier else made_before(f)
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


def _changes(now: dict[str, str], old: dict[str, str]) -> list[str]:
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


def _leaf_in_words(x: PyTree) -> str:
    if isinstance(x, Static):
        return f"static {describe(x.value)}"
    if not is_dynamic(x):
        return f"static {describe(x)}"
    if isinstance(x, (bool, int, float, complex)):
        return f"a Python {type(x).__name__}"
    aval = x if isinstance(x, jax.ShapeDtypeStruct) else aval_of(x)
    weak = " (weakly typed)" if getattr(aval, "weak_type", False) else ""
    moved = " (a view that is not contiguous)" if place_of(x) is not None else ""
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]{weak}{moved}"
