"""The only module that uses JAX names outside of JAX's documented API, and reads parameters of equations.

These names move and change between versions of JAX; the rest of fad sees one form of each.
`docs/private-names.md` says for what each is used, and which public way was tried. A version of JAX that is
too old, or that lacks one, is refused here, at import.
"""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

from fad.core import types

MINIMUM_JAX = (0, 10, 2)
BELOW_JAX = (0, 13)  # what is tested


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


def supported() -> str:
    """The versions of JAX that are tested, as pip writes them."""
    least, below = (".".join(map(str, v)) for v in (MINIMUM_JAX, BELOW_JAX))
    return f"jax>={least},<{below}"


def private(name: str) -> Any:
    """The object of JAX with this name.

    Raises:
        ImportError: this version of JAX does not have it.
    """
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"fad uses {name}, which jax {jax.__version__} does not have; it works with "
            f"{supported()}: pip install '{supported()}'"
        ) from error


_closed: Any = jax.make_jaxpr(lambda: 0)()
ClosedJaxpr: type[types.JaxProgram] = type(_closed)  # from JAX 0.11 on the same as `Jaxpr`
Jaxpr: type[types.JaxBody] = type(_closed.jaxpr)
Literal: type[types.JaxLiteral] = type(_closed.jaxpr.outvars[0])
_Primitive: Any = type(jax.lax.add_p)
array_type: type[jax.Array] = private("jax._src.array.ArrayImpl")
barrier_op = private("jax._src.lib.mlir.dialects.hlo.OptimizationBarrierOp")
float0 = jax.dtypes.float0
shaped_array = jax.core.ShapedArray
jvp_jaxpr = private("jax._src.interpreters.ad.jvp_jaxpr")
batch_jaxpr = private("jax._src.interpreters.batching.batch_jaxpr")
mapped_aval = private("jax._src.core.mapped_aval")
convert_constvars_jaxpr = private("jax._src.interpreters.partial_eval.convert_constvars_jaxpr")
set_current_trace = private("jax._src.core.set_current_trace")
_take_current_trace = private("jax._src.core.take_current_trace")
_trace_ctx = private("jax._src.core.trace_ctx")
_ProgramTrace = private("jax._src.interpreters.partial_eval.DynamicJaxprTrace")
_here = private("jax._src.source_info_util.current")


def current_trace() -> object:
    """The JAX trace that operations go to now; outside of all transforms, the one that runs them."""
    with _take_current_trace() as trace:
        return trace


@contextlib.contextmanager
def outside_trace(outer: object) -> Iterator[object]:
    """A block that computes in the trace ``outer`` instead of the current one, which it yields."""
    with _take_current_trace() as trace, set_current_trace(outer):
        yield trace


# Named axes

# ``with extended_axes([(name, size)]):`` names of axes beside those that JAX knows already.
extended_axes = private("jax._src.core.extend_axis_env_nd")
_NamedAxisEffect = private("jax._src.core.NamedAxisEffect")


def axis_environment() -> Hashable:
    """The named axes that JAX knows in this thread, now, as a key of caches."""
    environment: Hashable = _trace_ctx.axis_env
    return environment


def axis_sizes() -> tuple[tuple[Hashable, int], ...]:
    """Their names and sizes."""
    return tuple(_trace_ctx.axis_env.axis_sizes.items())


def axis_effects(names: Iterable[Hashable]) -> frozenset[object]:
    """The effects by which a program says that it names these axes."""
    return frozenset([_NamedAxisEffect(name) for name in names])


def other_effects(program: types.JaxBody) -> bool:
    """Whether a program has effects beside those of the axes that it names."""
    return any([not isinstance(e, _NamedAxisEffect) for e in program.effects])


_WITHOUT_EFFECT = ("ppermute", "pbroadcast")  # JAX forgets it there


def axes_named(jaxpr: types.JaxBody) -> frozenset[Hashable]:
    """The names of the axes around it that a program uses, as ``psum`` and ``axis_index`` do.

    Not those of which it has read the size alone, which is a number in it.

    >>> import fad, jax
    >>> program = jax.make_jaxpr(lambda x: jax.lax.psum(x, "i"), axis_env=[("i", 2)])(1.0)
    >>> sorted(fad.extend.axes_named(program.jaxpr))
    ['i']
    """
    names = {e.name for e in jaxpr.effects if isinstance(e, _NamedAxisEffect)}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _WITHOUT_EFFECT:
            named = eqn.params["axis_name"]
            names.update(named if isinstance(named, (tuple, list)) else (named,))
        for inner in programs(eqn):
            names |= axes_named(getattr(inner, "jaxpr", inner))
    return frozenset(names)


