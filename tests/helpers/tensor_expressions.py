"""Expressions of Tensor methods that mean the same in PyTorch and in fad, and what both make of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import fad

_RNG = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _RNG.uniform(-2.0, 2.0, shape).astype(np.float32)


# The names in expressions. Floats require grad.
VALUES: dict[str, Any] = {
    "s": np.float32(0.7),
    "v": _floats(4),
    "w": _floats(3),
    "a": _floats(3, 4),
    "b": _floats(3, 4),
    "c": _floats(4, 3),
    "q": _floats(3, 3),
    "p": np.eye(3, dtype=np.float32) * 3 + 0.5,  # positive definite
    "u": _RNG.uniform(0.2, 0.8, (3, 4)).astype(np.float32),  # between 0 and 1
    "d": _floats(2, 3, 4),
    "e": _floats(2, 4, 3),
    "one": _floats(1, 3, 1),
    "k": np.array([[2, 0, 1, 1], [1, 2, 2, 0]]),
    "i": np.array([2, 0, 2]),
    "j": np.array([1, 0]),
    "n": np.array([[5, 3, 7, 1], [2, 2, 2, 4], [8, 6, 4, 9]]),
    "r": np.array([3, 1, 2, 2]),
    "m": np.array([[True, False, True, True], [False, False, True, False], [True] * 4]),
    "h": np.array([1.0, np.nan, -2.0, np.nan, 0.5], np.float32),
    "z": np.array([1 + 2j, -3 + 0.5j, 0.5 - 1j], np.complex64),
    "t": np.array([2.0, 1.0, 2.0, 1.0, 3.0], np.float32),  # with ties
}

ELEMENTWISE = """
a.abs()  a.absolute()  u.acos()  (1.0 + u).acosh()  u.arccos()  a.add(b)  a.add(b, alpha=2.0)
a.sub(b, alpha=3)  a.sub(v)  u.asin()  a.asinh()  a.atan()  u.atanh()  a.atan2(b)  a.ceil()  a.floor()
a.round()  a.trunc()  a.fix()  a.frac()  a.clamp(-1.0, 1.0)  a.clamp(min=-1.0)  a.clamp(max=b)
a.clamp_min(0.3)  a.clamp_max(b)  a.clip(-1, 1)  a.conj()  z.conj()  z.conj_physical()  z.angle()
z.abs()  z.sgn()  a.detach().sgn()  a.sign()  a.copysign(b)  a.cos()  a.cosh()  a.deg2rad()  a.rad2deg()
u.digamma()  u.lgamma()  a.div(b)  a.div(b, rounding_mode="floor")  n.div(3, rounding_mode="trunc")
(-n).div(3, rounding_mode="trunc")  a.divide(b)  a.true_divide(2)  a.erf()  a.erfc()  u.erfinv()
a.exp()  a.exp2()  a.expm1()  a.float_power(2)  a.detach().floor_divide(b.detach())  a.fmax(b)
a.fmin(b)  a.fmod(b)  n.gcd(r)  n.lcm(r)  a.detach().heaviside(b.detach())  a.hypot(b)  a.i0()
u.detach().igamma(a.abs())  u.detach().igammac(a.abs())  a.ldexp(r)  a.lerp(b, 0.3)  a.lerp(b, u)
u.log()  u.log10()  u.log1p()  u.log2()  a.logaddexp(b)  a.logaddexp2(b)  u.logit()  u.logit(0.3)
a.maximum(b)  a.minimum(b)  a.mul(b)  a.multiply(2.0)  (3.0 + u).mvlgamma(2)  h.nan_to_num(0.0)  a.neg()
a.negative()  a.positive()  u.polygamma(1)  u.pow(1.5)  u.pow(a)  a.reciprocal()  a.remainder(b)
a.remainder(0.7)  u.rsqrt()  a.sigmoid()  a.sin()  a.sinc()  a.sinh()  u.sqrt()  a.square()  a.tan()
a.tanh()  a.subtract(b)  u.xlogy(u)  a.relu()  a.prelu(s)  a.prelu(v)  a.hardshrink()  a.hardshrink(1.0)
a.addcdiv(b, u)  a.addcdiv(b, u, value=0.5)  a.addcmul(b, u)  a.addcmul(b, v, value=-2.0)
n.bitwise_and(6)  n.bitwise_or(8)  n.bitwise_xor(3)  n.bitwise_not()  n.bitwise_left_shift(1)
n.bitwise_right_shift(1)  a.eq(b)  a.ne(b)  a.lt(b)  a.le(b)  a.gt(0.0)  a.ge(b)  a.less(b)
a.less_equal(b)  a.greater(b)  a.greater_equal(b)  a.not_equal(b)  h.isnan()  h.isfinite()  h.isinf()
h.isneginf()  h.isposinf()  z.isreal()  a.isclose(b)  a.allclose(a)  a.signbit()  m.logical_and(a)
m.logical_or(a)  m.logical_not()  m.logical_xor(a)  a.where(m, b)  a.where(m, 0.0)  a.where(a > 0, -a)
a.detach().nextafter(b.detach())  n.sqrt()  n.erf()  a.masked_fill(m, 2.0)  a.masked_fill(m[0], s)
a.softmax(1)  a.softmax(dim=0)  a.log_softmax(-1)  a.cumsum(0)  a.cumsum(dim=1)  a.cumprod(1)
a.logcumsumexp(1)  a.type_as(n)  a.frexp()
"""
MATRICES = """
q.addmm(a, c)  q.addmm(a, c, beta=0.5, alpha=2.0)  w.addmv(a, v)  w.addmv(a, v, beta=0.5, alpha=-1)
a.addr(w, v)  a.addr(w, v, beta=2.0, alpha=0.5)  q.addbmm(d, e)  q.addbmm(d, e, alpha=3)
q.baddbmm(d, e)  q.baddbmm(d, e, beta=0.1)  d.bmm(e)  a.mm(c)  a.mv(v)  a.matmul(c)  a.matmul(v)
v.dot(v)  v.vdot(v)  v.inner(v)  w.outer(v)  w.kron(v)  w.cross(q[0], dim=0)  q.cross(p, dim=0)  q.det()
p.logdet()  p.slogdet()  q.inverse()  a.pinverse()  q.matrix_power(3)  q.matrix_exp()  p.cholesky()
p.cholesky().cholesky_inverse()  a.cholesky_solve(p.cholesky())  v.diag()  a.diag(1)
a.diag(diagonal=-1)  a.diag_embed()  a.diag_embed(1)  a.diag_embed(offset=-1, dim1=0, dim2=2)
a.diagflat()  v.diagflat(1)  a.diagonal()  d.diagonal(dim1=1, dim2=2)  q.trace()  a.tril()  a.triu(1)
a.tril(diagonal=-1)  a.adjoint()  z.outer(z).mH  z.outer(z).H  a.cov()  a.corrcoef()  z.vdot(z)
p.qr()[1].abs()  w.ger(v)
"""
REDUCTIONS = """
a.sum()  a.sum(1)  a.sum(dim=0)  a.sum((0, 1))  a.sum(dim=(0, 1), keepdim=True)  a.sum(0, keepdim=True)
a.mean(dim=1)  a.mean(1, keepdim=True)  a.prod()  a.prod(dim=1)  m.all()  m.all(dim=1)  m.any(0)
m.any(dim=1, keepdim=True)  a.amax(1)  a.amax(dim=(0, 1))  a.amin(dim=0, keepdim=True)  a.aminmax()
a.aminmax(dim=1)  a.argmax()  a.argmax(1)  a.argmax(dim=0, keepdim=True)  a.argmin(dim=1)  a.max()
a.min()  a.max(dim=1)  a.max(dim=0, keepdim=True)  a.min(dim=-1)  d.min(dim=1)  t.max(dim=0)
t.min(dim=0)  a.median(dim=1)  a.median(dim=0, keepdim=True)  h.median(dim=0)  h.nanmedian(dim=0)
t.median(dim=0).values  a.nansum()  h.nansum()  h.nanmean()  h.nanmean(dim=0)  h.nansum(dim=0)
a.std(dim=1)  a.std(dim=0, keepdim=True)  a.std(dim=1, unbiased=False)  a.std(dim=1, correction=0)
a.std(unbiased=True)  a.var(dim=1)  a.var(unbiased=False)  a.var(dim=(0, 1))  a.norm()  a.norm(1)
a.norm(dim=1)  a.norm(3, dim=0)  a.norm(p=float("inf"), dim=1, keepdim=True)  a.norm("nuc")
a.norm(2, (0, 1))  a.dist(b)  a.dist(b, 1)  a.logsumexp(1)  a.logsumexp(dim=0, keepdim=True)
a.logsumexp((0, 1), True)  a.quantile(0.3)  a.quantile(0.5, dim=1)  h.nanquantile(0.5)
a.count_nonzero()  m.count_nonzero(dim=1)  a.sort(dim=1)  a.sort(dim=0, descending=True)  a.argsort()
a.argsort(dim=0)  a.argsort(dim=0, descending=True)  a.msort()  a.topk(2)  a.topk(2, dim=0)
a.topk(2, largest=False)  a.topk(k=1, dim=0, largest=False)  a.kthvalue(2)
a.kthvalue(1, dim=0, keepdim=True)  n.mode()  n.mode(0)  t.mode()  n.mode(dim=1, keepdim=True)
a.cummax(1)  a.cummin(dim=0)  t.cummax(0)  t.cummin(0)  h.cummax(0)  r.bincount()
r.bincount(minlength=6)  a.detach().histc(4)  a.detach().histc(bins=4, min=-1, max=1)
a.renorm(2, 0, 1.0)  a.renorm(p=1, dim=1, maxnorm=0.5)  a.diff()  a.diff(dim=0)  a.diff(2)  n.unique()
t.detach().unique_consecutive()  n.unique_consecutive(return_inverse=True, return_counts=True)
n.unique(return_counts=True)  a.sum_to_size(1, 4)  d.sum_to_size(3, 1)  a.sum_to_size((3, 4))
"""
INDEXING = """
a.gather(0, k)  a.gather(1, n % 4)  a.gather(dim=0, index=k)  a.index_select(0, i)
a.index_select(dim=1, index=j)  a.take(i)  a.take_along_dim(k, 0)  a.take_along_dim(k[:1], dim=0)
a.masked_select(m)  a.masked_select(m[2])  a.index_add(0, j, b[:2])  a.index_add(0, i, b, alpha=2.0)
a.index_copy(0, j, b[:2])  a.index_fill(1, j, 3.0)  a.index_fill(0, j, s)  a.index_put((j, i[:2]), s)
a.index_put((j,), b[:2], accumulate=True)  a.index_reduce(0, i, b, "prod")
a.index_reduce(0, i, b, "mean")  a.index_reduce(0, i, b, "amax")
a.index_reduce(0, i, b, "amin", include_self=False)  a.scatter(0, k[:, :3], b[:2, :3])
a.scatter(1, n % 4, 2.0)  a.scatter(0, k, value=1.5)
a.detach().scatter(1, n % 4, 2.0, reduce="multiply")  a.scatter_add(0, k, b[:2])
a.scatter_reduce(0, k, b[:2], "sum")  a.scatter_reduce(0, k, b[:2], "mean")
a.scatter_reduce(0, k, b[:2], "prod")  a.scatter_reduce(0, k, b[:2], "amax")
a.scatter_reduce(0, k, b[:2], "amin", include_self=False)
a.scatter_reduce(0, k, b[:2], "sum", include_self=False)  a.masked_scatter(m, b)  a.masked_scatter(m, d)
a.select_scatter(v, 0, 1)  a.select_scatter(w, 1, -1)  a.slice_scatter(b[:2], 0, 1)
a.slice_scatter(b[:, :2], dim=1, start=0, end=4, step=2)  a.diagonal_scatter(w)
a.diagonal_scatter(w, offset=1)  a.repeat_interleave(2)  a.repeat_interleave(2, dim=1)
v.repeat_interleave(r)  a.argwhere()  a.nonzero(as_tuple=True)  a.nonzero(as_tuple=False)
"""
SHAPES = """
a.t()  v.t()  a.T  d.mT  a.unsqueeze(0)  a.unsqueeze(-1)  one.squeeze()  one.squeeze(0)
one.squeeze(dim=1)  one.squeeze(dim=(0, 1))  d.permute(2, 0, 1)  d.permute((1, 0, 2))  d.movedim(0, 2)
d.moveaxis(0, -1)  d.movedim((0, 1), (1, 0))  d.swapdims(0, 2)  d.swapaxes(0, 1)
d.transpose(dim0=0, dim1=1)  a.reshape(4, 3)  a.reshape((2, -1))  a.view(4, 3)  a.view(-1)
a.view((2, 6))  a.view_as(c)  a.reshape_as(c)  d.flatten(1)  d.flatten(0, 1)
d.flatten(start_dim=1, end_dim=-1)  a.ravel()  s.flatten(0)  d.unflatten(2, (2, 2))
d.unflatten(-1, (-1, 2))  one.expand(2, 3, 4)  one.expand(-1, -1, 2)  one.expand_as(d[:1])
v.broadcast_to((3, 4))  a.narrow(1, 1, 2)  a.narrow(0, -2, 1)  a.narrow_copy(1, 0, 3)  a.select(0, 1)
a.select(1, -1)  a.unbind()  a.unbind(1)  a.chunk(2)  a.chunk(3, dim=1)  v.chunk(3)
a.split(split_size=2)  a.split(2, dim=0)  a.split([1, 3], dim=1)  a.split_with_sizes([1, 2])
a.split_with_sizes((3, 1), dim=1)  a.tensor_split(2)  a.tensor_split((1, 3), dim=1)  d.dsplit(2)
a.hsplit(2)  a.vsplit(3)  v.unfold(0, 2, 1)  a.unfold(1, 2, 2)  a.unfold(0, 3, 1)  a.flip(0)
a.flip(0, 1)  a.flip(dims=(1,))  a.fliplr()  a.flipud()  a.roll(1)  a.roll(shifts=1, dims=0)
a.roll((1, 2), (0, 1))  a.rot90()  a.rot90(2, (1, 0))  a.tile(2)  a.tile(2, 3)  a.tile((2, 1, 1))
a.contiguous()  z.real  z.imag  z.resolve_conj()
"""
QUESTIONS = """
a.dim()  a.ndimension()  a.numel()  a.nelement()  a.size()  a.size(1)  a.size(dim=-1)  d.size(0)
s.size()  a.ndim  a.element_size()  a.is_floating_point()  n.is_floating_point()  z.is_complex()
a.is_complex()  a.is_signed()  m.is_signed()  s.is_nonzero()  a.is_same_size(b)  a.is_same_size(c)
a.is_contiguous()  a.itemsize  a.nbytes  a.size(0) * a.size(1)  list(a.size())
"""


def split(text: str) -> list[str]:
    """The expressions of a text: they are two spaces apart."""
    return [e for line in text.strip().splitlines() for e in line.strip().split("  ")]


def names(library: Any) -> dict[str, Any]:
    """The values as Tensors of a library; those of floats are leaves that require grad."""
    found = {}
    for name, value in VALUES.items():
        x = library.tensor(value)
        found[name] = x.requires_grad_() if value.dtype.kind in "fc" else x
    return found


def parts(out: Any) -> list[Any]:
    """The Tensors of a result, or the one result."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def as_numpy(x: Any) -> Any:
    """The values of a Tensor."""
    if hasattr(x, "detach"):
        x = x.detach()
        return np.asarray(x.array) if isinstance(x, fad.Tensor) else x.resolve_conj().numpy()
    return np.asarray(x)


def gradients(outs: list[Any], leaves: dict[str, Any]) -> dict[str, Any]:
    """Those of a weighted sum of all results that have a gradient, for each leaf."""
    tracked = [o for o in outs if getattr(o, "requires_grad", False)]
    if not tracked:
        return {}
    total: Any = 0.0
    for o in tracked:
        flat = abs(o).reshape(-1) if "complex" in str(o.dtype) else o.reshape(-1)
        for k in range(flat.shape[0]):
            total = total + (1.0 + 0.25 * k) * flat[k]
    total.backward()
    grads = {name: x.grad for name, x in leaves.items()}
    return {name: as_numpy(g) for name, g in grads.items() if g is not None}


def run(library: Any, expression: str, outcome: Any = parts) -> tuple[list[Any], dict[str, Any]]:
    """What an expression gives, and its gradients."""
    env = names(library)
    outs = outcome(eval(expression, {"float": float, "list": list, "abs": abs, **env}))
    return outs, gradients(outs, env)
