"""How a view was made, where that forbids to write to it, and the errors that say so."""

from __future__ import annotations

import enum

from fad.core.tensor import Tensor


class Creation(enum.Enum):
    """What is special about how a view was made, for the errors of writes through it."""

    DEFAULT = ""
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    MULTI_OUTPUT = "multi_output"
    FUNCTION = "function"


DEFAULT = Creation.DEFAULT  # a look-up in the Enum takes longer


def forbidden(t: Tensor, creation: Creation, output_nr: int, indirect: bool) -> str:
    """Why a view of a special kind may not be written to, or used after its base was (``indirect``)."""
    what = (
        "its base or another view of its base has been modified"
        if indirect
        else "is being modified"
    )
    node = t._node
    if node is not None:
        text = f"Output {output_nr} of {node.name()} is a view and {what} inplace."
    elif creation is Creation.INFERENCE:
        text = f"A view was created in inference mode and {what} inplace in normal mode."
    else:
        text = f"A view was created in no_grad mode and {what} inplace with grad mode enabled."
    return f"{text} {_ADVICE[creation]}"


_BLOCK = (
    "Whether the write should be recorded is not clear, so it is refused: put both the view and the "
    "inplace operation inside the {mode} block (not recorded), or both outside (recorded)."
)
_ADVICE: dict[Creation, str] = {
    Creation.NO_GRAD: _BLOCK.format(mode="no_grad"),
    Creation.INFERENCE: _BLOCK.format(mode="inference_mode"),
    Creation.MULTI_OUTPUT: (
        "This view is the output of a function that returns multiple views. Such functions do not "
        "allow the output views to be modified inplace: use an operation that is not in place, or "
        "take the views one by one (x[i])."
    ),
    Creation.FUNCTION: (
        "This view was created inside a custom Function (or because an input was returned as-is), "
        "and following its base would override the backward of that Function: clone the output of "
        "the Function."
    ),
}
