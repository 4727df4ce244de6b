"""The only module that uses JAX names outside of JAX's documented API.

These names move and change between versions of JAX; the rest of fad sees one form of each. An
unsupported version of JAX is refused here, at import, with an error that names the supported range.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import config as _config
from jax._src import core as _core
from jax._src import dtypes as _dtypes
from jax._src import pjit as _pjit
from jax._src import source_info_util as _source_info
from jax._src import tree_util as _tree_util
from jax._src.array import ArrayImpl as array_type
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.interpreters import pxla as _pxla
from jax._src.lib import _jax
from jax._src.lib.mlir.dialects import hlo as stablehlo
from jax.experimental import io_callback
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.layout import Layout, with_layout_constraint
from jax.interpreters import ad, batching, mlir

from fad.core.collector import make_jit, without_collector
from fad.core.pace import pace

__all__ = [
    "MINIMUM_JAX",
    "ClosedJaxpr",
    "Jaxpr",
    "Literal",
    "ad",
    "array_type",
    "at_top_level",
    "batch_jaxpr",
    "batching",
    "call_table",
    "called",
    "convert_constvars_jaxpr",
    "current_trace",
    "debug_infs",
    "debug_nans",
    "float0",
    "io_callback",
    "is_committed",
    "is_inexact",
    "is_tracing",
    "jaxpr_as_fun",
    "jit_of_small",
    "jvp_jaxpr",
    "keep_compiled",
    "mapped_aval",
    "mlir",
    "new_primitive",
    "outside_trace",
    "scan_operands",
    "set_current_trace",
    "shaped_array",
    "sorted_bcoo",
    "trace_context",
    "varying_axes",
    "without_unused",
    "zeros",
]

MINIMUM_JAX = (0, 10, 2)
BELOW_JAX = (0, 13)


def check_version(version: str) -> None:
    """Refuse a version of JAX that fad does not work with.

    Raises:
        ImportError: it is out of the range, which the message gives.
    """
    digits = ["".join(c for c in part if c.isdigit()) for part in version.split(".")]
    number = tuple([int(d or 0) for d in digits[:3]])
    if not MINIMUM_JAX <= number < BELOW_JAX:
        least, below = (".".join(map(str, v)) for v in (MINIMUM_JAX, BELOW_JAX))
        raise ImportError(
            f"fad works with jax>={least},<{below}, found jax {version}: "
            f"pip install 'jax>={least},<{below}'"
        )


check_version(jax.__version__)

# As in `jax.extend.core`, whose package takes long to import.
Jaxpr: Any = _core.Jaxpr
ClosedJaxpr: Any = getattr(_core, "ClosedJaxpr", Jaxpr)  # one type, in newer versions
Literal: Any = _core.Literal
float0 = jax.dtypes.float0
jaxpr_as_fun = _core.jaxpr_as_fun
jvp_jaxpr = _ad.jvp_jaxpr
batch_jaxpr = _batching.batch_jaxpr
mapped_aval = _core.mapped_aval
convert_constvars_jaxpr = _partial_eval.convert_constvars_jaxpr
shaped_array = jax.core.ShapedArray
set_current_trace = _core.set_current_trace


def current_trace() -> Any:
    """The JAX trace that operations go to now; outside of all transforms, the one that runs them."""
    with _core.take_current_trace() as trace:
        return trace


@contextlib.contextmanager
def outside_trace(outer: Any) -> Iterator[Any]:
    """A block that computes in the trace ``outer`` instead of the current one, which it yields."""
    with _core.take_current_trace() as trace, _core.set_current_trace(outer):
        yield trace


# Whether no transform of JAX is active, so that operations are executed at once.
at_top_level: Callable[[], bool] = _core.trace_state_clean


@functools.cache
def _options_of_small_programs() -> dict[str, Any]:
    """XLA's options for a program of small arrays, compiled at the top level: run its parts one by one.

    By default XLA schedules parts of a program on other threads, which takes longer than to compute
    small ones. The operations of such a program are separated by `barrier`.
    """
    options: dict[str, Any] = {
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
        # This pass would remove the barriers before XLA fuses operations.
        "xla_disable_hlo_passes": "cse_barrier_expander",
    }
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception:  # this version of XLA does not know it: nothing depends on it
        return {}
    return options


def jit_of_small(f: Callable[..., Any]) -> Any:
    """``jax.jit`` for a program of small arrays, which is called outside of all JAX transforms."""
    return make_jit(without_collector(f), compiler_options=_options_of_small_programs())


def barrier(values: Sequence[Any]) -> list[Any]:
    """The same values, behind an optimization barrier and in row-major layout.

    XLA does not fuse an operation with others across a barrier: it compiles it as it would alone.
    """
    plain = [
        isinstance(v, jax.Array) and not jax.dtypes.issubdtype(v.dtype, jax.dtypes.extended)
        for v in values
    ]
    rows = [
        with_layout_constraint(v, Layout(tuple(range(v.ndim)))) if v.ndim > 1 else v
        for v, p in zip(values, plain)
        if p
    ]
    bind = (
        _barrier_primitive.bind if rows and current_program() is not None else _optimization_barrier
    )
    pace.yield_gil()
    kept = iter(bind(*rows))
    return [next(kept) if p else v for v, p in zip(values, plain)]


def _optimization_barrier(*values: Any) -> Sequence[Any]:
    found: Sequence[Any] = jax.lax.optimization_barrier(values)
    return found


def _lower_barrier(_: Any, *values: Any) -> Sequence[Any]:
    pace.yield_gil()
    return list(stablehlo.OptimizationBarrierOp(values).results)


# `jax.lax.optimization_barrier`, in programs that the compile thread lowers; see NOTE [pace].
_barrier_primitive = _core.Primitive("barrier")
_barrier_primitive.multiple_results = True
_barrier_primitive.def_impl(lambda *values: list(values))
_barrier_primitive.def_abstract_eval(lambda *avals: avals)
mlir.register_lowering(_barrier_primitive, _lower_barrier)


def jit_exact(f: Callable[..., Any], avals: Sequence[Any]) -> Callable[..., Any]:
    """``f``, which returns a tuple, compiled for small arrays, with bitwise the results of eager
    execution.

    There are barriers between the operations of ``f``. If nothing reads one of several results of an
    operation, XLA would drop it and fuse the rest of the operation in another way. So the compiled
    program also returns one element of each unread result; they are cut off from what the caller gets.
    """
    as_it_is = jit_of_small(f)
    traced = as_it_is.trace(*avals)
    closed = traced.jaxpr
    unread = _unread(closed.jaxpr)
    if not unread:
        traced.lower()  # cached: the first call finds it
        return as_it_is
    count = len(closed.jaxpr.outvars)
    whole = closed.replace(jaxpr=closed.jaxpr.replace(outvars=[*closed.jaxpr.outvars, *unread]))

    def keeping(*values: Any) -> tuple[Any, ...]:
        outs = write_equations(current_program(), whole, values)
        read = [jax.numpy.ravel(x)[:1].real.astype(np.float32) for x in outs[count:]]
        return (*outs[:count], jax.numpy.concatenate(read))

    compiled = jit_of_small(keeping)
    compiled.lower(*avals)
    return lambda *values: compiled(*values)[:count]


def _unread(jaxpr: Any) -> list[Any]:
    """Results of barriers that are not read, where another result of the same barrier is."""
    live = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if live.isdisjoint(eqn.outvars):
            continue
        live.update([v for v in eqn.invars if not isinstance(v, Literal)])
        if eqn.primitive is _barrier_primitive:
            found += [v for v in eqn.outvars if v not in live and v.aval.size]
    return found


def call_table(
    name: str,
    find: Callable[..., Any],
    disabled: Callable[[], Any],
    forgotten: Callable[[], None],
) -> Any:
    """JAX's C++ cache of compiled calls, for programs that fad finds itself.

    ``table(*args, **kwargs)`` looks the call up as ``jax.jit`` does: by the structure of its arguments,
    their avals and shardings, and JAX's settings. `fad.bridge.compilation` uses it.

    Arguments:
        name: of the function, as profilers show it.
        find: ``find(args, kwargs)`` is called on a cache miss. It returns a function made by
            ``jax.jit``, arrays that are passed to it before the arguments, the leaves of the arguments,
            and a function from the flat list of outputs to the result. If it raises, the caller gets
            the exception, and JAX calls it again for each call with the same key until
            ``table._clear_cache()``.
        disabled: called in place of everything else under ``jax.disable_jit``.
        forgotten: called after a call that JAX cannot cache.
    """

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        jitted, before, leaves, join = find(args, kwargs)
        operands = (*before, *leaves)
        params, flat = _pjit._infer_params(jitted._fun, jitted._jit_info, operands, {})
        _, outs, _, flat, jaxpr, executable, profiler, constants = _pjit._run_python_pjit(
            params, flat, jitted._fun, operands, {}
        )
        result = join(outs)
        count = len(before)
        found = _pjit._get_fastpath_data(
            executable,
            jax.tree.structure(result),
            flat[count:],
            outs,
            jaxpr.effects,
            jaxpr.consts,
            profiler,
            [*constants, *flat[:count]],
        )
        if found is None:
            forgotten()
        return result, found, False

    return _jax.pjit(
        name,
        lambda *args, **kwargs: disabled(),  # JAX tells tables apart by this function
        miss,
        (),
        (),
        _pxla.JitGlobalCppCacheKeys(),
        _tree_util.dispatch_registry,
        _pxla.cc_shard_arg,
        _pjit._get_cpp_global_cache(False),
    )


def is_tracing() -> bool:
    """Whether operations are now traced into a program that executes later, as under ``jax.jit``.

    False under ``jax.grad`` and ``jax.vmap`` alone: there, Python runs once for each execution.
    """
    if at_top_level():
        return False
    with _core.take_current_trace() as trace:
        while trace is not None:
            if type(trace).__name__ == "DynamicJaxprTrace":
                return True
            trace = getattr(trace, "parent_trace", None)
    return False


# The settings of JAX, and its current mesh and axes, that a trace depends on; hashable.
trace_context: Callable[[], Any] = _config.trace_context


is_committed: Callable[[Any], bool] = operator.attrgetter(
    "_committed"
)  # to its device, by the user


# Settings of JAX; their ``value`` is the one in this thread, now.
debug_nans = _config.debug_nans
debug_infs = _config.debug_infs


def checks_numbers() -> bool:
    """Whether JAX looks at the result of each operation for NaN or infinity."""
    return bool(debug_nans.value or debug_infs.value)


def x64_enabled() -> bool:
    """Whether 64-bit types are on, in this thread, now."""
    return bool(_config.enable_x64.value)


def global_settings() -> dict[str, Any]:
    """JAX's settings outside of all blocks, by name."""
    holders = jax.config._value_holders  # `jax.config.values` has those of the current block
    return {n: h.get_global() if hasattr(h, "get_global") else h.value for n, h in holders.items()}


