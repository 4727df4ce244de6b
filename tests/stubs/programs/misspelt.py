"""Mistakes: each line that is marked is an error for type checkers."""

from __future__ import annotations

import fad
import fad.lax as flax
import fad.numpy as fnp
import fad.scipy as fscipy


def f(x: fad.Tensor, scale: float = 1.0) -> fad.Tensor:
    return (x * scale).sum()


@fad.no_grad()
def without(x: fad.Tensor) -> fad.Tensor:
    return x


w = fad.tensor([1.0])
w.summ()  # error
w.grda  # error
w.add_(1.0).sin__()  # error
w.sum(axes=0)  # error
w["a"]  # error
w + "a"  # error
w.grad.sum()  # error
w.requires_grad = "yes"  # error
fnp.sinn(w)  # error
fnp.sin("a")  # error
fnp.sum(w, axes=0)  # error
fnp.linalg.solv(w, w)  # error
flax.rsqrtt(w)  # error
fscipy.special.gamaln(w)  # error
fad.gradd(f)  # error
fad.grad(f, argnum=0)  # error
fad.grad(f)(w, scales=2.0)  # error
fad.grad(f)(w, "a")  # error
fad.value_and_grad(f)(w).item()  # error
fad.jit(f)(w, scales=2.0)  # error
fad.jit(f, static_argnum=1)  # error
fad.vmap(f, in_dim=0)  # error
fad.vmap(f)("a")  # error
fad.checkpoint(f)(w, w, w)  # error
without(w, w)  # error
without("a")  # error
fad.autograd.graad(w, w)  # error
