"""Names that are not at the top of fad: what to write instead."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType

from fad.errors.suggestions import no_name, no_name_later
from fad.errors.synonyms import instead_in_module

__all__ = ["missing"]

# Where a name is looked for, in order.
_MODULES = """fad.numpy fad.numpy.linalg fad.nn fad.autograd fad.func fad.lax fad.scipy.special fad.scipy
fad.random fad.numpy.fft fad.extend fad.testing fad.autograd.graph fad.autograd.functional""".split()

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
_SEEDS = """manual_seed seed initial_seed Generator default_generator get_rng_state set_rng_state
fork_rng""".split()
_INSTEAD = {
    **{name: f"{_KEY}{call}, with key = fad.random.key(0)" for name, call in _DRAWS.items()},
    **dict.fromkeys(_SEEDS, f"{_KEY}key = fad.random.key(0), key, sub = fad.random.split(key)"),
    "array": "write fad.tensor(data), or fad.numpy.array(data)",
    "concat": "write fad.cat(tensors, dim=0)",
    "concatenate": "write fad.cat(tensors, dim=0), or fad.numpy.concatenate(arrays, axis=0)",
    "is_tensor": "write isinstance(x, fad.Tensor)",
    "Size": "a shape is a tuple of ints",
    "device": "a device is one of jax.devices(), and x.to(device) moves a Tensor",
    "cuda": "devices are JAX's: jax.devices(), x.to(device)",
    "FloatTensor": "write fad.tensor(data, dtype=fad.float32)",
    "LongTensor": "write fad.tensor(data, dtype=fad.int64)",
    "set_default_dtype": "the default is JAX's; jax.config.update('jax_enable_x64', True) makes it 64 bits",
    "optim": "optimizers of optax work on Tensors: optimizer.update, optax.apply_updates under fad.no_grad()",
    "utils": "fad.checkpoint is torch.utils.checkpoint, as a function of the function",
    "compile": "write fad.jit(f)",
    "save": "write numpy.savez(path, **{name: x.detach().numpy() for name, x in tensors.items()})",
    "load": "write numpy.load(path), and fad.tensor of what is in it",
    "clip_grad_norm_": "write optax.clip_by_global_norm, or scale x.grad under fad.no_grad()",
    "jacobian": "write fad.jacrev(f) or fad.jacfwd(f), or fad.autograd.functional.jacobian(f, x)",
    "remat": "write fad.checkpoint(f)",
    "custom_vjp": "write @fad.custom_rules, with its defvjp(fwd, bwd)",
    "custom_jvp": "write @fad.custom_rules, with its defjvp(rule)",
    "custom_vmap": "write @fad.custom_rules, with its defvmap(rule)",
    "tree_map": "write jax.tree.map, which takes Tensors",
    "tree": "write jax.tree, which takes Tensors",
    "devices": "write jax.devices()",
    "pmap": "write fad.vmap(f), or fad.jit with shardings",
    "named_scope": "write jax.named_scope, or fad.autograd.record_function for profiles",
    "named_call": "write jax.named_scope, or fad.autograd.record_function for profiles",
    "clamp": "write fad.numpy.clip(x, low, high)",
    "device_put": "write x.to(device)",
    "pure_callback": "write fad.from_jax of a function that calls jax.pure_callback, or a fad.Function",
}


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
        return _INSTEAD.get(name) or _elsewhere(name) or instead_in_module("fad", name)

    return no_name_later("fad", name, instead, lambda: public)


def _elsewhere(name: str) -> str:
    """Where a name of another module is; "" if nowhere."""
    if importlib.util.find_spec(f"fad.{name}") is not None:
        return f"it is a module; write import fad.{name}"
    for where in _MODULES:
        found = getattr(importlib.import_module(where), name, None)
        if found is not None:
            is_module = isinstance(found, ModuleType)
            return f"it is the module {found.__name__}" if is_module else f"write {where}.{name}"
    return ""
