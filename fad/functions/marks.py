"""What a forward pass marked on its context, as part of the structure of its outputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fad.errors import RuleError, describe
from fad.functions.context import Context
from fad.functions.templates import Template

__all__ = ["marked"]


def marked(
    who: str,
    ctx: Context,
    handles: Sequence[Any],
    outputs: Sequence[Sequence[Any]],
    template: Template,
) -> Template:
    """``template`` with what the body marked: outputs that are changed inputs, and those without derivative.

    Arguments:
        who: the name of the Function.
        handles: the inputs as the body knows them.
        outputs: lists of the objects by which it may know its outputs.
    """
    dirty, without = ctx._record.dirty, ctx._record.non_differentiable
    if not dirty and not without:
        return template
    position = {id(x): k for xs in outputs for k, x in enumerate(xs)}
    as_is = {v.at: v.of for v in template.views if v.as_is}
    for k, i in as_is.items():
        position.setdefault(id(handles[i]), k)
    aliases: list[int | None] = [None] * len(outputs[0])
    for x in dirty:
        of = as_is.get(position.get(id(x), -1))
        found = [i for i, h in enumerate(handles) if h is x or i == of]
        if not found and id(x) in position:
            warnings.warn(
                f"{who}: ctx.mark_dirty() received a tensor that was not an input, but the output "
                f"{describe(x)}. Only input Tensors that have been mutated should be passed to "
                "ctx.mark_dirty(): leave this one out",
                stacklevel=2,
            )
            continue
        if not found or id(x) not in position:
            raise RuleError(
                f"{who}: ctx.mark_dirty got {describe(x)}, which is not "
                f"{'an output' if found else 'an input'}: mark inputs that forward changes in place, and "
                "return them"
            )
        aliases[position[id(x)]] = found[0]
    for x in without:
        if id(x) not in position:
            raise RuleError(
                f"{who}: ctx.mark_non_differentiable got {describe(x)}, which is not an "
                "output: mark the very Tensors that forward returns"
            )
    return template.marked(tuple(aliases), frozenset([position[id(x)] for x in without]))
