"""What to write for a name that is not there: names of PyTorch, NumPy and JAX, and where else a name is.

Data for messages of errors alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

from fad.errors.suggestions import no_name_later


def by_name(table: dict[str, str]) -> dict[str, str]:
    """A table in which a key may be several names, as one with a row for each."""
    return {name: text for names, text in table.items() for name in names.split()}


# Where a name is looked for that a module does not have, in order. What lax has under a name is often less
# than what is meant by it: methods of Tensor come first.
_ARRAYS = """fad.numpy fad.nn fad.numpy.linalg fad.scipy.special fad.random fad.numpy.fft
fad.scipy.linalg""".split()
_OTHERS = """fad fad.autograd fad.func fad.scipy fad.extend fad.testing fad.autograd.graph
fad.autograd.functional fad.scipy.signal fad.nn.utils""".split()
_LAX = ["fad.lax", "fad.lax.linalg"]

# Names of functions that are no methods of Tensor, or not for what is asked. `x` is the array.
_FUNCTIONS = {
    "row_stack": "fad.numpy.vstack(arrays)",
    "copyto": "x[...] = value",
    "putmask": "x[mask] = value",
    "cdist": "fad.numpy.linalg.norm(x[:, None] - y[None], axis=-1)",
    "linear": "x @ weight.T + bias",
    "threshold": "fad.numpy.where(x > threshold, x, value)",
    "rrelu": "fad.nn.leaky_relu(x, slope)",
    "tanhshrink": "x - fad.numpy.tanh(x)",
    "normalize": "x / fad.numpy.linalg.norm(x, axis=dim, keepdims=True)",
    "cosine_similarity": "fad.numpy.vecdot(x, y) / (norm(x, axis=-1) * norm(y, axis=-1)), "
    "norm = fad.numpy.linalg.norm",
    "pairwise_distance": "fad.numpy.linalg.norm(x - y, axis=-1)",
    "bilinear": "fad.numpy.einsum('bi,oij,bj->bo', x, weight, y)",
    "embedding": "weight[index]",
    # layers, as functions
    """conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
    convolution""": (
        "fad.lax.conv_general_dilated(x, weight, strides, padding), or fad.lax.conv_transpose"
    ),
    """max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d""": "fad.numpy.max of windows: x.unfold(dim, size, step), or of a reshaped x",
    """avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d lp_pool1d lp_pool2d""": (
        "fad.numpy.mean of windows: x.unfold(dim, size, step), or of a reshaped x"
    ),
    "batch_norm group_norm instance_norm layer_norm local_response_norm": (
        "fad.nn.standardize(x, axis=axes) * weight + bias"
    ),
    "rms_norm": "x * fad.lax.rsqrt((x**2).mean(-1, keepdims=True) + eps) * weight",
    "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell": (
        "fad.lax.scan(cell, state, inputs), with the cell as a function"
    ),
    "dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout": (
        "fad.numpy.where(fad.random.bernoulli(key, 1 - p, shape), x / (1 - p), 0)"
    ),
    "interpolate upsample upsample_bilinear upsample_nearest": (
        "fad.from_jax of jax.image.resize(x, shape, method)"
    ),
    "grid_sample": "fad.scipy.ndimage.map_coordinates(x, coordinates, 1)",
    "multi_head_attention_forward scaled_dot_product_attention": (
        "fad.nn.dot_product_attention(query, key, value)"
    ),
    "pixel_shuffle pixel_unshuffle": "x.reshape(...).transpose(...).reshape(...)",
    "fold": "x.at[index].add(windows)",
    # losses
    "ctc_loss": "optax.ctc_loss, through fad.from_jax",
    # names that NumPy had
    "ascontiguousarray asfortranarray asanyarray": "fad.numpy.asarray(x)",
    "ndenumerate": "a loop over numpy.ndindex(x.shape), or fad.vmap",
    "shares_memory may_share_memory": "x.base, the Tensor that it is a view of",
    "errstate seterr": "fad.autograd.detect_anomaly(), or jax.config.update('jax_debug_nans', True)",
    "product": "fad.numpy.prod(x)",
    "cumproduct": "fad.numpy.cumprod(x)",
    "alltrue": "fad.numpy.all(x)",
    "sometrue": "fad.numpy.any(x)",
    "in1d": "fad.numpy.isin(x, y)",
    "trapz": "fad.numpy.trapezoid(y, x)",
    "float": "the dtype fad.numpy.float32 or fad.numpy.float64",
    "int": "the dtype fad.numpy.int32 or fad.numpy.int64",
    "Inf": "fad.numpy.inf",
    "NaN": "fad.numpy.nan",
    "matrix": "an array of two dimensions, and @ for products",
    "nditer": "a loop over x.reshape(-1), or fad.vmap",
    "random": "fad.random.normal(key, shape), fad.random.uniform(key, shape), ...",
    "loadtxt": "fad.tensor(numpy.loadtxt(path))",
    "genfromtxt": "fad.tensor(numpy.genfromtxt(path))",
    "savetxt": "numpy.savetxt(path, x.detach().numpy())",
    "savez_compressed": "numpy.savez_compressed(path, x.detach().numpy())",
}
_FUNCTIONS = by_name(_FUNCTIONS)

# Attributes and methods that a Tensor does not have, of PyTorch's tensors and of NumPy's arrays.
_ATTRIBUTES = {
    "is_cuda": "x.device.platform == 'gpu'",
    "get_device": "x.device",
    "pin_memory": "x itself: JAX has no pinned arrays",
    "stride strides": "x.shape: JAX arrays have no strides",
    "ctypes": "x.detach().numpy(), for code that reads the memory of NumPy's arrays",
    "data_ptr": "x.array.unsafe_buffer_pointer()",
    "storage untyped_storage storage_offset": "x.base, the Tensor that it is a view of",
    "flat": "x.reshape(-1)",
    "is_sparse": "False: a Tensor is dense",
    "to_sparse": "jax.experimental.sparse.BCOO.fromdense(x.array)",
    "layout": "x.shape: arrays have no layout in memory here",
    "share_memory_": "x itself: threads share Tensors",
    "apply_": "x[...] = fad.numpy.vectorize(f)(x)",
    "as_strided": "x.unfold(dim, size, step), or x[index]: arrays have no strides here",
    "bernoulli_": "x[...] = fad.random.bernoulli(key, p, x.shape)",
    "exponential_": "x[...] = fad.random.exponential(key, x.shape)",
    "geometric_": "x[...] = fad.random.geometric(key, p, x.shape)",
    "stft": "fad.scipy.signal.stft(x)",
    "triangular_solve": "fad.scipy.linalg.solve_triangular(a, b)",
    "itemset": "x[i] = value",
    "tobytes": "x.detach().numpy().tobytes()",
    "tofile": "x.detach().numpy().tofile(path)",
    "zero": "x.zero_() or fad.numpy.zeros_like(x)",
    "zero_grad": "x.grad = None",
    "normal_": "x[...] = fad.random.normal(key, x.shape)",
    "uniform_": "x[...] = fad.random.uniform(key, x.shape)",
    "register_backward_hook": "x.register_hook(hook)",
}
_ATTRIBUTES = _FUNCTIONS | by_name(_ATTRIBUTES)

_NO_LAYERS = (
    "fad.nn has the functions of jax.nn, and no layers: write a function of parameters, which are a "
    "dict of Tensors, copy the layers of docs/cookbook/layers.md, or use Equinox or Flax; "
    "fad.func.functional_call calls a module"
)

_KEY = "with key = fad.random.key(0); fad.random.split(key) gives new ones"

# What is special to one module.
_IN_MODULE = {
    "fad.nn": {
        "unfold": "x.unfold(dim, size, step), or fad.lax.conv_general_dilated_patches",
        "pdist": "fad.numpy.linalg.norm(x[i] - x[j], axis=-1), i, j = fad.numpy.triu_indices(len(x), 1)",
        "Parameter": "fad.tensor(data, requires_grad=True)",
        "functional": "fad.nn itself, which has the functions of jax.nn",
        "dropout": f"fad.numpy.where(fad.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0), {_KEY}",
    },
    "fad.scipy.special": {
        "psi": "fad.scipy.special.digamma(x)",
        "modified_bessel_i0": "fad.scipy.special.i0(x)",
        "modified_bessel_i1": "fad.scipy.special.i1(x)",
    },
    "fad.random": {
        "seed manual_seed default_rng": (
            "key = fad.random.key(0), and pass it on: there is no global generator"
        ),
        "rand random": f"fad.random.uniform(key, shape), {_KEY}",
        "randn standard_normal": f"fad.random.normal(key, shape), {_KEY}",
        "shuffle": f"fad.random.permutation(key, x), {_KEY}",
        "randperm": f"fad.random.permutation(key, n), {_KEY}",
    },
}
_IN_MODULE = {module: by_name(table) for module, table in _IN_MODULE.items()}

# Sentences for names of a module, and of those within it.
_ADVICE = {
    "fad.autograd": {
        "Variable variable": (
            "a Tensor is one: write fad.tensor(data, requires_grad=True), isinstance(x, fad.Tensor), and "
            "fad.autograd.queue_callback(f) for Variable._execution_engine.queue_callback(f)"
        ),
        "anomaly_mode": "write fad.autograd.detect_anomaly, or set_detect_anomaly",
        "is_multithreading_enabled set_multithreading_enabled": (
            "a backward pass runs in the thread that calls it, and several threads may each run one"
        ),
        "is_view_replay_enabled": "views are always replayed: JAX arrays have no strides",
        "enforce_grad_layout_policy": "arrays have no layout in memory here",
        "FunctionMeta InplaceFunction": (
            "write a subclass of fad.Function; ctx.mark_dirty says that an argument was changed in place"
        ),
        "BackwardCFunction": "write x.grad_fn, a Node; ctx is a fad.autograd.function.FunctionCtx",
        "traceable": "write is_traceable = True in the class of the Function",
        "custom_function_call": "write F.apply(...), which every transform takes",
        "emit_itt emit_nvtx": "write fad.autograd.emit_trace(), whose names are seen by the profilers of JAX",
        """ProfilerActivity ProfilerConfig ProfilerState ProfilerEvent KinetoStepTracker kineto_available
        profiler_legacy schedule tensorboard_trace_handler""": (
            "write with fad.autograd.profile() as p: p.table(), p.export_chrome_trace(path); "
            "jax.profiler.trace(directory) has what XLA does"
        ),
        "EventList FunctionEvent profiler_util": (
            "write p.key_averages() or p.events() of with fad.autograd.profile() as p"
        ),
        "load_nvprof parse_nvprof_trace": "write jax.profiler.trace(directory), for Perfetto and XProf",
        "DeviceType": "write x.device.platform",
        "region_activation_memory_budget": "write fad.checkpoint(f), or fad.autograd.save_on_cpu()",
    },
    "fad.errors": {
        "TracerBoolConversionError ConcretizationTypeError TracerArrayConversionError "
        "TracerIntegerConversionError NonConcreteBooleanIndexError": (
            "write fad.errors.HostValueError, which fad raises in their place; JAX's own are in jax.errors"
        ),
        "UnexpectedTracerError": (
            "write fad.errors.LevelError, which fad raises in its place; JAX's own is in jax.errors"
        ),
        "JaxRuntimeError KeyReuseError JAXTypeError JAXIndexError": "it is JAX's: write jax.errors",
        "OutOfMemoryError CUDAError AcceleratorError": (
            "devices are JAX's, and what goes wrong there is a jax.errors.JaxRuntimeError"
        ),
        "NotImplementedError RuntimeError TypeError ValueError": (
            "it is Python's; every error of fad is a fad.errors.FadError, which is a RuntimeError"
        ),
    },
}
_ADVICE = {module: by_name(table) for module, table in _ADVICE.items()}


def instead_in_module(module: str, name: str) -> str:
    """What to write for ``module.name``, which is not there; "" if that is not known.

    >>> instead_in_module("fad.numpy", "cat"), instead_in_module("fad.numpy", "relu")
    ('write fad.cat', 'write fad.nn.relu')
    """
    for outer, advice in _ADVICE.items():
        if f"{module}.".startswith(f"{outer}.") and name in advice:
            return advice[name]
    own = _IN_MODULE.get(module, {}).get(name)
    if own is None and module == "fad.nn" and name[0].isupper():
        return _NO_LAYERS
    known = own or _FUNCTIONS.get(name) or _where(name, _ARRAYS + _OTHERS)
    return _written(known or _method(name) or _where(name, _LAX))


def hints_of(module: str) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a module: the error for a name that is not there says what to write.

    >>> hints_of("fad.nn.utils")("clip_grad_norm")
    Traceback (most recent call last):
        ...
    AttributeError: fad.nn.utils has no 'clip_grad_norm': did you mean 'clip_grad_norm_'...
    """

    def get(name: str) -> NoReturn:
        def names() -> list[str]:
            found: list[str] = importlib.import_module(module).__all__
            return found

        raise no_name_later(module, name, lambda: instead_in_module(module, name), names)

    return get


