"""The names of JAX outside of its documented API that fad uses: for what, and which public way was tried.

`fad.core.jaxapi` gets each of them by `private`, and gives the rest of fad one form of it for all versions
of JAX. `docs/private-names.md` shows the table.
"""

from __future__ import annotations

import pkgutil
import warnings
from typing import Any

import jax

MINIMUM_JAX = (0, 10, 2)
BELOW_JAX = (0, 13)  # what is tested

_IMPORT = "`jax.extend.core` has it, and takes 40 ms to import"
_RULES = "none: JAX's tutorial on primitives uses it"
_TABLE = "Python code that finds the program before `jax.jit` is called, at each call"
_TRACE = "`jax.core.eval_jaxpr` binds each equation again, which takes 3 times as long"

# For what it is used; which public way was tried.
PRIVATE_NAMES: dict[str, tuple[str, str]] = {
    "jax._src.array.ArrayImpl": (
        "whether a value is an array on devices, and no tracer",
        "`type(jnp.zeros(()))` starts the devices at import; `isinstance(x, jax.Array)` is true of tracers",
    ),
    "jax._src.config.config._value_holders": (
        "JAX's settings outside of all blocks, for the thread that compiles",
        "`jax.config.values` has those of the current block",
    ),
    "jax._src.config.trace_context": (
        "the settings that a trace depends on, as a key of caches",
        "none: reading each of 46 settings takes 10 µs, not 0.1",
    ),
    "jax._src.core.NamedAxisEffect": (
        "which named axes a program uses",
        "none: looking for the parameters of each primitive that can name an axis",
    ),
    "jax._src.core.extend_axis_env_nd": (
        "tracing code that names axes of running vmaps",
        "`jax.make_jaxpr` has `axis_env`; derivatives and other programs are traced by other functions",
    ),
    "jax._src.core.mapped_aval": (
        "the shape and sharding of a value without its batch dimension",
        _IMPORT,
    ),
    "jax._src.core.set_current_trace": ("computing in an outer trace of JAX", _IMPORT),
    "jax._src.core.take_current_trace": ("which trace of JAX operations go to", _IMPORT),
    "jax._src.core.trace_ctx": (
        "the same, without a block, for each operation that is traced",
        _IMPORT,
    ),
    "jax._src.core.trace_state_clean": (
        "whether no transform of JAX is active",
        "`jax.extend.core.unsafe_am_i_under_a_jit_DO_NOT_USE` knows `jit` alone",
    ),
    "jax._src.dtypes.canonicalize_value": (
        "NumPy's values as operands of equations that are written into a trace",
        "`jnp.asarray` writes an equation",
    ),
    "jax._src.interpreters.ad.jvp_jaxpr": (
        "the derivative of a loop's body, and which results it has a tangent for",
        "`jax.make_jaxpr` of `jax.jvp` fills tangents that are zero",
    ),
    "jax._src.interpreters.batching.batch_jaxpr": (
        "a loop's body under vmap, and which results differ between lanes",
        "`jax.make_jaxpr` of `jax.vmap` batches all results",
    ),
    "jax._src.interpreters.partial_eval.DynamicJaxprTrace": (
        "whether a trace only records equations, as that of `jax.jit` does; a trace for stand-ins",
        "`jax.extend.core.unsafe_am_i_under_a_jit_DO_NOT_USE` does not say whether `grad` is inside",
    ),
    "jax._src.interpreters.partial_eval.DynamicJaxprTrace.new_arg": (
        "a tracer that stands for a value which is not known yet",
        "none",
    ),
    "jax._src.interpreters.partial_eval.DynamicJaxprTrace.to_jaxpr_tracer": (
        "operands of equations that are written into a trace",
        _TRACE,
    ),
    "jax._src.interpreters.partial_eval.convert_constvars_jaxpr": (
        "a program whose constants are operands",
        "none: how a program holds its constants differs between versions",
    ),
    "jax._src.interpreters.partial_eval.dce_jaxpr": (
        "a program without what its results do not need, inside of branches too",
        "none",
    ),
    "jax._src.interpreters.partial_eval.inline_jaxpr_into_trace": (
        "an operation's equations, written into the program that is being traced",
        _TRACE,
    ),
    "jax._src.interpreters.pxla.JitGlobalCppCacheKeys": ("the table of compiled calls", _TABLE),
    "jax._src.interpreters.pxla.cc_shard_arg": ("the table of compiled calls", _TABLE),
    "jax._src.lib._jax.pjit": ("the table of compiled calls", _TABLE),
    "jax._src.lib.mlir.dialects.hlo.OptimizationBarrierOp": (
        "a barrier whose lowering lets other threads run",
        "`jax.lax.optimization_barrier` has no place for that: pauses of 5 ms in other threads",
    ),
    "jax._src.pjit._get_cpp_global_cache": ("the table of compiled calls", _TABLE),
    "jax._src.pjit._get_fastpath_data": ("the table of compiled calls", _TABLE),
    "jax._src.pjit._infer_params": ("the table of compiled calls", _TABLE),
    "jax._src.pjit._run_python_pjit": ("the table of compiled calls", _TABLE),
    "jax._src.source_info_util.current": (
        "the line of the user's program, for equations that are written into a trace",
        _TRACE,
    ),
    "jax._src.tree_util.dispatch_registry": ("the table of compiled calls", _TABLE),
    "jax._src.util.weakref_cache_key_types": (
        "that a call of a Function does not keep its class alive",
        "none: JAX's caches keep parameters of 2048 equations",
    ),
    "jax.interpreters.ad.Zero": ("tangents that are zero, in rules of primitives", _RULES),
    "jax.interpreters.ad.instantiate_zeros": ("the same", _RULES),
    "jax.interpreters.ad.is_undefined_primal": ("what a rule is to transpose in", _RULES),
    "jax.interpreters.ad.primitive_jvps": ("rules of fad's primitives", _RULES),
    "jax.interpreters.ad.primitive_transposes": ("rules of fad's primitives", _RULES),
    "jax.interpreters.batching.fancy_primitive_batchers": ("rules of fad's primitives", _RULES),
    "jax.interpreters.mlir.lower_fun": ("how fad's primitives are compiled", _RULES),
    "jax.interpreters.mlir.register_lowering": ("how fad's primitives are compiled", _RULES),
}
# Attributes of JAX's objects that no class shows.
ATTRIBUTES: dict[str, tuple[str, str]] = {
    "_fun": ("the function of a `jax.jit`, for the table of compiled calls", _TABLE),
    "_jit_info": ("the options of a `jax.jit`, for the table of compiled calls", _TABLE),
    "frame.is_high": ("that a trace has got a hijax primitive, to be expanded", _TRACE),
    "requires_low": ("that a trace takes expanded programs only", _TRACE),
    "parent_trace": ("the trace around a trace", _IMPORT),
    "manual_axis_type": ("along which axes of `shard_map` a value varies", "none before JAX 0.11"),
    "to_lojax": ("the program that a hijax primitive stands for", "none: `expand` takes pytrees"),
    "ctx.manager": ("the settings under which an equation was traced", "`jax.core.eval_jaxpr`"),
    "debug_info.arg_names": ("which calls of a custom_jvp come of one call of it", "none"),
    "debug_info.func_name": ("whether a rule is the one that JAX makes for `custom_root`", "none"),
    "get_global": ("the value of a setting outside of all blocks", "as for its holder"),
    "get_bind_params": ("an equation of a program, evaluated as JAX does", "`jax.core.eval_jaxpr`"),
}


def check_version(version: str) -> None:
    """Refuse a version of JAX that is too old for fad, and warn of one that fad is not tested with.

    Raises:
        ImportError: it is too old.
    """
    digits = ["".join(c for c in part if c.isdigit()) for part in version.split(".")]
    number = tuple([int(d or 0) for d in digits[:3]])
    if number < MINIMUM_JAX:
        raise ImportError(
            f"fad works with {supported()}, found jax {version}: pip install '{supported()}'"
        )
    if number >= BELOW_JAX:
        warnings.warn(
            f"fad is tested with {supported()}, found jax {version}, which has all names that fad uses",
            stacklevel=2,
        )


def private(name: str) -> Any:
    """The object of JAX with this name, one of `PRIVATE_NAMES`.

    Raises:
        ImportError: this version of JAX does not have it.
    """
    assert name in PRIVATE_NAMES, name
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"fad uses {name}, which jax {jax.__version__} does not have; it works with "
            f"{supported()}: pip install '{supported()}'"
        ) from error


def supported() -> str:
    """The versions of JAX that are tested, as pip writes them."""
    least, below = (".".join(map(str, v)) for v in (MINIMUM_JAX, BELOW_JAX))
    return f"jax>={least},<{below}"
