"""The fast path for calls of Functions on the eager tape.

NOTE [fast calls]

A call of a Function is an operation like any other: it is bound, goes down through the levels, and each
level transforms it (see `fad.functions.calls`). Most calls of eager code concern the tape and nothing else,
save inputs and outputs, and return one Tensor. Such a call is done here from top to bottom in one function:
handles, forward, setup_context, node. As soon as something turns out to be otherwise, what has been done so
far is handed to the general code, which goes on from there: bodies run once in either case.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fad.core.dtypes import is_inexact
from fad.core.jaxapi import array_type
from fad.core.level import bodies, state
from fad.core.observation import observable
from fad.core.tensor import Tensor, new_tensor
from fad.functions.calls import FunctionOp, check_unchanged
from fad.functions.closures import checked_arrays
from fad.functions.context import Context, Notes
from fad.functions.definitions import Signature
from fad.functions.rules import Saved
from fad.functions.templates import SINGLE, flat_template
from fad.functions.user_rules import HOST_ERRORS, UserRules
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT

__all__ = ["call"]


def call(cls: Any, args: Sequence[Any], signature: Signature) -> Any:
    """``cls.apply(*args)``, where ``signature`` is what the class says about its calls.

    Returns:
        The Tensor; or an operation that has run and its outputs, where there is more to be done with them; or
        None if this is not such a call, and nothing has been done.
    """
    modes = state.__dict__.get  # a name that is not there has its default
    if modes("levels") or modes("trace") is not None or modes("watermark", -1) >= 0:
        return None
    if modes("saved_hooks") or bodies.traced or anomaly.watch:
        return None
    mask: list[bool] = []
    versions: list[int] = []
    values: list[Any] = []
    avals: list[Any] = []
    handles: list[Any] = []
    for a in args:
        if type(a) is Tensor:
            meta = a.meta
            if a._level is not ROOT or (meta is not None and meta.link is not None):
                return None
            mask.append(a._requires_grad)
            versions.append(0 if meta is None else meta.storage.version)
            a = a._value
        else:
            mask.append(False)
            versions.append(0)
        if type(a) is not array_type:
            return None
        values.append(a)
        avals.append(a.aval)
        handles.append(new_tensor(a, ROOT))
    if True not in mask:
        return None

    rules = signature.fast_rules
    if rules is None:
        rules = signature.fast_rules = UserRules(cls, signature, flat_template(len(args)))
    ctx = Context(tuple(mask))
    try:
        out = cls.forward(ctx, *handles) if signature.combined else cls.forward(*handles)
    except HOST_ERRORS as error:
        raise rules.host_error("forward", error, handles) from error
    if not _is_simple(out, handles, values):
        outs, template, saved = rules.collect(ctx, values, handles, list(values), out)
        check_unchanged(rules, args, versions)
        return _general(rules, args, mask, values, outs, template, saved)
    if signature.has_setup:
        try:
            cls.setup_context(ctx, tuple(handles), out)
        except HOST_ERRORS as error:
            raise rules.host_error("setup_context", error, handles) from error
    places = _places(ctx, handles, values, out)
    if places is None:
        kept = dict(enumerate(handles))
        saved = rules.save(ctx, handles, kept, ([out],), values, [out], SINGLE)
        check_unchanged(rules, args, versions)
        return _general(rules, args, mask, values, [out], saved.template, saved)
    check_unchanged(rules, args, versions)

    result = out._value
    read: list[Any] = [None] * len(values)
    read_result = None
    for p in places:
        if p < 0:
            read_result = result
        else:
            read[p] = values[p]
    saved = Saved(
        read,
        [read_result],
        SINGLE,
        avals,
        [result.aval],
        Notes.of_places(places),
    )
    t = new_tensor(result, ROOT)
    t._requires_grad = True
    t._node = cls._backward_cls(ROOT, rules, args, mask, saved)
    return t


def _is_simple(out: Any, handles: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether the output is a Tensor of its own that has a derivative, and no input was written to."""
    if type(out) is not Tensor or out.meta is not None or out._level is not ROOT:
        return False
    value = out._value
    if out._requires_grad or type(value) is not array_type:
        return False
    for h, v in zip(handles, values):
        if h is out or h.meta is not None or h._value is not v:
            return False
    return is_inexact(value.aval.dtype)


def _places(
    ctx: Context, handles: Sequence[Any], values: Sequence[Any], out: Any
) -> tuple[int, ...] | None:
    """What was saved for backward: numbers of inputs, -1 for the output; None if there is more to it."""
    if out.meta is not None or out._requires_grad:
        return None
    for h, v in zip(handles, values):
        if h.meta is not None or h._value is not v:
            return None
    record = ctx._record
    if record.forward is not None or record.dirty or record.non_differentiable:
        return None
    if not record.zeros_for_none or ctx.saved_data or ctx.__dict__:
        return None
    places: list[int] = []
    for x in record.backward:
        if x is out:
            places.append(-1)
            continue
        for i, h in enumerate(handles):
            if x is h:
                places.append(i)
                break
        else:
            return None
    return tuple(places)


def _general(
    rules: UserRules,
    args: Sequence[Any],
    mask: list[bool],
    values: Sequence[Any],
    outs: Sequence[Any],
    template: Any,
    saved: Saved | None,
) -> tuple[FunctionOp, list[Any]]:
    """Record a call of which not everything is simple."""
    op = FunctionOp(rules, mask)
    op.ran.template, op.ran.saved = template, saved
    results = checked_arrays(rules, outs)
    tensors = [new_tensor(x, ROOT) for x in results]
    op.leave_node(ROOT, args, mask, tensors, values, results)
    return op, tensors


observable(sys.modules[__name__], "call", "function")
observable(FunctionOp, "execute", "function")
