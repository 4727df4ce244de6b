"""Programs of tests are compiled in half of the time: as XLA compiles the body of a small loop.

A program of tests is run once or twice: what takes time is to compile it. From JAX 0.11 on XLA makes each
fusion a kernel by a pipeline of MLIR, which takes some ten milliseconds; but the body of a small loop becomes
one function of LLVM. Here the body of a whole program is a function that is called, and the call is marked as
XLA marks those of small loops. What XLA knows only as a call of a library, or as a step between devices,
cannot stand in such a function, nor is a large array handled well: these programs are compiled as users have
them. So is all where bits are compared, or the text of programs: `AS_USERS` in `conftest.py`; with
``FAD_TESTS_XLA=users`` in the environment; and with JAX 0.10, which has a flag instead (`xla_flags.py`).
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jaxlib.mlir.dialects import func
from xla_flags import HAS_OTHER_EMITTERS

import fad

LARGEST = 1 << 14  # elements of an array

# What can stand in a function of LLVM.
_OPERATIONS = frozenset(
    """abs add and atan2 bitcast_convert broadcast broadcast_in_dim case cbrt ceil clamp compare complex
    concatenate constant convert cosine count_leading_zeros divide dot_general dynamic_slice
    dynamic_update_slice exponential exponential_minus_one floor gather get_tuple_element if imag iota
    is_finite log log_plus_one logistic maximum minimum multiply negate not or pad popcnt power real reduce
    reduce_precision reduce_window remainder reshape return reverse round_nearest_afz round_nearest_even rsqrt
    scatter select select_and_scatter shift_left shift_right_arithmetic shift_right_logical sign sine slice
    sqrt subtract tan tanh transpose tuple while xor""".split()
)
_OTHERS = frozenset(["builtin.module", "func.call", "func.func", "func.return"])
_NOT = frozenset(["chlo.ragged_dot", "chlo.scan", "chlo.top_k"])
_ir, _compile = mlir.ir, compiler.backend_compile_and_load
_CAN = not HAS_OTHER_EMITTERS and os.environ.get("FAD_TESTS_XLA") != "users"
_quickly = _CAN


def is_quick(module: Any) -> bool:
    """Whether a program is compiled so: all that it does can stand in one function, on one device."""
    fits = _quickly and all(
        name not in module.operation.attributes or module.operation.attributes[name].value == 1
        for name in ("mhlo.num_partitions", "mhlo.num_replicas")
    )

    def look(op: Any) -> Any:
        nonlocal fits
        dialect, _, name = op.operation.name.partition(".")
        if dialect == "stablehlo":
            fits = name in _OPERATIONS
        elif dialect == "chlo":
            fits = op.operation.name not in _NOT
        else:
            fits = op.operation.name in _OTHERS
        kinds = [result.type for result in op.operation.results]
        fits = fits and all(
            isinstance(kind, _ir.RankedTensorType) and math.prod(kind.shape) <= LARGEST
            for kind in kinds
        )
        return _ir.WalkResult.ADVANCE if fits else _ir.WalkResult.INTERRUPT

    if fits:
        module.operation.walk(look)
    return fits


def _as_small_loop(module: Any) -> Any:
    """A copy whose ``main`` calls what was its body, with the mark of a small loop."""
    with module.context, _ir.Location.unknown():
        module = _ir.Module.parse(mlir.module_to_bytecode(module))
        [body] = [op for op in module.body if op.attributes["sym_name"].value == "main"]
        kind = body.attributes["function_type"].value
        with _ir.InsertionPoint(module.body):
            main = func.FuncOp("main", kind)
        for name in ("arg_attrs", "res_attrs", "sym_visibility"):
            if name in body.attributes:
                main.attributes[name] = body.attributes[name]
                del body.attributes[name]
        body.attributes["sym_name"] = _ir.StringAttr.get("body_of_main")
        body.attributes["sym_visibility"] = _ir.StringAttr.get("private")
        # It gives its arguments too: else their memory might be that of its results.
        block, returned = body.regions[0].blocks[0], [*kind.results, *kind.inputs]
        last = list(block.operations)[-1]
        body.attributes["function_type"] = _ir.TypeAttr.get(
            _ir.FunctionType.get(kind.inputs, returned)
        )
        with _ir.InsertionPoint(block):
            results = [*last.operands, *block.arguments]
            last.operation.erase()
            func.ReturnOp(results)
        with _ir.InsertionPoint(main.add_entry_block()):
            call = func.CallOp(
                returned, _ir.FlatSymbolRefAttr.get("body_of_main"), list(main.arguments)
            )
            marks = {"inlineable": "false", "xla_cpu_small_call": "true"}
            call.attributes["mhlo.frontend_attributes"] = _ir.DictAttr.get(
                {name: _ir.StringAttr.get(value) for name, value in marks.items()}
            )
            func.ReturnOp(list(call.results)[: len(kind.results)])
    return module


def _compile_quickly(backend: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    if is_quick(module):
        # Some scatters, and products that XLA fuses, cannot stand there.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            return _compile(backend, _as_small_loop(module), *args, **kwargs)
    return _compile(backend, module, *args, **kwargs)


def compile_quickly(quickly: bool) -> None:
    """Have what is compiled from now on compiled so, or as users have it; what was compiled is forgotten."""
    global _quickly
    if _CAN and _quickly != quickly:
        jax.clear_caches()
        fad.autograd.compiled.clear_cache()
        _quickly = quickly


if _CAN:
    compiler.backend_compile_and_load = _compile_quickly
