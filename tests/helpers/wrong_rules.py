"""Functions with one wrong rule each, and what `check_function` must say of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from functions import Product, Sine, fit, front

import fad
import fad.numpy as fnp
from fad.core.jaxapi import is_tracing
from fad.tape.vmap import BatchLevel

X = np.array([0.3, -0.5])
Y = np.array([1.5, 2.0])
Z = np.array([0.5 + 1.0j, -0.25 + 0.75j])
W = np.array([1.0 - 0.5j, 2.0 + 0.25j])


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong Function, arguments for it, and what check_function must say of it."""

    function: Any
    args: tuple[Any, ...]
    law: str
    rule: str
    argument: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


WRONG: list[Wrong] = []


def wrong(*args: Any, law: str, rule: str, argument: str = "", **options: Any) -> Any:
    def add(function: Any) -> Any:
        WRONG.append(Wrong(function, args, law, rule, argument, options))
        return function

    return add


# First derivatives


@wrong(X, law="vjp", rule="vjp", argument="argument 'x'")
class WrongFactor(Sine):
    @staticmethod
    def vjp(ctx, g):
        return 2.0 * g * fnp.cos(ctx.saved_tensors[0])


@wrong(X, Y, law="vjp", rule="backward", argument="argument 'y'")
class WrongSign(Product):
    vjp = None  # type: ignore[assignment]
    jvp = None  # type: ignore[assignment]

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return fit(g * y, x), fit(-g * x, y)