# Whether no transform of JAX is active, so that operations are executed at once.
at_top_level: Callable[[], bool] = private("jax._src.core.trace_state_clean")


# Primitives of fad's own

Zero = private("jax.interpreters.ad.Zero")
instantiate_zeros = private("jax.interpreters.ad.instantiate_zeros")
is_undefined_primal = private("jax.interpreters.ad.is_undefined_primal")
_jvps = private("jax.interpreters.ad.primitive_jvps")
_transposes = private("jax.interpreters.ad.primitive_transposes")
_batchers = private("jax.interpreters.batching.fancy_primitive_batchers")
_lower_fun = private("jax.interpreters.mlir.lower_fun")
_register_lowering = private("jax.interpreters.mlir.register_lowering")


class _OwnPrimitive(_Primitive):  # type: ignore[misc]
    """A JAX primitive of fad's own, with what the analyses of programs read of it.

    ``expensive``: its results are kept for backward passes. ``drawing``: from an equation to the program
    that it calls, if that draws random numbers. ``program``: to the program that it calls. ``loop``: to the
    `WhileParts` of the loop that it is.
    """

    multiple_results = True
    expensive = False
    drawing: Callable[[types.JaxEquation], types.JaxProgram | None] | None = None
    program: Callable[[types.JaxEquation], types.JaxProgram] | None = None
    loop: Callable[[types.JaxEquation], WhileParts] | None = None


def new_primitive(name: str, expensive: bool = False) -> Any:
    """A JAX primitive with several results; `define_primitive` gives it its rules."""
    p = _OwnPrimitive(name)
    p.expensive = expensive
    return p


# The types of parameters that JAX's caches refer to weakly.
_weak_types: set[type] = private("jax._src.util.weakref_cache_key_types")


def refer_weakly(kind: type) -> None:
    """Have JAX's caches not keep parameters of equations of this very type alive."""
    _weak_types.add(kind)


def flag_of(eqn: types.JaxEquation, name: str) -> Any:
    """What the primitive of an equation says of itself (see `_OwnPrimitive`); None of JAX's own."""
    return getattr(eqn.primitive, name, None)


def define_primitive(
    primitive: Any,
    run: types.ArrayFunction,
    avals: Callable[..., object],
    *,
    effects: Callable[..., object] | None = None,
    jvp: Callable[..., object] | None = None,
    transpose: Callable[..., object] | None = None,
    batch: Callable[..., object] | None = None,
    traced: types.ArrayFunction | None = None,
    lowering: Callable[..., object] | None = None,
) -> None:
    """Give a primitive its rules, in the forms that JAX has for them.

    Arguments:
        run: what it does with arrays and parameters.
        avals: the abstract results of abstract operands.
        effects: its effects for abstract operands and parameters, if it has some.
        batch: the rule of vmap, which gets JAX's data of the axis first.
        traced: what it does in compiled code, if that is not ``run``.
        lowering: a lowering rule in JAX's form, in place of ``traced``.
    """
    primitive.def_impl(run)
    if effects is None:
        primitive.def_abstract_eval(avals)
    else:
        primitive.def_effectful_abstract_eval(lambda *a, **p: (avals(*a, **p), effects(*a, **p)))
    _register_lowering(primitive, lowering or _lower_fun(traced or run, multiple_results=True))
    for table, rule in ((_jvps, jvp), (_transposes, transpose), (_batchers, batch)):
        if rule is not None:
            table[primitive] = rule


_table = private("jax._src.lib._jax.pjit")
_registry = private("jax._src.tree_util.dispatch_registry")
_CacheKeys = private("jax._src.interpreters.pxla.JitGlobalCppCacheKeys")
_shard_arg = private("jax._src.interpreters.pxla.cc_shard_arg")
_global_cache = private("jax._src.pjit._get_cpp_global_cache")
_fastpath_data = private("jax._src.pjit._get_fastpath_data")
_infer_params = private("jax._src.pjit._infer_params")
_run_pjit = private("jax._src.pjit._run_python_pjit")


