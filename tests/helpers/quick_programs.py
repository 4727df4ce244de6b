"""Programs of tests are compiled in less time: as XLA compiles small loops, with contexts used again.

NOTE [programs that are compiled as small loops]

    pytest tests/arrays    # without it, in twice the time

A program of tests is run once or twice, so that what takes time is to compile it. XLA makes a kernel of each
fusion, by a pipeline of MLIR that costs five milliseconds for each; but the body of a small loop becomes one
function of LLVM. That is done here with whole programs: their body is a function that is called, and the call
is marked as XLA marks those of small loops. A program takes a half of the time then, a large one a quarter,
and computes the same. What XLA knows only as a call of a library, or as a step between devices, cannot stand
in such a function, nor is a large array handled well: these programs are compiled as users have them, and so
are all in a block of `as_users`, or with ``FAD_TESTS_XLA=users`` in the environment.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import jax
from jax._src import cache_key, compiler
from jax._src.interpreters import mlir
from jaxlib.mlir.dialects import func

import fad

_as_users = True
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
_ir = mlir.ir


def _is_small(module: Any) -> bool:
    """Whether all that a program does can stand in one function of LLVM, on one device."""
    attributes = module.operation.attributes
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        if name in attributes and attributes[name].value != 1:
            return False
    fits = not _as_users

    def look(op: Any) -> Any:
        nonlocal fits
        dialect, _, name = op.operation.name.partition(".")
        if dialect == "stablehlo":
            fits = name in _OPERATIONS
        elif dialect == "chlo":
            fits = name not in _NOT
        else:
            fits = op.operation.name in _OTHERS
        for result in op.operation.results if fits else ():
            kind = result.type
            fits = isinstance(kind, _ir.RankedTensorType) and math.prod(kind.shape) <= LARGEST
            if not fits:
                break
        return _ir.WalkResult.ADVANCE if fits else _ir.WalkResult.INTERRUPT

    if fits:
        module.operation.walk(look)
    return fits


@contextlib.contextmanager
def _as_small_loop(module: Any) -> Iterator[None]:
    """The body of ``main`` as a function that it calls, with the mark of a small loop; it is put back."""
    with module.context, _ir.Location.unknown():
        main = next(
            op for op in module.body.operations if op.attributes["sym_name"].value == "main"
        )
        kind, kept = main.attributes["function_type"].value, {}
        for name in ("arg_attrs", "res_attrs", "sym_visibility"):
            if name in main.attributes:
                kept[name] = main.attributes[name]
                del main.attributes[name]
        main.attributes["sym_name"] = _ir.StringAttr.get("body_of_main")
        block = main.regions[0].blocks[0]
        last = list(block.operations)[-1]
        results, arguments = list(last.operands), list(block.arguments)
        returned = [*kind.results, *kind.inputs]
        main.attributes["function_type"] = _ir.TypeAttr.get(
            _ir.FunctionType.get(kind.inputs, returned)
        )
        last.operation.erase()
        with _ir.InsertionPoint(block):
            last = func.ReturnOp(results + arguments)
        main.attributes["sym_visibility"] = _ir.StringAttr.get("private")
        with _ir.InsertionPoint(module.body):
            caller = func.FuncOp("main", kind)
        for name, value in kept.items():
            caller.attributes[name] = value
        with _ir.InsertionPoint(caller.add_entry_block()):
            call = func.CallOp(
                returned, _ir.FlatSymbolRefAttr.get("body_of_main"), list(caller.arguments)
            )
            marks = {"inlineable": "false", "xla_cpu_small_call": "true"}
            call.attributes["mhlo.frontend_attributes"] = _ir.DictAttr.get(
                {name: _ir.StringAttr.get(value) for name, value in marks.items()}
            )
            func.ReturnOp(list(call.results)[: len(kind.results)])
    try:
        yield
    finally:
        with module.context, _ir.Location.unknown():
            caller.operation.erase()
            last.operation.erase()
            with _ir.InsertionPoint(block):
                func.ReturnOp(results)
            main.attributes["function_type"] = _ir.TypeAttr.get(kind)
            del main.attributes["sym_visibility"]
            main.attributes["sym_name"] = _ir.StringAttr.get("main")
            for name, value in kept.items():
                main.attributes[name] = value


_compile, _key = compiler.backend_compile_and_load, cache_key.get


def _compile_quickly(backend: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    if _is_small(module):
        # Some scatters, and products that XLA fuses, cannot stand there.
        with contextlib.suppress(jax.errors.JaxRuntimeError), _as_small_loop(module):
            return _compile(backend, module, *args, **kwargs)
    return _compile(backend, module, *args, **kwargs)


def _key_without_names(module: Any, *args: Any, **kwargs: Any) -> str:
    """A program that differs from a compiled one in its name, or in those of its results, is that one."""
    with module.context:
        program = module.operation.clone(ip=False)  # not into a module that is being made
        program.attributes["sym_name"] = _ir.StringAttr.get("program")
        for function in program.regions[0].blocks[0]:
            if "res_attrs" in function.attributes:
                results = [
                    {a.name: a.attr for a in result if a.name != "jax.result_info"}
                    for result in function.attributes["res_attrs"]
                ]
                function.attributes["res_attrs"] = _ir.ArrayAttr.get(
                    [_ir.DictAttr.get(result) for result in results]
                )
    return f"{_key(program, *args, **kwargs)}-{'users' if _as_users else 'quick'}"


_new_context, _contexts = getattr(mlir, "make_ir_context", None), threading.local()


def _used_context() -> Any:
    """For each program that it lowers JAX makes an MLIR context: a megabyte, and a fifth of the time of these
    tests. Newer ones use each context of a thread ten times, as is done here for older ones."""
    with contextlib.suppress(ValueError):  # there is none
        if mlir.ir.Context.current is not None:
            return _new_context()  # in the middle of lowering another program: with its own
    context, uses = getattr(_contexts, "last", (None, 10))
    if uses == 10:
        context, uses = _new_context(), 0
    _contexts.last = context, uses + 1
    return context


@contextlib.contextmanager
def as_users() -> Iterator[None]:
    """A block in which programs are compiled as users have them: for tests of what XLA makes of them."""
    global _as_users
    before, _as_users = _as_users, True
    try:
        yield
    finally:
        _as_users = before


def compile_quickly(quickly: bool) -> None:
    """Have what is compiled from now on compiled so, or as users have it; what was compiled is forgotten."""
    global _as_users
    if _as_users == quickly:
        jax.clear_caches()
        fad.autograd.compiled.clear_cache()
        _as_users = not quickly


def install() -> None:
    """Let the programs of this process be compiled so, see `compile_quickly`; contexts are used again."""
    if not hasattr(mlir, "_create_ir_context"):
        mlir.make_ir_context = _used_context
    compiler.backend_compile_and_load = _compile_quickly
    cache_key.get = _key_without_names
