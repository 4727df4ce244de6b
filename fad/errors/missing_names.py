"""Names that are not at the top of fad: what to write instead."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from fad.errors.suggestions import no_name, no_name_later
from fad.errors.synonyms import by_name, instead_in_module

_KEY = "there is no global generator of random numbers; they come from a key: "
_DRAWS = {
    "rand": "fad.random.uniform(key, shape)",
    "rand_like": "fad.random.uniform(key, x.shape, x.dtype)",
    "randn": "fad.random.normal(key, shape)",
    "randn_like": "fad.random.normal(key, x.shape, x.dtype)",
    "randint": "fad.random.randint(key, shape, low, high)",
    "randint_like": "fad.random.randint(key, x.shape, low, high)",
    "randperm": "fad.random.permutation(key, n)",
    "normal": "fad.random.normal(key, shape)",
    "bernoulli": "fad.random.bernoulli(key, p, shape)",
    "multinomial": "fad.random.categorical(key, logits)",
    "poisson": "fad.random.poisson(key, rate)",
    "dropout": "fad.random.bernoulli(key, 1 - p, x.shape)",
}
_WINDOWS = ("bartlett", "blackman", "hamming", "kaiser")
_INSTEAD = {
    **{f"{name}_window": f"write fad.numpy.{name}(n)" for name in _WINDOWS},
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
    "hann_window": "write fad.numpy.hanning(n)",
    "is_conj": "conjugates are computed at once, so it is always False",
    "is_neg": "negatives are computed at once, so it is always False",
    "lu": "write fad.scipy.linalg.lu(x), which gives P, L and U, or lu_factor(x)",
    "multiprocessing": "write threads, which may share Tensors and graphs, or jax.distributed",
    "newaxis": "write None, or fad.numpy.newaxis",
    "nuclear_norm": "write fad.numpy.linalg.norm(x, 'nuc')",
    "ops": "an operation of your own is made by fad.extend.operation",
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
    "std_mean": "write x.std(dim), x.mean(dim)",
    "segment_reduce": "write x.index_add(0, segments, values), or index_reduce",
    "Stream Event": "there are no streams: calls of JAX do not wait, and x.array.block_until_ready() does",
    "svd_lowrank": "write fad.numpy.linalg.svd(x, full_matrices=False)",
    "symeig": "write fad.numpy.linalg.eigh(x)",
    "triangular_solve": "write fad.scipy.linalg.solve_triangular(a, b)",
    "typename": "write type(x).__name__",
    "var_mean": "write x.var(dim), x.mean(dim)",
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


def missing(name: str, public: Sequence[str]) -> AttributeError:
    """The error for ``fad.<name>``, which says where the name is, or what comes near to it.

    Arguments:
        name: the name.
        public: those that there are.

    >>> import fad
    >>> fad.sin
    Traceback (most recent call last):
    AttributeError: fad has no 'sin': write fad.numpy.sin
    """
    if name.startswith("_"):
        return no_name("fad", name, "")

    def instead() -> str:
        if name not in _INSTEAD and importlib.util.find_spec(f"fad.{name}") is not None:
            return f"it is a module; write import fad.{name}"
        return _INSTEAD.get(name) or instead_in_module("fad", name)

    return no_name_later("fad", name, instead, lambda: public)
