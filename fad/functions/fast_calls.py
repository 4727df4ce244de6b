"""The fast path for calls of Functions on the eager tape.

A call of a Function is an operation like any other: it is bound, goes down through the levels, and each
level transforms it (see `fad.functions.calls`). Most calls of eager code concern the tape and nothing else.
There each level that is not there need not be asked: the body is run, and the node is made of what it saved.
Both are what the general code does too (`UserRules.run_on`, `FunctionOp.leave_node`). It takes half of the
time of a bound call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax

from fad.core.jaxapi import array_type
from fad.core.level import bodies, state
from fad.core.observation import observable
from fad.core.tensor import Tensor, new_tensor
from fad.functions.calls import FunctionOp, check_unchanged
from fad.functions.closures import checked_arrays
from fad.functions.context import Context
from fad.functions.definitions import FunctionClass, Signature
from fad.functions.templates import SINGLE, Template
from fad.functions.user_rules import UserRules
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT


def call(
    cls: FunctionClass, args: Sequence[object], signature: Signature
) -> tuple[Template, list[Tensor]] | None:
    """``cls.apply(*args)``, where ``signature`` is what the class says about its calls.

    Returns:
        The structure of the outputs, and these; None if this is not such a call, and nothing has been done.
    """
    # In the order in which it costs least to find that this is another call.
    modes = state.__dict__.get  # a name that is not there has its default
    if modes("levels") or modes("trace") is not None or modes("watermark", -1) >= 0:
        return None
    if modes("saved_hooks") or bodies.traced or anomaly.watch:
        return None
    mask: list[bool] = []
    versions: list[int] = []
    values: list[jax.Array] = []
    handles: list[Tensor] = []
    for a in args:
        requires_grad, version = False, 0
        if type(a) is Tensor:
            meta = a.meta
            if a._level is not ROOT or (meta is not None and meta.link is not None):
                return None
            requires_grad = a._requires_grad
            version = 0 if meta is None else meta.storage.version
            a = a._value
        mask.append(requires_grad)
        versions.append(version)
        if type(a) is not array_type:
            return None
        values.append(a)
        handles.append(new_tensor(a, ROOT))
    if True not in mask:
        return None

    # From here on the body runs: whatever it does, the call is finished here.
    rules = signature.fast_rules
    if rules is None:
        rules = signature.fast_rules = UserRules(cls, signature, Template.flat_of(len(args)))
    outs, template, saved = rules.run_on(Context(tuple(mask)), handles, values, values)
    assert saved is not None
    check_unchanged(rules, args, versions)
    if saved.plain:
        t = new_tensor(outs[0]._value, ROOT)
        t._requires_grad = True
        t._node = cls._backward_cls(ROOT, rules, args, mask, saved)
        return SINGLE, [t]
    op = FunctionOp(rules, mask)
    op.ran.template, op.ran.saved = template, saved
    results = checked_arrays(rules, outs)
    tensors = [new_tensor(x, ROOT) for x in results]
    op.leave_node(ROOT, args, mask, tensors, values, results)
    return op.ran.template, tensors


observable(sys.modules[__name__], "call", "function")
observable(FunctionOp, "execute", "function")
