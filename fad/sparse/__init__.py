"""Sparse Jacobians and Hessians: a function comes in, and the entries of its derivative that may differ
from 0 come out.

`patterns` finds which entries these are, from the jaxpr of the derivative, with `rules` for the operations of
JAX; `coloring` finds few products that show them all. Begin with `derivatives`, which has `sparse_jacobian`.
"""