def keep_compiled(folder: str) -> None:
    """Have JAX keep all that it compiles in this folder, and look for it there, from now on."""
    if folder != global_settings()["jax_compilation_cache_dir"]:
        compilation_cache.reset_cache()  # JAX opens the folder once
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def varying_axes(aval: Any) -> frozenset[Any]:
    """The names of the ``shard_map`` axes along which a value differs between devices."""
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset() if kind is None else frozenset(kind.varying)


def zeros(aval: Any) -> Any:
    """Zeros of an abstract value: its weak type, explicit sharding, the axes that it varies along."""
    sharded = any([axis is not None for axis in aval.sharding.spec])
    if varying_axes(aval) or aval.weak_type or (sharded and is_tracing()):
        return ad.instantiate_zeros(ad.Zero(aval))
    return jax.numpy.zeros(aval.shape, aval.dtype)


def no_cotangent(aval: Any) -> Any:
    """JAX's symbolic zero, as the cotangent of an output that was not used; no array is made."""
    return ad.Zero(aval.to_ct_aval())


def new_primitive(name: str) -> Any:
    """A JAX primitive with several results."""
    p = _core.Primitive(name)
    p.multiple_results = True
    return p


def without_unused(closed: Any) -> Any:
    """A closed jaxpr without the equations that its outputs do not need; its inputs stay."""
    jaxpr = closed.jaxpr
    needed, _ = _partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(needed, closed.consts)


