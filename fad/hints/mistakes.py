"""What to write instead, where an error of Python or JAX shows that Tensors and arrays were mixed up.

The library asks by `fad.errors.advice`, where an error is raised.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import traceback
from typing import TYPE_CHECKING

from fad.errors import describe

if TYPE_CHECKING:
    from fad import Tensor

_NATIVE = "for a function of Tensors write fad.grad(f) (fad.vmap, fad.jit, ...), or jax.grad(fad.to_jax(f))"

# What to write, by a pattern of the text of an error, wherever it is raised.
_ANYWHERE = {
    r"JAX arrays are immutable": "A Tensor can be written to, in every transform: make it by fad.numpy "
    f"(fad.numpy.zeros(3)), or of an array (fad.tensor(array)). Under jax.grad and jax.jit: {_NATIVE}",
    r"\w*Tracer has no attribute (\w+_|requires_grad|grad_fn|register_hook|retain_grad|backward|detach)$": (
        f"Under jax.grad, jax.vmap and jax.jit a function is given arrays: {_NATIVE}"
    ),
    r"Gradient only defined for scalar-output functions\. Output was": (
        f"A Tensor is a pytree for jax.grad, which takes arrays (x.array): {_NATIVE}"
    ),
    r"ArrayImpl' object has no attribute '(grad|requires_grad|backward|\w+_)'": (
        "For jax.tree.map a Tensor is a tree with an array in it, unless it requires grad, outside of "
        "no_grad: read x.grad before the no_grad block, or write is_leaf=lambda x: isinstance(x, fad.Tensor)"
    ),
    r"(?s)pytree structure error: different types.*fad\.Tensor": (
        "One tree has Tensors where the other has arrays: make Tensors of both, "
        "jax.tree.map(fad.tensor, tree). A function that is given a NumPy array among its arguments "
        "returns Tensors"
    ),
    r"Pure callbacks do not support JVP": (
        "In a fad.Function in fad.jit write forward without ctx, and a setup_context: what a forward with "
        "ctx saves is differentiated through its body"
    ),
    r"(array|destination|base) is read-only$": (
        "If it is x.numpy() of a Tensor: arrays of JAX do not change. Write a = x.numpy(copy=True), and "
        "x.copy_(a) to change the Tensor"
    ),
    r"^Argument 'Tensor\(.* is not a valid JAX type": (
        f"{_NATIVE[0].upper()}{_NATIVE[1:]}; jax.jit takes Tensors that do not require grad"
    ),
    r"deleted or donated|Array has been deleted": (
        "A jit with donate_argnums or donate_argnames took the array over: use what the jit returned, or do "
        "not donate this argument"
    ),
    r"(key passed to jit-compiled function|argument \d+ is already consumed|PRNG key first used)": (
        "A key is for one draw: write key, sub = fad.random.split(key), and draw with sub"
    ),
    r"(?s)(does not accept dtype|Cannot interpret|element_type from|can require grad|integer or bool dtype)"
    r".*key<|key<.*type promotion|PRNGKey dtype|key array cannot be|not 'PRNGKeyArray'": (
        "A random key is no number and has no derivative: draw with it, fad.random.normal(key, shape); its "
        "integers are fad.random.key_data(key)"
    ),
    r"arrays are valid indices\. Got (Tensor|-?\d+$|True$|False$)": (
        "A JAX array takes no Tensor as an index: write fad.asarray(x)[i], in every transform"
    ),
    r"^Pred must be a scalar": "For a choice element by element write fad.numpy.where(condition, a, b)",
    r"^cond_fun must return a boolean scalar": "Write condition.all() or condition.any()",
    r"unbound axis name": "Name the axis of the transform around: fad.vmap(f, axis_name='i')",
    r"'Context' object has no attribute": (
        "ctx has what forward or setup_context has set, ctx.name = value; Tensors are saved by "
        "ctx.save_for_backward(x) and read as ctx.saved_tensors"
    ),
}

# The same, for errors that are raised inside of a transform.
_INSIDE = {
    r"unsupported operand type.*'(list|tuple|dict)'|'(list|tuple|dict)' object has no attribute": (
        "An argument that is a list, tuple or dict is a pytree of separate Tensors: for one array pass "
        "fad.tensor([...]) or jax.numpy.array([...])"
    ),
    r"Using a non-tuple sequence for multidimensional indexing": (
        "A Tensor takes a list as an index, of Tensors too: write fad.asarray(x)[[i, j]]"
    ),
    r"multiply sequence by non-int of type 'tuple'": (
        "A jvp rule of fad.custom_rules is given two tuples: def f_jvp(primals, tangents), then "
        "(x,), (t,) = primals, tangents"
    ),
}

# Libraries written in JAX, and what to write where one of them raises because it was given Tensors: the first
# that took part, since those further down are used by those above.
_LIBRARIES = {
    "diffrax": "Write fad.from_jax(solve)(p), where solve calls diffrax and gives p to the vector field by "
    "args: the field is code of JAX, and closes over no Tensor",
    "flax": "Write fad.from_jax(model.apply)(variables, x); for nnx, fad.from_jax(lambda state, x: "
    "nnx.merge(graph, state)(x))(state, x)",
    "equinox": "Write fad.from_jax(lambda model, x: model(x))(model, x): a module is an argument, like "
    "all that has Tensors in it. eqx.combine(params, rest) has its place inside of that function, or takes "
    "is_leaf=lambda x: isinstance(x, fad.Tensor)",
    "optax": "In fad.jit write fad.from_jax(optimizer.update)(grads, memory, params), and "
    "fad.from_jax(optax.apply_updates). In other places optax takes Tensors as they are, those that require "
    "grad under fad.no_grad(), with a memory that is made of Tensors too: optimizer.init(params)",
}

# The same, where the line that raised matches too: pattern of the text, pattern of the line, what to write.
_IN_LINES = (
    (
        r"'NoneType'",
        r"\.grad\b",
        "x.grad is None until backward() has reached x: x must require grad before the loss is computed, be "
        "a leaf (after w = w - rate * w.grad it is none: write w -= rate * w.grad under no_grad), and be "
        "used in the loss",
    ),
    (
        r"'NoneType' object has no attribute",
        r"\.grad_fn\b",
        "x.grad_fn is None for a leaf, and for what is computed without recording",
    ),
    (
        r"values to unpack|tuple index out of range",
        r"\.saved_(tensors|values|variables)\b",
        "ctx.saved_tensors has what forward or setup_context gave to ctx.save_for_backward(...), all in one "
        "call, in this order; without that call it is empty",
    ),
)

_BRANCH = "write fad.numpy.where(condition, a, b) or fad.lax.cond instead of a Python branch"
_NUMBER = "compute with fad.numpy, return it from the function, and read the number outside"

# What to write instead of reading a number where there is none, by what reads it.
_READERS = {
    "bool()": (
        f"{_BRANCH}, fad.lax.while_loop instead of a while loop; a flag among the arguments of fad.jit is a "
        "number too, unless it is static (fad.jit(f, static_argnames=...))"
    ),
    **dict.fromkeys(
        ("index()", "int()"),
        "range(n), x[:n], shapes, and indices of lists need one number: make n static "
        "(fad.jit(f, static_argnums=...)) or unmapped (in_dims None), or write fad.lax.fori_loop, "
        "fad.lax.dynamic_slice, or an array in place of the list",
    ),
    "numpy()": (
        "write fad.numpy.f(x) instead of numpy.f(x), fad.asarray(a)[i] for an array a, fad.from_jax(f)(x) "
        "for a plain JAX function f; NumPy code runs there by jax.pure_callback alone"
    ),
    "format()": "write print(x), which shows shape and dtype, or return x and print it outside",
    "": (
        "write fad.numpy.f(x) or fad.from_jax(f)(x) for a plain JAX function f, such as an optimizer's update"
    ),
}


# A body of `jit` reads the numbers of a Tensor from outside, but computes a part of it.
_OF_THE_WHOLE = (
    ". A Tensor from outside, not written to, is read as a whole: w.tolist()[0] for w[0].item()"
)


def instead_of_a_number(what: str, in_jit: bool = False) -> str:
    """What to write instead of ``what``, which reads the number of a value that has none; ``in_jit``: in a
    body of `jit`.

    >>> instead_of_a_number("bool()")[:41]
    'write fad.numpy.where(condition, a, b) or'
    """
    whole = _OF_THE_WHOLE if in_jit and what in _ONE else ""
    return _READERS.get(what, f"{_NUMBER}; {_BRANCH}") + whole


# What to write for one element of several, by what reads it; and for one that is of another kind.
_ONE = {
    "item()": "write x[i].item() for one of them",
    "float()": "write fad.numpy.sin(x) for math.sin(x), float(x[i]) for one of them",
    "int()": "write x.astype(int), or int(x[i]) for one of them",
    "complex()": "write complex(x[i]) for one of them",
    "index()": "an index or a length is one number: write x[i] for one of them",
}
_OF_KIND = {
    "float()": "write x.real or abs(x)",
    "int()": "write x.real or abs(x)",
    "index()": "write int(x) for the number",
}


def why_no_number(x: Tensor, what: str, error: Exception) -> str:
    """Why ``what`` cannot read a number of ``x``, for which ``error`` was raised, and what to write."""
    who = f"{what} of {describe(x)}"
    if what not in _ONE or x.size == 1:
        of_kind = _OF_KIND.get(what) if what == "index()" or x.dtype.kind == "c" else None
        return f"{who}: {error}{f': {of_kind}' if of_kind else ''}"
    count = f"a Tensor with {x.size} elements cannot be converted to Scalar"
    if not x.size:
        return f"{who}: {count}, there is no number in it"
    return f"{who}: {count}: {_ONE[what]}, x.tolist() or x.numpy() for all"


_OF_OTHERS = (TypeError, AttributeError, IndexError, NameError, RuntimeError, ValueError)


def advices(error: BaseException, inside: bool) -> list[str]:
    """What to write, for an error of others; ``inside`` of a transform of fad, or elsewhere."""
    if not isinstance(error, _OF_OTHERS):
        return []
    text = str(error)
    tables = (_ANYWHERE, _INSIDE) if inside else (_ANYWHERE,)
    found = [advice for table in tables for p, advice in table.items() if re.search(p, text)]
    found += [
        advice
        for pattern, word, advice in _IN_LINES
        if re.search(pattern, text) and re.search(word, _line(error))
    ]
    if "Tensor" in text or "accepts only NDarrays" in text:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        names = {frame.f_globals.get("__name__", "").partition(".")[0] for frame in frames}
        found += [advice for name, advice in _LIBRARIES.items() if name in names][:1]
    return found


def _line(error: BaseException) -> str:
    """The line of code that raised the error."""
    steps = [*traceback.walk_tb(error.__traceback__)]
    return linecache.getline(steps[-1][0].f_code.co_filename, steps[-1][1]) if steps else ""


def how_to_register(x: object) -> str:
    """What a message adds about ``x``, where that is an object with arrays but no pytree; else nothing."""
    cls = type(x)
    if not any([hasattr(value, "dtype") for value in getattr(x, "__dict__", {}).values()]):
        return ""
    name = cls.__name__
    made = "" if dataclasses.is_dataclass(cls) else f"make {name} a dataclass, and "
    return (
        f" To have its fields taken for arguments, {made}register it once: "
        f"jax.tree_util.register_dataclass({name})."
    )
