"""Sparse Jacobians and Hessians: of a function, the entries of its derivative that are not always 0.

A function comes in, and one that gives a sparse matrix comes out. `patterns` finds which these are, from
the jaxpr of the derivative, with `rules` for the operations of JAX; `coloring` finds few products that show
them all. Begin with `derivatives`, which has `sparse_jacobian`.
"""