def call_table(
    name: str,
    find: Callable[..., Any],
    disabled: Callable[..., object],
    forgotten: Callable[[], None],
) -> Any:
    """JAX's C++ cache of compiled calls, for programs that fad finds itself.

    ``table(*args, **kwargs)`` looks the call up as ``jax.jit`` does: by the structure of its arguments,
    their avals and shardings, and JAX's settings. `fad.compile.jit` uses it.

    Arguments:
        name: of the function, as profilers show it.
        find: ``find(args, kwargs)`` is called on a cache miss. It returns a function made by
            ``jax.jit``, arrays that are passed to it before the arguments, the leaves of the arguments,
            and a function from the flat list of outputs to the result. If it raises, the caller gets
            the exception, and JAX calls it again for each call with the same key until
            ``table._clear_cache()``.
        disabled: called with the arguments, in place of everything else, under ``jax.disable_jit``.
        forgotten: called after a call that JAX cannot cache.
    """

    def miss(*args: object, **kwargs: object) -> tuple[types.PyTree, object, bool]:
        jitted, before, leaves, join = find(args, kwargs)
        operands = (*before, *leaves)
        params, flat = _infer_params(jitted._fun, jitted._jit_info, operands, {})
        _, outs, _, flat, jaxpr, executable, profiler, constants = _run_pjit(
            params, flat, jitted._fun, operands, {}
        )
        result = join(outs)
        count = len(before)
        cached = _fastpath_data(
            executable,
            jax.tree.structure(result),
            flat[count:],
            outs,
            jaxpr.effects,
            jaxpr.consts,
            profiler,
            [*constants, *flat[:count]],
        )
        if cached is None:
            forgotten()
        return result, cached, False

    return _table(
        name,
        lambda *args, **kwargs: disabled(
            *args, **kwargs
        ),  # JAX identifies a table by this function
        miss,
        (),
        (),
        _CacheKeys(),
        _registry,
        _shard_arg,
        _global_cache(False),
    )


def is_tracing() -> bool:
    """Whether operations are now traced into a program that executes later, as under ``jax.jit``.

    False under ``jax.grad`` and ``jax.vmap`` alone: there, Python runs once for each execution.
    """
    if at_top_level():
        return False
    with _take_current_trace() as trace:
        while trace is not None:
            if type(trace) is _ProgramTrace:
                return True
            trace = getattr(trace, "parent_trace", None)
    return False


# The settings of JAX, and its current mesh and axes, that a trace depends on; hashable.
trace_context: Callable[[], Hashable] = private("jax._src.config.trace_context")


_settings = private("jax._src.config.config._value_holders")
_nans, _infs, _x64 = [_settings[f"jax_{n}"] for n in ("debug_nans", "debug_infs", "enable_x64")]


def checks_numbers() -> bool:
    """Whether JAX looks at the result of each operation for NaN or infinity, in this thread, now."""
    return bool(_nans.value or _infs.value)


def x64_enabled() -> bool:
    """Whether 64-bit types are on, in this thread, now."""
    return bool(_x64.value)


def global_settings() -> dict[str, object]:
    """JAX's settings outside of all blocks, by name."""
    return {
        n: h.get_global() if hasattr(h, "get_global") else h.value for n, h in _settings.items()
    }


_tokens = private("jax._src.dispatch.runtime_tokens")


def forget_failed_effects() -> None:
    """Have the next ordered callback of this thread wait for none before it.

    On a GPU a callback that raises makes all that wait for it fail, in later calls too (JAX 0.12: in one).
    """
    _tokens.clear()


def keep_compiled(folder: str) -> None:
    """Have JAX keep all that it compiles in this folder, and look for it there, from now on."""
    if folder != global_settings()["jax_compilation_cache_dir"]:
        compilation_cache.reset_cache()  # JAX opens the folder once
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def varying_axes(aval: types.Aval) -> frozenset[Hashable]:
    """The names of the ``shard_map`` axes along which a value differs between devices."""
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset() if kind is None else frozenset(kind.varying)


def varying_alike(arrays: Sequence[types.Array]) -> list[types.Array]:
    """The arrays, made to vary along all ``shard_map`` axes along which one of them does.

    JAX's own primitives do this too; its transpose sums a gradient over the devices.
    """
    every = [varying_axes(jax.typeof(x)) for x in arrays]
    axes: frozenset[Hashable] = frozenset().union(*every)
    return [
        jax.lax.pcast(x, tuple(axes - has), to="varying") if axes - has else x
        for x, has in zip(arrays, every, strict=True)
    ]


def zeros(aval: Any) -> Any:
    """Zeros of an abstract value: its weak type, explicit sharding, the axes that it varies along."""
    sharded = any([axis is not None for axis in aval.sharding.spec])
    if varying_axes(aval) or aval.weak_type or (sharded and is_tracing()):
        return instantiate_zeros(Zero(aval))
    return jax.numpy.zeros(aval.shape, aval.dtype)


