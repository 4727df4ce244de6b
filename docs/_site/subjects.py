"""The subjects of the guides: a search for one of these words finds the guide before names of functions.

Each is a main entry of the index (``.. index:: ! word``), which Sphinx's search ranks above all else.
"""

from __future__ import annotations

SUBJECTS = {
    "checking-rules": "custom function, rule, rules, gradcheck, backward, vjp",
    "comparison": "comparison, tensorflow, autograd",
    "devices": "device, devices, gpu, tpu, sharding, process, processes, multi-gpu",
    "differences-from-pytorch": "differences, pytorch, torch",
    "extending": "extend, extension, primitive, operation, custom operation",
    "for-jax-users": "jax, custom_vjp, custom_jvp, custom_vmap, pytree",
    "for-numpy-users": "numpy, autograd, assignment, slice",
    "for-pytorch-users": "pytorch, torch, loss, losses, clip, clipping, optimizer, zero_grad",
    "graph": "graph, hook, hooks, node, nodes, anomaly, saved tensors",
    "graphs-by-hand": "graph, grad_fn",
    "hooks-in-compiled-code": "hook, hooks, compiled",
    "implicit-differentiation": "implicit, solver, solvers, root, fixed point, argmin",
    "introduction": "install, introduction, tutorial, start, first steps",
    "known-limitations": "limitation, limitations",
    "laplacians": "laplacian, laplacians",
    "loops": "loop, loops, while, scan, fori_loop",
    "making-programs-fast": "fast, slow, speed, jit, compile, recompile, performance",
    "namespaces": "numpy, namespace, namespaces",
    "performance": "benchmark, benchmarks, performance, timing",
    "profiling": "profile, profiler, profiling, memory",
    "pytorch-functions": "pytorch, torch, module, from_torch, to_torch",
    "replay": "replay",
    "seeing-graphs": "picture, pictures, plot, visualize, graphviz",
    "singular-points": "nan, inf, infinity, kink, subgradient, singular",
    "sparse-derivatives": "sparse, sparsity, coloring, colouring",
    "taylor-mode": "taylor, jet, higher order",
    "typing": "type, types, typing, mypy, pyright",
    "views": "view, views, in place, in-place, inplace, write, mutation",
    "why-is-my-gradient": "none, zero, nan, gradient, zero gradient, nan gradient, requires_grad, detach",
    "what-errors-tell": "error, errors, traceback, exception, nan",
    "cookbook/data": "data, dataloader, batch",
    "cookbook/export": "export, stablehlo, deploy",
    "cookbook/layers": "layer, layers, optimizer, optax, module",
    "cookbook/many-devices": "mesh, sharding, distributed",
    "cookbook/mixed-precision": "float16, bfloat16, mixed precision, precision",
    "cookbook/train-and-resume": "checkpoint, resume, save, load, train, training",
}


def add(_app: object, page: str, source: list[str]) -> None:
    """Write the subjects of a page below its title."""
    if page in SUBJECTS:
        entries = ", ".join(f"! {word.strip()}" for word in SUBJECTS[page].split(","))
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n\n```{{index}} {entries}\n```\n{rest}"
