"""Between fad and JAX: a function of one comes in, and a function of the other goes out.

`jax_functions` has `from_jax` and `to_jax`; `custom_rules` are rules in JAX's form; `protocols` are those of
arrays: `__array__`, `__dlpack__` and the like; `numpy_calls` is what functions of NumPy do with Tensors.
"""