def as_weak(x: types.Array) -> types.Array:
    """An array as one of weak type: it takes the type of what it is computed with."""
    weak: types.Array = jax.lax.convert_element_type_p.bind(
        x, new_dtype=x.dtype, weak_type=True, sharding=None
    )
    return weak


def is_extended(dtype: types.DType) -> bool:
    """Whether it is a dtype of JAX alone, as that of random keys is."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.extended))


_dce_jaxpr = private("jax._src.interpreters.partial_eval.dce_jaxpr")


def without_unused(closed: types.JaxProgram) -> types.JaxProgram:
    """A closed jaxpr without the equations that its outputs do not need; its inputs stay."""
    needed, _ = _dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(needed, closed.consts)


def part_for(closed: types.JaxProgram, output: int) -> tuple[types.JaxProgram, list[bool]]:
    """The part of a program that computes one output, and which inputs it takes."""
    needed = [k == output for k in range(len(closed.jaxpr.outvars))]
    jaxpr, used = _dce_jaxpr(closed.jaxpr, needed)
    return ClosedJaxpr(jaxpr, closed.consts), used


private("jax._src.interpreters.partial_eval.DynamicJaxprTrace.new_arg")
private("jax._src.interpreters.partial_eval.DynamicJaxprTrace.to_jaxpr_tracer")
_canonicalize = private("jax._src.dtypes.canonicalize_value")
_inline = private("jax._src.interpreters.partial_eval.inline_jaxpr_into_trace")
check_version(jax.__version__)  # it has all these names


def stand_in(aval: types.Aval) -> Any:
    """A tracer that stands for a value which is not known yet.

    It belongs to a trace that never becomes a program. To any other trace it is a constant.
    """
    if not isinstance(aval, shaped_array):
        aval = shaped_array(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
    return _ProgramTrace(None).new_arg(aval, _here())


def current_program() -> Any:
    """The current trace, if it only records equations into a program (as `jax.jit` does); else None."""
    trace = _trace_ctx.trace
    return trace if type(trace) is _ProgramTrace else None


def write_equations(trace: Any, closed: Any, values: Sequence[types.Operand]) -> list[types.Array]:
    """Write a jaxpr, on ``values``, into the program that `current_program` found."""
    if closed.jaxpr.is_high:  # it has a hijax primitive, which JAX expands before XLA compiles
        if trace.requires_low:
            return run_jaxpr(closed, *values)
        trace.frame.is_high = True
    source = _here()
    tracers: list[jax.core.Tracer[Any]] = [
        trace.to_jaxpr_tracer(v if isinstance(v, jax.core.Tracer) else _canonicalize(v), source)
        for v in values
    ]
    return list(_inline(trace, source, closed.jaxpr, closed.consts, *tracers))


# What is read off programs and their equations


def stack_of(eqn: types.JaxEquation) -> Any:
    """The call stack at which an equation was traced, as a traceback; None if JAX has not kept it."""
    traceback = eqn.source_info.traceback
    return None if traceback is None else traceback.as_python_traceback()


def run_jaxpr(closed: Any, *values: types.Operand) -> list[types.Array]:
    """The results of a closed jaxpr.

    >>> import fad, jax
    >>> fad.extend.run_program(jax.make_jaxpr(lambda x: (x, 2.0 * x))(1.0), 3.0)
    [3.0, Array(6., dtype=float32, weak_type=True)]
    """
    return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *values)


def evaluate_equation(
    eqn: types.JaxEquation, inputs: Sequence[types.Operand], **other: object
) -> list[types.Array]:
    """Bind one equation of a jaxpr again, on ``inputs``, with ``other`` parameters in place of its own.

    >>> import fad, jax, jax.numpy as jnp
    >>> (eqn,) = jax.make_jaxpr(jnp.cumsum)(jnp.ones(3)).eqns
    >>> inner = fad.extend.called(eqn).eqns[0]
    >>> fad.extend.evaluate_equation(inner, [jnp.ones(3)])[0].tolist()
    [1.0, 2.0, 3.0]
    """
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params({**eqn.params, **other}))
    return list(out) if eqn.primitive.multiple_results else [out]


def with_parameters(eqn: types.JaxEquation, **other: object) -> types.JaxEquation:
    """An equation with ``other`` parameters in place of its own."""
    return eqn.replace(params={**eqn.params, **other})


def programs(eqn: types.JaxEquation) -> Iterator[Any]:
    """The programs in an equation: those among its parameters, or what its hijax primitive stands for.

    >>> import fad, jax
    >>> branch = lambda x: jax.lax.cond(x > 0.0, lambda: x, lambda: -x)
    >>> eqn = jax.make_jaxpr(branch)(1.0).eqns[-1]
    >>> len(list(fad.extend.programs(eqn)))
    2
    """
    if eqn.primitive.name == "call_hi_primitive":
        expand = functools.partial(eqn.primitive.to_lojax, **eqn.params)
        yield jax.make_jaxpr(expand)(*[v.aval for v in eqn.invars])
    for value in eqn.params.values():
        several = value if isinstance(value, (tuple, list)) else (value,)
        yield from [v for v in several if isinstance(v, (ClosedJaxpr, Jaxpr))]


def called(eqn: types.JaxEquation) -> types.JaxProgram | None:
    """The jaxpr that an equation calls with its last operands, and does nothing else; None if there is none.

    That of a nested ``jax.jit``; and that for everywhere else of a branch that is for Pallas kernels alone.

    >>> import fad, jax
    >>> (eqn,) = jax.make_jaxpr(jax.jit(lambda x: x * 2.0))(1.0).eqns
    >>> [inner.primitive.name for inner in fad.extend.called(eqn).eqns]
    ['mul']
    """
    if eqn.primitive.name == "jit":
        closed = eqn.params.get("jaxpr")
        return closed if isinstance(closed, ClosedJaxpr) else None
    if eqn.params.get("branches_platforms") == (("mosaic",), None):
        branch: types.JaxProgram | None = eqn.params["branches"][-1]
        return branch
    return None


def computed_by(eqn: types.JaxEquation) -> types.JaxProgram | None:
    """The program that a call with rules of its own computes (`has_own_rules`); None for other equations."""
    if not has_own_rules(eqn):
        return None
    program: Callable[[types.JaxEquation], types.JaxProgram] | None = flag_of(eqn, "program")
    if program is not None:
        return program(eqn)
    closed: types.JaxProgram = eqn.params["call" if "call" in eqn.params else "call_jaxpr"]
    return closed


def has_own_rules(eqn: types.JaxEquation) -> bool:
    """Whether it is a call with rules of its own: of a custom_jvp, custom_vjp, custom_vmap or a Function."""
    return eqn.primitive.name in _CUSTOM or flag_of(eqn, "program") is not None


_CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vmap_call")


def telling_parameters(eqn: types.JaxEquation) -> list[tuple[str, object]]:
    """The parameters of an equation that say what it is, by name: not the function of a ``reduce`` whose
    program is there too.
    """
    told = "computation" if "jaxpr" in eqn.params else ""
    return sorted([(name, value) for name, value in eqn.params.items() if name != told])


def has_rule_made_anew(eqn: types.JaxEquation) -> bool:
    """Whether the derivative of a call is a function that JAX makes for it, so that no two are equal: that of
    ``custom_root``, a custom_jvp or, from JAX 0.11 on, a hijax primitive.
    """
    rule = getattr(eqn.params.get("jvp_jaxpr_fun"), "debug_info", None)
    hijax = type(eqn.params.get("_prim")).__name__
    return getattr(rule, "func_name", "") == "_root_jvp" or hijax in (
        "CustomRoot",
        "_RootLinearMap",
    )


def defined_rule(eqn: types.JaxEquation) -> object:
    """What the calls of a custom_jvp share that come of one call of it; None for other calls, and where
    JAX makes the rule for each call.

    JAX wraps the rule anew each time that a program is evaluated, but passes the names of its arguments on.
    """
    if eqn.primitive.name != "custom_jvp_call" or has_rule_made_anew(eqn):
        return None
    return eqn.params["jvp_jaxpr_fun"].debug_info.arg_names


class ScanParts(NamedTuple):
    """A ``scan``: its body on constants, carry and elements, how many of the first two, and options."""

    body: types.JaxProgram
    constants: int
    carried: int
    length: int
    reverse: bool
    unroll: int | bool


def scan_parts(eqn: types.JaxEquation) -> ScanParts:
    """What an equation of ``scan`` says.

    >>> import fad, jax, jax.numpy as jnp
    >>> total = lambda xs: jax.lax.scan(lambda c, x: (c + x, c), 0.0, xs)
    >>> eqn = jax.make_jaxpr(total)(jnp.ones(3)).eqns[-1]
    >>> scan = fad.extend.scan_parts(eqn)
    >>> scan.constants, scan.carried, scan.length
    (0, 1, 3)
    """
    p = eqn.params
    if "num_carry" in p:
        counts = p["num_consts"], p["num_carry"]
    else:  # from JAX 0.11 on
        constants, carried, _ = map(len, p["ft_in"].unpack())
        counts = constants, carried
    return ScanParts(p["jaxpr"], *counts, p["length"], p["reverse"], p["unroll"])


class WhileParts(NamedTuple):
    """A ``while``: condition and body, on constants of their own and the carry."""

    cond: types.JaxProgram
    body: types.JaxProgram
    cond_count: int
    body_count: int


def while_parts(eqn: types.JaxEquation) -> WhileParts:
    """What an equation of ``while`` says.

    >>> import fad, jax
    >>> halved = lambda x: jax.lax.while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)
    >>> (eqn,) = jax.make_jaxpr(halved)(8.0).eqns
    >>> [inner.primitive.name for inner in fad.extend.while_parts(eqn).body.eqns]
    ['div']
    """
    p = eqn.params
    return WhileParts(p["cond_jaxpr"], p["body_jaxpr"], p["cond_nconsts"], p["body_nconsts"])


def loop_parts(eqn: types.JaxEquation) -> WhileParts | None:
    """What an equation says that is a ``while``, or one of fad's that is such a loop; None for others."""
    loop: Callable[[types.JaxEquation], WhileParts] | None = flag_of(eqn, "loop")
    if loop is not None:
        return loop(eqn)
    return while_parts(eqn) if eqn.primitive.name == "while" else None


