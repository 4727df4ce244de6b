"""The foundation of all other packages: Tensors, levels, and operations.

An operation and its arguments come in, and values go out. `tensor` is the handle that users have; `level`
has the stack of running transforms and `bind`, which hands an operation to the innermost level that its
arguments belong to; `primitive` is an operation made of a JAX function, with its derived rules. What fad
needs of JAX beyond its documented names comes through `jaxapi`, and through nothing else. Begin with
`level`.
"""