@wrong(X, Y, law="vjp", rule="vjp", argument="argument 'x'")
class SwappedArguments(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return fit(g * x, x), fit(g * y, y)


@wrong(X, Y, law="jvp", rule="jvp", argument="argument 'y'")
class WrongTangent(Product):
    @staticmethod
    def jvp(ctx, x_t, y_t):
        x, y = ctx.saved_tensors
        return x_t * y + 0.5 * x * y_t


@wrong(Z, W, law="vjp", rule="vjp", argument="argument 'x'")
class MissingConjugate(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return fit(g * y, x), fit(g * x, y)


@wrong(Z, law="jvp", rule="jvp", argument="argument 'z'")
class WrongConjugate(fad.Function):
    @staticmethod
    def forward(z):
        return fnp.conj(z)

    @staticmethod
    def vjp(ctx, g):
        return fnp.conj(g)

    @staticmethod
    def jvp(ctx, z_t):
        return z_t


class Modulus(fad.Function):
    """|z|^2, with PyTorch's gradient."""

    @staticmethod
    def forward(z):
        return fnp.real(z * fnp.conj(z))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return 2.0 * g * ctx.saved_tensors[0]


@wrong(Z, law="vjp", rule="vjp", argument="argument 'z'")
class HalfOfModulus(Modulus):
    """With JAX's gradient instead of PyTorch's."""

    @staticmethod
    def vjp(ctx, g):
        return 2.0 * g * fnp.conj(ctx.saved_tensors[0])


@wrong(X, Y, law="None gradients", rule="vjp", argument="argument 'y'")
class ForgottenGradient(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return fit(g * y, x), None


@wrong(X, {"w": Y}, law="None gradients", rule="vjp", argument="argument 'tree'['w']")
class ForgottenLeaf(fad.Function):
    @staticmethod
    def forward(x, tree):
        return fnp.sum(x * tree["w"])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], inputs[1]["w"])

    @staticmethod
    def vjp(ctx, g):
        x, w = ctx.saved_tensors
        return fit(g * w, x), {}


@wrong(X, law="linear", rule="vjp", argument="argument 'x'")
class SquaredCotangent(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g * g * fnp.cos(ctx.saved_tensors[0])


@wrong(X, law="linear", rule="vjp", argument="argument 'x'")
class ShiftedCotangent(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[0]) + 1e-3


@wrong(X, law="linear", rule="vjp", argument="argument 'x'")
class ClippedCotangent(Sine):
    @staticmethod
    def vjp(ctx, g):
        return fnp.clip(g, -1.0, 1.0) * fnp.cos(ctx.saved_tensors[0])


@wrong(X, Y, law="linear", rule="jvp", argument="argument 'y'")
class AbsoluteTangent(Product):
    @staticmethod
    def jvp(ctx, x_t, y_t):
        x, y = ctx.saved_tensors
        return x_t * y + x * fnp.abs(y_t)


@wrong(X, law="adjoint", rule="jvp and vjp", argument="argument 'x'", skip=("vjp", "jvp", "shapes"))
class Disagreeing(Sine):
    """Neither is the derivative, on purpose; but they should still be of the same map."""

    @staticmethod
    def vjp(ctx, g):
        return g

    @staticmethod
    def jvp(ctx, x_t):
        return 0.9 * x_t


@wrong(X, Y, law="masks", rule="vjp", argument="argument 'x'")
class WrongWhenAlone(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        k = 1.0 if all(ctx.needs_input_grad) else 2.0
        return fit(k * g * y, x), fit(k * g * x, y)


@wrong(X, Y, law="masks", rule="vjp", argument="argument 'x'")
class MaskOfTheOther(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return (
            fit(g * y, x) if ctx.needs_input_grad[1] else None,
            fit(g * x, y) if ctx.needs_input_grad[0] else None,
        )


class Pair(fad.Function):
    """(x^2, 3 x)."""

    @staticmethod
    def forward(x):
        return x * x, 3.0 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def vjp(ctx, g, h):
        (x,) = ctx.saved_tensors
        g = fnp.zeros_like(x) if g is None else g
        return 2.0 * x * g + (0.0 if h is None else 3.0 * h)


@wrong(X, law="unused outputs", rule="vjp", argument="argument 'x'")
class NoneTakenForOnes(Pair):
    @staticmethod
    def vjp(ctx, g, h):
        (x,) = ctx.saved_tensors
        g = fnp.ones_like(x) if g is None else g
        return 2.0 * x * g + (0.0 if h is None else 3.0 * h)


@wrong(X, law="unused outputs", rule="vjp")
class NoneNotExpected(Pair):
    @staticmethod
    def vjp(ctx, g, h):
        (x,) = ctx.saved_tensors
        return 2.0 * x * g + 3.0 * h


class MissingReduction(Product):
    """Right, since the gradient is summed for it; the report has a remark."""

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


@wrong(X, X[0], law="well-formed", rule="vjp", argument="argument 'x'")
class WrongReduction(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y).sum(), g * x


@wrong(X, Y, law="broadcasting", rule="vjp", argument="argument 'x'")
class WrongReductionElsewhere(Product):
    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y)[: x.size], g * x


@wrong(X, Y, law="well-formed", rule="vjp")
class TooFewGradients(Product):
    @staticmethod
    def vjp(ctx, g):
        return (g,)


@wrong(X, law="vjp", rule="vjp")
class Raises(Sine):
    """``law`` is the first one that runs the rule."""

    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[1])


WRONG[-1] = dataclasses.replace(WRONG[-1], law="deterministic")


# Shapes and dtypes


@wrong(X, law="shapes", rule="vjp", argument="argument 'x'")
class WrongWithoutDimensions(Sine):
    @staticmethod
    def vjp(ctx, g):
        return (2.0 if g.ndim == 0 else 1.0) * g * fnp.cos(ctx.saved_tensors[0])


@wrong(X, law="shapes", rule="vjp")
class FailsWhenEmpty(Sine):
    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        top = fnp.max(fnp.abs(x))
        return g * fnp.cos(x / top * top)


@wrong(X, law="shapes", rule="vjp", argument="argument 'x'")
class SqueezesSizeOne(Sine):
    @staticmethod
    def vjp(ctx, g):
        return fnp.squeeze(g * fnp.cos(ctx.saved_tensors[0]))


@wrong(X, law="dtype", rule="vjp", argument="argument 'x'")
class NarrowGradient(Sine):
    @staticmethod
    def vjp(ctx, g):
        return (g * fnp.cos(ctx.saved_tensors[0])).astype(np.float32)


for law in ("vjp", "shapes"):  # rounded to 32 bits it is no derivative either
    WRONG[-1].options.setdefault("skip", []).append(law)


@wrong(X.astype(np.float32), law="dtype", rule="jvp", argument="output 0", double=False)
class WideTangent(Sine):
    @staticmethod
    def jvp(ctx, x_t):
        return x_t * fnp.cos(ctx.saved_tensors[0].astype(np.float64))


@wrong(X, Y, law="dtype", rule="vmap")
class NarrowBatch(Product):
    @staticmethod
    def vmap(info, in_dims, x, y):
        out, d = Product.vmap(info, in_dims, x, y)
        return out.astype(np.float32), d


# What is kept


@wrong(X, law="saved values", rule="vjp", argument="argument 'x'")
class KeptOnTheClass(Sine):
    last: Any = None

    @staticmethod
    def setup_context(ctx, inputs, output):
        KeptOnTheClass.last = inputs[0]

    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(KeptOnTheClass.last)


@wrong(X, law="saved values", rule="setup_context")
class KeptDetached(Sine):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(fnp.cos(inputs[0].detach()))

    @staticmethod
    def vjp(ctx, g):
        return g * ctx.saved_tensors[0]


@wrong(X, law="saved values", rule="forward")
class KeptAsNumbers(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.cosine = np.cos(x.detach().numpy())
        return fnp.sin(x)

    @staticmethod
    def vjp(ctx, g):
        return g * ctx.cosine


@wrong(X, law="no mutation", rule="forward", argument="argument 'x'")
class StaleAfterInPlace(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x.mul_(2.0)
        return fnp.sin(x)

    @staticmethod
    def vjp(ctx, g):
        return 2.0 * g * fnp.cos(2.0 * ctx.saved_tensors[0])


@wrong(X, law="vjp", rule="vjp", argument="argument 'x'")
class StaleAfterMarkDirty(fad.Function):
    """x becomes x^2, and the rule takes what it reads for the x that was."""

    @staticmethod
    def forward(ctx, x):
        x.square_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def vjp(ctx, g):
        return 2.0 * g * ctx.saved_tensors[0]


@wrong(X, law="no mutation", rule="vjp")
class MutatedCotangent(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g.mul_(fnp.cos(ctx.saved_tensors[0]))


@wrong(X, law="no mutation", rule="vjp")
class MutatedSavedTensor(Sine):
    @staticmethod
    def vjp(ctx, g):
        return ctx.saved_tensors[0].cos_() * g


@wrong(X, Y, law="no mutation", rule="forward", argument="argument 'y'")
class WritesToAnItem(Product):
    @staticmethod
    def forward(x, y):
        out = x * y
        y[..., :1] = 0.0
        return out


@wrong(X, Y, law="no mutation", rule="forward", argument="argument 'y'")
class WritesToMoreThanItMarks(fad.Function):
    @staticmethod
    def forward(x, y):
        x.mul_(2.0)
        return x, y.add_(1.0) * 2.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])


@wrong(X, {"y": Y, "z": Y}, law="no mutation", rule="forward")
class MutatedDict(fad.Function):
    @staticmethod
    def forward(x, tree):
        return x * tree.pop("y")


# Not a function


@wrong(X, law="deterministic", rule="forward")
class RandomForward(Sine):
    @staticmethod
    def forward(x):
        return fnp.sin(x) + 1e-3 * np.random.uniform()


@wrong(X, law="deterministic", rule="vjp")
class RandomGradient(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[0]) * (1.0 + 1e-3 * np.random.uniform())


@wrong(X, law="forward", rule="forward")
class OtherWithoutGrad(Sine):
    @staticmethod
    def forward(x):
        return fnp.sin(x) if fad.is_grad_enabled() else x


@wrong(X, law="jit", rule="forward")
@wrong(X, law="native JAX", rule="forward", laws=("native JAX",))
class OtherUnderJit(Sine):
    @staticmethod
    def forward(x):
        return x if is_tracing() else fnp.sin(x)


@wrong(X, law="eager tape", rule="vjp", argument="argument 'x'", laws=("eager tape",))
class RunsAreCounted(Sine):
    """It keeps on the class what belongs on ctx: how often forward ran, twice under checkpoint."""

    runs = 0

    @staticmethod
    def forward(x):
        RunsAreCounted.runs += 1
        return fnp.sin(x)

    @staticmethod
    def vjp(ctx, g):
        k, RunsAreCounted.runs = RunsAreCounted.runs, 0
        return k * g * fnp.cos(ctx.saved_tensors[0])


# vmap


@wrong(X, Y, law="vmap", rule="vmap", argument="argument 'y'")
class WrongForNone(Product):
    @staticmethod
    def vmap(info, in_dims, x, y):
        y = y / info.batch_size if in_dims[1] is None else y
        return Product.vmap(info, in_dims, x, y)


@wrong(X, Y, law="vmap", rule="vmap")
class FailsForNone(Product):
    @staticmethod
    def vmap(info, in_dims, x, y):
        return fnp.moveaxis(x, in_dims[0], 0) * fnp.moveaxis(y, in_dims[1], 0), 0


@wrong(X, law="vmap", rule="vmap", argument="argument 'x'")
class WrongForTheLastDimension(Sine):
    @staticmethod
    def forward(x):
        return fnp.cumsum(x)

    vjp = None  # type: ignore[assignment]

    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.cumsum(x, axis=-1), in_dims[0]


@wrong(X, law="vmap", rule="vmap")
class WrongForOneLane(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.sin(front(x, in_dims[0], 0)) * (0.5 if info.batch_size == 1 else 1.0), 0


@wrong(X, law="vmap", rule="vmap")
class FailsForNoLanes(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        lanes = front(x, in_dims[0], 0)
        return fnp.stack([fnp.sin(lanes[k]) for k in range(info.batch_size)]), 0


@wrong(np.ones((3, 3)) * [[1.0], [2.0], [3.0]], law="vmap", rule="vmap")
class WrongOutDims(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.sin(front(x, in_dims[0], 0)), 1


@wrong(X, law="vmap", rule="vmap")
class OutDimsNone(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.sin(front(x, in_dims[0], 0)), None


@wrong(X, law="vmap", rule="vmap")
class MixedLanes(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        out = fnp.sin(front(x, in_dims[0], 0))
        return out[::-1], 0


@wrong(X, law="nested vmap", rule="vmap")
class WrongWhenNested(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        k = 2.0 if isinstance(x.level, BatchLevel) else 1.0
        return k * fnp.sin(front(x, in_dims[0], 0)), 0


@wrong(X, law="vmap of vjp", rule="vjp", argument="argument 'x'")
@wrong(X, law="vjp of vmap", rule="vjp", argument="argument 'x'", laws=("vjp of vmap",))
class DoubledInBatches(Sine):
    @staticmethod
    def vjp(ctx, g):
        k = 2.0 if isinstance(g.level, BatchLevel) else 1.0
        return k * g * fnp.cos(ctx.saved_tensors[0])


@wrong(X, law="vmap of jvp", rule="jvp", argument="output 0")
@wrong(X, law="jvp of vmap", rule="jvp", argument="output 0", laws=("jvp of vmap",))
class PushedTwiceInBatches(Sine):
    @staticmethod
    def jvp(ctx, x_t):
        k = 2.0 if isinstance(x_t.level, BatchLevel) else 1.0
        return k * x_t * fnp.cos(ctx.saved_tensors[0])


# Derived rules, second derivatives and beyond


@wrong(X, law="second order", rule="vjp", argument="argument 'x'")
class DetachedInVjp(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[0].detach())


@wrong(X, law="jvp", rule="jvp (derived from vjp)")
class DetachedCotangent(Sine):
    """A derived jvp transposes the vjp, which needs the cotangent's part in the graph."""

    @staticmethod
    def vjp(ctx, g):
        return g.detach() * fnp.cos(ctx.saved_tensors[0])


@wrong(X, law="jvp", rule="jvp (derived from vjp)")
class UnrecordedInVjp(Sine):
    @staticmethod
    def vjp(ctx, g):
        g = 1.0 * g
        with fad.no_grad():
            g *= fnp.cos(ctx.saved_tensors[0])
        return g


@wrong(X, law="vjp", rule="vjp (derived from jvp)")
class UnrecordedInJvp(Sine):
    vjp = None  # type: ignore[assignment]

    @staticmethod
    def jvp(ctx, x_t):
        x_t = 1.0 * x_t
        x_t.data *= fnp.cos(ctx.saved_tensors[0])
        return x_t


@wrong(X, law="second order", rule="vjp", argument="cotangent 0")
class DetachedCotangentWithJvp(DetachedCotangent):
    @staticmethod
    def jvp(ctx, x_t):
        return x_t * fnp.cos(ctx.saved_tensors[0])


@wrong(X, law="second order", rule="jvp", argument="argument 'x'")
class DetachedInJvp(Sine):
    @staticmethod
    def jvp(ctx, x_t):
        return x_t * fnp.cos(fad.stop_gradient(ctx.saved_tensors[0]))


@wrong(X, law="order 3", rule="vjp", argument="argument 'x'", order=3, laws=("higher orders",))
class WrongAtThirdOrder(fad.Function):
    """x^4, whose gradient is given by a tangent line: right in value and first derivative."""

    @staticmethod
    def forward(x):
        return x**4

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        a = x.detach()
        return g * (4.0 * a**3 + 12.0 * a * a * (x - a))


@wrong(X, law="jet", rule="jet")
class CoefficientsInJet(Sine):
    """The second derivative lacks the part of the first one's square."""

    @staticmethod
    def jet(ctx, x_s):
        (x,) = ctx.saved_tensors
        return [fnp.cos(x) * s for s in x_s]


@wrong(X, law="sparsity", rule="sparsity", argument="argument 'x'")
class PatternWithoutTheLast(Sine):
    @staticmethod
    def sparsity(x):
        return np.eye(x.size, dtype=bool) & (np.arange(x.size) < x.size - 1)