def branches(eqn: types.JaxEquation) -> Sequence[types.JaxProgram]:
    """The branches of a ``cond``, on all operands but the first, which chooses one.

    >>> import fad, jax
    >>> branch = lambda x: jax.lax.cond(x > 0.0, lambda: x, lambda: -x)
    >>> eqn = jax.make_jaxpr(branch)(1.0).eqns[-1]
    >>> [len(program.eqns) for program in fad.extend.branches(eqn)]
    [1, 0]
    """
    closed: Sequence[types.JaxProgram] = eqn.params["branches"]
    return closed


class SliceParts(NamedTuple):
    """A ``slice``: where it begins, how far it reaches from there, and in which strides."""

    starts: Sequence[int]
    spans: Sequence[int]
    strides: Sequence[int]


def slice_parts(eqn: types.JaxEquation) -> SliceParts:
    """What an equation of ``slice`` says."""
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    spans = [b - a for a, b in zip(starts, limits, strict=True)]
    return SliceParts(starts, spans, eqn.params["strides"] or (1,) * len(spans))


_AXES, _AXIS = ("axes",), ("axis",)
_SCATTER = ("dimension_numbers", "mode")
_CONVOLUTION = """dimension_numbers window_strides padding lhs_dilation rhs_dilation feature_group_count
    batch_group_count"""
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "concatenate": ("dimension",),
    "conv_general_dilated": tuple(_CONVOLUTION.split()),
    "dot_general": ("dimension_numbers",),
    "gather": ("dimension_numbers", "slice_sizes"),
    "integer_pow": ("y",),
    "slice": ("start_indices", "limit_indices", "strides"),
    "tile": ("reps",),
    "transpose": ("permutation",),
    **dict.fromkeys(("reshape", "rev", "squeeze"), ("dimensions",)),
    **dict.fromkeys("cumlogsumexp cummax cummin cumprod cumsum stack".split(), _AXIS),
    **dict.fromkeys("reduce_sum reduce_max reduce_min reduce_prod argmax argmin".split(), _AXES),
    **dict.fromkeys("reduce_and reduce_or".split(), _AXES),
    **{f"scatter{x}": _SCATTER for x in ("", "-add", "-max", "-min", "-mul")},
}


def rules_of(eqn: types.JaxEquation) -> Any:
    """The rules of a call of a Function; None for other equations."""
    return eqn.params.get("rules")


def parameters(eqn: types.JaxEquation) -> tuple[Any, ...]:
    """The parameters of an equation that fad reads, in the order of ``_PARAMETERS``.

    >>> import fad, jax, jax.numpy as jnp
    >>> (eqn,) = jax.make_jaxpr(lambda x: jax.lax.transpose(x, (1, 0)))(jnp.ones((2, 3))).eqns
    >>> fad.extend.parameters(eqn)
    ((1, 0),)
    """
    return tuple([eqn.params[name] for name in _PARAMETERS[eqn.primitive.name]])