def scan_operands(params: dict[str, Any]) -> tuple[int, int]:
    """How many of the operands of a ``scan`` equation are constants of its body, and how many are
    carried.
    """
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = map(len, params["ft_in"].unpack())
    return constants, carried


def stand_in(aval: Any) -> Any:
    """A tracer that stands for a value which is not known yet.

    It belongs to a trace that never becomes a program. To any other trace it is a constant.
    """
    if not isinstance(aval, shaped_array):
        aval = shaped_array(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
    return _partial_eval.DynamicJaxprTrace(None).new_arg(aval, _source_info.current())


def current_program() -> Any:
    """The current trace, if it only records equations into a program (as `jax.jit` does); else None."""
    trace = _core.trace_ctx.trace
    return trace if type(trace) is _partial_eval.DynamicJaxprTrace else None


def write_equations(trace: Any, closed: Any, values: Sequence[Any]) -> list[Any]:
    """Write a jaxpr, on ``values``, into the program that `current_program` found."""
    source = _source_info.current()
    tracers: list[Any] = [
        trace.to_jaxpr_tracer(
            v if isinstance(v, jax.core.Tracer) else _dtypes.canonicalize_value(v), source
        )
        for v in values
    ]
    written: list[Any] = _partial_eval.inline_jaxpr_into_trace(
        trace, source, closed.jaxpr, closed.consts, *tracers
    )
    return written


def called(eqn: Any) -> Any:
    """The jaxpr that an equation calls with its last operands, and does nothing else; None if there is none.

    That of a nested ``jax.jit``; and that for everywhere else of a branch that is for Pallas kernels alone.
    """
    if eqn.primitive.name in ("jit", "pjit"):
        closed = eqn.params.get("jaxpr")
        return closed if isinstance(closed, ClosedJaxpr) else None
    if eqn.params.get("branches_platforms") == (("mosaic",), None):
        return eqn.params["branches"][-1]
    return None


def sorted_bcoo(data: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """A ``jax.experimental.sparse.BCOO`` whose indices are sorted, each once; ``data`` may be a Tensor."""
    kept = {"shape": shape, "indices_sorted": True, "unique_indices": True}
    sparse = importlib.import_module("jax.experimental.sparse")  # takes long
    return sparse.BCOO.tree_unflatten(kept, (data, indices))


_inexact: dict[Any, bool] = {}


def is_inexact(dtype: Any) -> bool:
    """Whether values of this dtype have derivatives: floating or complex."""
    known = _inexact.get(dtype)
    if known is None:
        known = _inexact[dtype] = bool(jax.numpy.issubdtype(dtype, np.inexact))
    return known
