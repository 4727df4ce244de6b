"""Reverse mode: graphs of nodes, and backward passes over them.

A call at a level comes in, and a node goes out (`recorder`); cotangents come in, and gradients go out
(`engine`). `graph` has nodes and edges; grad modes, hooks and anomaly mode are a module each. `vmap` and
`staged` are the levels, beside those of `grad` and `jvp`, that Functions and views build on. Begin with
`graph` and `recorder`.
"""
