"""Reverse mode: graphs of nodes, and backward passes over them.

A call at a level comes in, and a node goes out (`recorder`); cotangents come in, and gradients go out
(`engine`). `graph` has nodes and edges; grad modes, hooks and anomaly mode are a module each. `jvp`,
`vmap` and `staged` are the levels, beside that of `grad`, that Functions and views build on. Begin with
`graph` and `recorder`.
"""
