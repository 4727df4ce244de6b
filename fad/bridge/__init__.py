"""Between fad and JAX or PyTorch: a function of one comes in, and a function of the other goes out.

`compilation` is `fad.jit`; `jax_functions` has `from_jax` and `to_jax`; `protocols` are those of arrays:
`__array__`, `__dlpack__`, `__array_ufunc__` and the like. `torch_in_fad` has `from_torch`, `fad_in_torch` has
`to_torch`; both are made of the operations of `flat_operations`.
"""
