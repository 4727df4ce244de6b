"""What to write for a name that fad does not have: names of PyTorch, NumPy and JAX, and where else a name is.

The library asks by `fad.errors.missing_names` when the text of an error is read.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import NoReturn

from fad.errors import ArgumentError


def by_name(table: dict[str, str]) -> dict[str, str]:
    """A table in which a key may be several names, as one with a row for each."""
    return {name: text for names, text in table.items() for name in names.split()}


# The modules in which a name is looked for that another module does not have, in this order. Methods of
# Tensor come before `_LAX`: a function of lax often does less than what its name means elsewhere.
_ARRAYS = """fad.numpy fad.nn fad.numpy.linalg fad.scipy.special fad.random fad.numpy.fft
fad.scipy.linalg""".split()
_OTHERS = """fad fad.autograd fad.func fad.scipy fad.extend fad.testing fad.autograd.graph
fad.autograd.functional fad.scipy.signal fad.nn.utils""".split()
_LAX = ["fad.lax", "fad.lax.linalg"]

# Functions of NumPy that write to their argument `x`, which those of JAX refuse, and what stands for them.
WRITES = {
    "fill_diagonal": "x.fill_diagonal_(value)",
    "place": "x[mask] = values",
    "put": "x.put_(indices, values), or x.clone().put_(indices, values) for a new Tensor",
    "put_along_axis": "x.scatter_(axis, indices, values)",
}


def instead_of_writing(name: str) -> str:
    """What to write for a function of NumPy that writes to its argument, `x`; "" for others."""
    if name == "at":
        return "x.index_put_((indices,), values, accumulate=True) for add, or x = x.at[indices].add(values)"
    return WRITES.get(name, "")


# Names of functions that are no methods of Tensor, or not for what is asked. `x` is the array.
_FUNCTIONS = WRITES | {
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
        "fad.nn.dot_product_attention(q, k, v).swapaxes(1, 2), with x.swapaxes(1, 2) of each argument: it "
        "has the heads behind the positions"
    ),
    "pixel_shuffle": (
        "x.reshape(b, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(b, c, h * r, w * r)"
    ),
    "pixel_unshuffle": (
        "x.reshape(b, c, h, r, w, r).transpose(0, 1, 3, 5, 2, 4).reshape(b, c * r * r, h, w)"
    ),
    "softmin": "fad.nn.softmax(-x)",
    "softshrink": "x - fad.numpy.clip(x, -lambd, lambd)",
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
    "flat": "x.reshape(-1), or x.fill_diagonal_(value) for numpy.fill_diagonal",
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
    "multinomial": "fad.random.categorical(key, fad.numpy.log(x), shape=(n,))",
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

_PAD = "fad.numpy.pad(x, ((0, 0), (left, right))), with a pair for each axis, the first axis first"

_WITH_KEY = "with key = fad.random.key(0); fad.random.split(key) gives new ones"

# What is special to one module.
_IN_MODULE = {
    "fad.nn": {
        "unfold": "x.unfold(dim, size, step), or fad.lax.conv_general_dilated_patches",
        "pdist": "fad.numpy.linalg.norm(x[i] - x[j], axis=-1), i, j = fad.numpy.triu_indices(len(x), 1)",
        "Parameter": "fad.tensor(data, requires_grad=True)",
        "pad": _PAD,
        "functional": "fad.nn itself, which has the functions of jax.nn",
        "dropout": f"fad.numpy.where(fad.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0), {_WITH_KEY}",
    },
    "fad.extend": {
        "declared_sparsity": "fad.extend.function_call(eqn), whose function.sparsity is the rule",
    },
    "fad.nn.utils": {
        "rnn pad_sequence pack_padded_sequence pad_packed_sequence pack_sequence": (
            "fad.numpy.pad of each, fad.stack, and fad.numpy.where with a mask of the lengths"
        ),
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
        "rand random": f"fad.random.uniform(key, shape), {_WITH_KEY}",
        "randn standard_normal": f"fad.random.normal(key, shape), {_WITH_KEY}",
        "shuffle": f"fad.random.permutation(key, x), {_WITH_KEY}",
        "randperm": f"fad.random.permutation(key, n), {_WITH_KEY}",
    },
}
_IN_MODULE = {module: by_name(table) for module, table in _IN_MODULE.items()}

# Of HIPS autograd: at the top of fad, and in fad.autograd.
_AUTOGRAD = {
    "elementwise_grad egrad": "write fad.vmap(fad.grad(f)), or fad.grad(lambda x: f(x).sum())",
    "deriv holomorphic_grad": "write fad.jacfwd(f)",
    "make_vjp vector_jacobian_product tensor_jacobian_product": "write y, vjp = fad.vjp(f, x)",
    "make_jvp make_jvp_reversemode jacobian_vector_product": "write fad.jvp(f, (x,), (v,))",
    "make_hvp hessian_vector_product hessian_tensor_product": "write fad.hvp(f, (x,), (v,))[1][0]",
    "make_ggnvp": "write fad.ggnvp(model, loss, params, v)",
    "grad_and_aux": "write fad.grad(f, has_aux=True)",
    "multigrad multigrad_dict grad_named": (
        "write fad.grad(f, argnums): dicts and tuples are differentiated as they are"
    ),
    "primitive defvjp defjvp": "write a fad.Function, or @fad.custom_rules",
    "misc": "write jax.flatten_util.ravel_pytree for misc.flatten, and optax for misc.optimizers",
    "test_util": "write fad.testing.gradcheck(f, (x,))",
}

# Sentences for names of a module, and of those within it.
_ADVICE = {
    "fad.autograd": {
        **_AUTOGRAD,
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
    of_module = _IN_MODULE.get(module, {}).get(name)
    if of_module is None and module == "fad.nn" and name[0].isupper():
        return _NO_LAYERS
    text = of_module or _FUNCTIONS.get(name) or _where(name, _ARRAYS + _OTHERS)
    return _written(text or _method(name) or _where(name, _LAX))


def instead_of_attribute(name: str) -> str:
    """What to write for an attribute ``name`` that a Tensor, `x`, does not have; "" if that is not known.

    >>> instead_of_attribute("strides"), instead_of_attribute("one_hot")
    ('write x.shape: JAX arrays have no strides', 'write fad.nn.one_hot(x)')
    """
    where = _where(name, _ARRAYS + _LAX, callables=True)
    args = "key, ..." if where.startswith("fad.random.") else "x"
    return _written(_ATTRIBUTES.get(name) or (where and f"{where}({args})"))


def _written(text: str) -> str:
    return text and f"write {text}"


def _where(name: str, modules: list[str], callables: bool = False) -> str:
    """The full name of what one of the modules has under a name, of callables alone; "" if none has any."""
    if name.startswith("_"):
        return ""
    for module in modules:
        value = getattr(importlib.import_module(module), name, None)
        if value is not None and (callable(value) or not callables):
            return value.__name__ if isinstance(value, ModuleType) else f"{module}.{name}"
    return ""


def _method(name: str) -> str:
    """How it is written as a method of Tensor; "" if there is none."""
    members = importlib.import_module("fad").Tensor
    if callable(getattr(members, name, None)):
        return f"x.{name}(...): it is a method of Tensor, which fad.asarray(x) is"
    plain = name.removesuffix("_copy")
    if plain != name and callable(getattr(members, plain, None)):
        return f"x.{plain}(...).clone()"
    return ""


# Names that are not at the top of fad: what to write instead.

_KEY = "there is no global generator of random numbers; they come from a key: "
_DRAWS = {
    "rand": "fad.random.uniform(key, shape)",
    "rand_like": "fad.random.uniform(key, x.shape, x.dtype)",
    "randn": "fad.random.normal(key, shape)",
    "randn_like": "fad.random.normal(key, x.shape, x.dtype)",
    "randint": "fad.random.randint(key, shape, low, high)",
    "randint_like": "fad.random.randint(key, x.shape, low, high)",
    "randperm": "fad.random.permutation(key, n)",
    "normal": "mean + std * fad.random.normal(key, shape)",
    "bernoulli": "fad.random.bernoulli(key, p, shape)",
    "multinomial": "fad.random.categorical(key, fad.numpy.log(weights), shape=(n,))",
    "poisson": "fad.random.poisson(key, rate)",
    "dropout": "fad.random.bernoulli(key, 1 - p, x.shape)",
}
_WINDOWS = {"hann": "hanning", "kaiser": "kaiser"} | {
    name: name for name in ("bartlett", "blackman", "hamming")
}
# Of names that PyTorch and `fad.numpy` have, those that mean different things.
_OTHER_MEANING = {
    "clone": "write x.clone()",
    "flatten": "write x.flatten(start_dim)",
    "max min": (
        "write x.max(dim=dim) for values and indices, fad.numpy.max(x) for one number, fad.numpy.maximum "
        "for two Tensors; so min"
    ),
    "median nanmedian": (
        "write x.median(dim=dim) for values and indices: fad.numpy.median is the mean of the middle two"
    ),
    "meshgrid": "write fad.numpy.meshgrid(x, y, indexing='ij'): the default is 'xy', as in NumPy",
    "pad": f"write {_PAD}",
    "nonzero": "write fad.numpy.argwhere(x), or fad.numpy.nonzero(x) for a tuple of indices",
    "norm": "write fad.numpy.linalg.norm(x), or of x.reshape(-1): of a matrix an order means another norm",
    "repeat_interleave": "write x.repeat_interleave(n), or fad.numpy.repeat(x, n, axis)",
    "sort": "write x.sort(dim=dim) for values and indices, or fad.numpy.sort(x)",
    "split split_with_sizes": (
        "write x.split(split_size=n), or [n, m] for n: fad.numpy.split takes a number of parts, or indices"
    ),
    "std": "write x.std(unbiased=True), or x.std(dim=dim): fad.numpy.std(x) divides by n, not by n - 1",
    "var": "write x.var(unbiased=True), or x.var(dim=dim): fad.numpy.var(x) divides by n, not by n - 1",
    "std_mean": "write x.std(dim=dim), x.mean(dim=dim)",
    "var_mean": "write x.var(dim=dim), x.mean(dim=dim)",
    "svd": "write fad.numpy.linalg.svd(x, full_matrices=False), whose last result is V.mH",
    "transpose": "write x.swapaxes(dim0, dim1): fad.numpy.transpose takes all axes",
}
_INSTEAD = {
    **{
        f"{name}_window": f"write fad.numpy.{twin}({'n + 1, 12.0' if name == 'kaiser' else 'n + 1'})[:-1], "
        "which is periodic, as in PyTorch"
        for name, twin in _WINDOWS.items()
    },
    **_OTHER_MEANING,
    **_AUTOGRAD,
    """are_deterministic_algorithms_enabled get_deterministic_debug_mode
    set_deterministic_debug_mode use_deterministic_algorithms""": (
        "JAX's programs are deterministic on the CPU; see XLA_FLAGS for GPUs"
    ),
    "get_num_threads set_num_threads get_num_interop_threads set_num_interop_threads": (
        "threads are XLA's; see XLA_FLAGS"
    ),
    """channels_last channels_last_3d contiguous_format preserve_format memory_format strided
    layout""": "arrays have no layout in memory here",
    "accelerator mps cuda": "devices are JAX's: jax.devices(), x.to(device)",
    "as_strided": "write x.unfold(dim, size, step), or x[index]: arrays have no strides here",
    "amp autocast get_autocast_dtype": "write x.astype(fad.bfloat16) where lower precision is wanted",
    "backends": "settings are JAX's: jax.config",
    "bucketize": "write fad.numpy.searchsorted(boundaries, x), with side='right' for right=True",
    "cartesian_prod": "write fad.stack([a.reshape(-1) for a in fad.numpy.meshgrid(x, y, indexing='ij')], -1)",
    "chain_matmul": "write fad.numpy.linalg.multi_dot(matrices)",
    "combinations": "write x[fad.numpy.array(list(itertools.combinations(range(len(x)), r)))]",
    "constant_pad_nd": "write fad.numpy.pad(x, widths, constant_values=value)",
    "cpu": "devices are JAX's: jax.devices('cpu'), x.to(device)",
    "cumulative_trapezoid": "write fad.numpy.cumsum(dx * (y[1:] + y[:-1]) / 2)",
    "data": "batches are arrays; loaders of PyTorch or of grain give them to fad.tensor",
    "distributed": "write fad.jit with shardings, and jax.distributed for several processes",
    "distributions": "fad.random draws from them, and fad.scipy.stats has their densities",
    "export": "write jax.export.export(jax.jit(fad.to_jax(f)))",
    "fork": "write concurrent.futures, or fad.jit: JAX's calls do not wait for their results",
    "frobenius_norm": "write fad.numpy.linalg.norm(x)",
    "fx": "write fad.make_jaxpr(f)(x), or fad.viz of a graph",
    "get_default_device": "write jax.devices()[0]; jax.default_device(device) sets it",
    "get_default_dtype": "write fad.zeros(()).dtype: float32, or float64 with jax_enable_x64",
    "get_float32_matmul_precision": "write jax.config.jax_default_matmul_precision",
    "get_device": "write x.device",
    "is_conj": "conjugates are computed at once, so it is always False",
    "is_neg": "negatives are computed at once, so it is always False",
    "lu": "write fad.scipy.linalg.lu(x), which gives P, L and U, or lu_factor(x)",
    "multiprocessing": "write threads, which may share Tensors and graphs, or jax.distributed",
    "newaxis": "write None, or fad.numpy.newaxis",
    "nuclear_norm": "write fad.numpy.linalg.norm(x, 'nuc')",
    "ops": "an operation of your own is made by fad.extend.operation; for jax.ops.segment_sum write "
    "x.index_add(0, segments, values)",
    "nested_tensor": "write a list of Tensors, or one that is padded (fad.numpy.pad), and a mask",
    "overrides": "a Tensor is not subclassed; fad.extend has levels and operations",
    "pca_lowrank": "write fad.numpy.linalg.svd(x - x.mean(0), full_matrices=False)",
    "pdist": "write fad.numpy.linalg.norm(x[i] - x[j], axis=-1), i, j = fad.numpy.triu_indices(n, 1)",
    "polar": "write r * fad.numpy.exp(1j * angle)",
    "quantize_per_tensor": "there are no quantized Tensors; write fad.numpy.round(x / scale) + zero_point",
    "rsub": "write y - x",
    "set_default_device": "write jax.config.update('jax_default_device', device)",
    "set_float32_matmul_precision": "write jax.config.update('jax_default_matmul_precision', 'high')",
    "sparse_coo_tensor": "write jax.experimental.sparse.BCOO((data, indices), shape=shape)",
    "sparse_csr_tensor": "write jax.experimental.sparse.BCSR((data, columns, pointers), shape=shape)",
    "segment_reduce segment_sum": "write x.index_add(0, segments, values), or index_reduce",
    "Stream Event": "there are no streams: calls of JAX do not wait, and x.array.block_until_ready() does",
    "svd_lowrank": "write fad.numpy.linalg.svd(x, full_matrices=False)",
    "symeig": "write fad.numpy.linalg.eigh(x)",
    "triangular_solve": "write fad.scipy.linalg.solve_triangular(a, b)",
    "typename": "write type(x).__name__",
    **{name: f"{_KEY}{call}, with key = fad.random.key(0)" for name, call in _DRAWS.items()},
    """manual_seed seed initial_seed Generator default_generator get_rng_state set_rng_state
    fork_rng""": f"{_KEY}key = fad.random.key(0), key, sub = fad.random.split(key)",
    "array": "write fad.tensor(data), or fad.numpy.array(data)",
    "is_tensor": "write isinstance(x, fad.Tensor)",
    "Size": "a shape is a tuple of ints",
    "device": "a device is one of jax.devices(), and x.to(device) moves a Tensor",
    "FloatTensor": "write fad.tensor(data, dtype=fad.float32)",
    "LongTensor": "write fad.tensor(data, dtype=fad.int64)",
    "set_default_dtype set_default_tensor_type": (
        "the default is JAX's; jax.config.update('jax_enable_x64', True) makes it 64 bits"
    ),
    "optim": "optimizers of optax work on Tensors: optimizer.update, optax.apply_updates under fad.no_grad()",
    "utils": "fad.checkpoint is torch.utils.checkpoint, as a function of the function",
    "compile": "write fad.jit(f)",
    "save": "write numpy.savez(path, **{name: x.detach().numpy() for name, x in tensors.items()})",
    "load": "write numpy.load(path), and fad.tensor of what is in it",
    "clip_grad_norm_ clip_grad_value_ clip_grad_norm": "write fad.nn.utils.clip_grad_norm_(parameters, "
    "max_norm) or fad.nn.utils.clip_grad_value_(parameters, clip_value)",
    "jacobian": "write fad.jacrev(f) or fad.jacfwd(f), or fad.autograd.functional.jacobian(f, x)",
    "remat": "write fad.checkpoint(f)",
    "custom_vjp": "write @fad.custom_rules, with its defvjp(fwd, bwd)",
    "custom_jvp": "write @fad.custom_rules, with its defjvp(rule)",
    "custom_vmap": "write @fad.custom_rules, with its defvmap(rule)",
    "tree_map": "write jax.tree.map, which takes Tensors",
    "tree": "write jax.tree, which takes Tensors",
    "devices": "write jax.devices()",
    "pmap": "write fad.vmap(f), or fad.jit with shardings",
    "named_scope named_call": "write jax.named_scope, or fad.autograd.record_function for profiles",
    "device_put": "write x.to(device)",
    "pure_callback": "write fad.from_jax of a function that calls jax.pure_callback, or a fad.Function",
}
_INSTEAD = by_name(_INSTEAD)


def instead_at_top(name: str) -> str:
    """What to write for ``fad.name``, which is not there; "" if that is not known.

    >>> instead_at_top("sin")
    'write fad.numpy.sin'
    """
    if name not in _INSTEAD and importlib.util.find_spec(f"fad.{name}") is not None:
        return f"it is a module; write import fad.{name}"
    return _INSTEAD.get(name) or instead_in_module("fad", name)


def _torch_function(
    cls: type, function: object, types: object, args: object = (), kwargs: object = None
) -> NoReturn:
    """Refuses a Tensor in a function of PyTorch, which calls this method.

    Raises:
        ArgumentError: always.
    """
    name = getattr(function, "__name__", "f").strip("_")
    here = _written(_where(name, ["fad.numpy"])) or instead_in_module("fad.numpy", name)
    raise ArgumentError(
        f"torch.{name} was given a Tensor of fad: {here or 'write a function of fad.numpy'}, make the "
        "function one of fad, fad.from_torch(f), or pass torch.from_dlpack(x.detach()), which PyTorch then "
        "differentiates by itself"
    )


MEMBERS: dict[str, object] = {"__torch_function__": classmethod(_torch_function)}  # of a Tensor