def instead_of_attribute(name: str) -> str:
    """What to write for an attribute ``name`` that a Tensor, `x`, does not have; "" if that is not known.

    >>> instead_of_attribute("strides"), instead_of_attribute("one_hot")
    ('write x.shape: JAX arrays have no strides', 'write fad.nn.one_hot(x)')
    """
    where = _where(name, _ARRAYS + _LAX, callables=True)
    return _written(_ATTRIBUTES.get(name) or (where and f"{where}(x)"))


def _written(text: str) -> str:
    return text and f"write {text}"


def _where(name: str, modules: list[str], callables: bool = False) -> str:
    """The full name of what one of the modules has under a name, of callables alone; "" if none has any."""
    if name.startswith("_"):
        return ""
    for module in modules:
        found = getattr(importlib.import_module(module), name, None)
        if found is not None and (callable(found) or not callables):
            return found.__name__ if isinstance(found, ModuleType) else f"{module}.{name}"
    return ""


def _method(name: str) -> str:
    """How it is written as a method of Tensor; "" if there is none."""
    members = importlib.import_module("fad.core.tensor").Tensor
    if callable(getattr(members, name, None)):
        return f"x.{name}(...): it is a method of Tensor, which fad.asarray(x) is"
    plain = name.removesuffix("_copy")
    if plain != name and callable(getattr(members, plain, None)):
        return f"x.{plain}(...).clone()"
    return ""
