"""What PyTorch's documentation says of autograd, statement by statement, run in both libraries.

Each statement has one small program; what it logs must be the same in PyTorch and in fad (see
`two_libraries`). What fad does in another way on purpose is in the tables of docs/differences-from-pytorch.md
and docs/graph.md instead.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from two_libraries import compare

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

STATEMENTS: dict[str, Callable[[Any, Any], None]] = {}


def says(statement: str) -> Callable[[Callable[[Any, Any], None]], None]:
    """The program below shows this statement; before the colon is the page, or the object, which says so."""

    def add(program: Callable[[Any, Any], None]) -> None:
        assert statement not in STATEMENTS
        STATEMENTS[statement] = program

    return add


# torch.autograd: backward and grad


@says("backward: grad_tensors are the vector of the product with the Jacobian")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0, 3.0])
    lib.backward([x * x], [lib.tensor([1.0, 10.0, 100.0])])
    log(x.grad)


@says("backward: a tensor that is not a scalar needs its grad_tensor")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with log.raises("can be implicitly created only for scalar outputs"):
        lib.backward(x * x)
    with log.raises():
        lib.backward([x * x, x.sum()], [None, None])
    log(x.grad)


@says("backward: None is a gradient for scalars, and for what needs none")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var([1.0, 2.0]), lib.var(3.0)
    lib.backward([x * x, y * y], [lib.tensor([1.0, 1.0]), None])
    log(x.grad, y.grad)


@says("backward: grad_tensors has the length of tensors")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with log.raises():
        lib.backward([x * x, x * 3.0], [lib.tensor(1.0)])
    log(x.grad)


@says("backward: one element, of any rank, is a scalar")
def _(lib: Any, log: Any) -> None:
    x = lib.var([[2.0]])
    (x * x).backward()
    log(x.grad)


@says("backward: gradients accumulate in the leaves, until .grad is zeroed or None")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    for _ in range(3):
        (x * x).backward()
    log(x.grad)
    x.grad.zero_()
    (x * x).backward()
    log(x.grad)
    x.grad = None
    (x * x).backward()
    log(x.grad)


@says("backward: retain_graph defaults to create_graph")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.backward(create_graph=True)
    y.backward(create_graph=True, retain_graph=False)
    with log.raises("second time"):
        y.backward()
    log(x.grad)


@says("backward: inputs gives the leaves whose .grad is accumulated into; others are left alone")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var(2.0), lib.var(3.0)
    lib.backward(x * y, inputs=x)
    log(x.grad, y.grad)
    lib.backward(x * y, inputs=[y])
    log(x.grad, y.grad)
    (x * y).backward(inputs={"x": x})
    log(x.grad, y.grad)


@says("backward: an input may be no leaf; it gets .grad, and its grad_fn is called")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    z = y * y
    z.backward(inputs=[y], retain_graph=True)
    log(y.grad, x.grad, y.retains_grad)


@says("backward: roots may be gradient edges")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    edge = lib.edge(y)
    del y
    lib.backward([edge], [lib.tensor(3.0)])
    log(x.grad)


@says("grad: the sum of the gradients of several outputs")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    log(lib.grad([x * x, x * 3.0], [x]), x.grad)


@says("grad: an output that does not require grad may have None")
def _(lib: Any, log: Any) -> None:
    x = lib.var([2.0, 3.0])
    with log.raises("does not require grad"):
        lib.grad([x * x, lib.tensor(1.0)], [x], [lib.tensor([1.0, 1.0]), None])


@says("grad: a dict of inputs gives a dict of gradients")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var(2.0), lib.var(3.0)
    log(lib.grad(x * y, {"a": x, "b": y}))


@says("grad: an input is an edge, with the same result")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    z = y * 3.0
    log(lib.grad(z, [lib.edge(x), lib.edge(y)]))


@says("grad: allow_unused defaults to materialize_grads, and both may not contradict")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var([2.0]), lib.var([3.0, 4.0])
    with log.raises("not have been used in the graph"):
        lib.grad(x.sum(), [y])
    log(lib.grad(x.sum(), [y], allow_unused=True))
    log(lib.grad(x.sum(), [y], materialize_grads=True))
    with log.raises():
        lib.grad(x.sum(), [y], materialize_grads=True, allow_unused=False)


@says("grad: is_grads_batched computes a product for each vector of a batch")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    vectors = lib.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    log(lib.grad(x * x, x, vectors, is_grads_batched=True))


@says("grad: does not accumulate into .grad, not even that of other leaves")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var(2.0), lib.var(3.0)
    lib.grad(x * y, x)
    log(x.grad, y.grad)


@says("grad: create_graph records the derivative, for products of higher order")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    (g,) = lib.grad(x * x * x, x, create_graph=True)
    (h,) = lib.grad(g, x, create_graph=True)
    log(g, h, lib.grad(h, x), g.requires_grad)


@says("grad: only_inputs is ignored, but for a warning where it is False")
def _(lib: Any, log: Any) -> None:
    x, y = lib.var(2.0), lib.var(3.0)
    log(lib.grad(x * y, x, only_inputs=True))
    with lib.warnings() as found:
        log(lib.grad(x * y, x, None, None, False, False, None), x.grad, y.grad)
    log(["FutureWarning" in w for w in found])


# torch.Tensor: what it has for autograd


@says("Tensor.is_leaf: what does not require grad is a leaf, and what the user made")
def _(lib: Any, log: Any) -> None:
    x, c = lib.var(2.0), lib.tensor(3.0)
    y = x * c
    log(x.is_leaf, c.is_leaf, (c * c).is_leaf, y.is_leaf, y.detach().is_leaf)
    log(y.detach().requires_grad_().is_leaf, x[None].is_leaf, x.grad_fn, (c * c).grad_fn)


@says("Tensor.retain_grad: makes .grad appear for what is no leaf; nothing for a leaf")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y, z = x * x, x * 3.0
    y.retain_grad()
    x.retain_grad()
    (y * z).backward()
    log(y.grad, z.grad, x.grad, y.retains_grad, x.retains_grad, z.retains_grad)


@says("Tensor.requires_grad_: begins to record, and gives the Tensor back")
def _(lib: Any, log: Any) -> None:
    w = lib.tensor([0.1, 0.2]) * 2.0
    log(w.requires_grad, w.requires_grad_() is w, w.requires_grad, w.is_leaf)
    (w * w).sum().backward()
    log(w.grad, w.requires_grad_(False).requires_grad, w.grad)


@says("Tensor.detach: never requires grad, shares the storage, and its writes are seen")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x * x
    d = y.detach()
    d += 10.0
    log(d.requires_grad, y, lib.version(y), lib.version(d))
    u = lib.exp(x)
    u.detach().zero_()
    with log.raises("modified by an inplace operation"):
        u.sum().backward()


@says("Tensor.detach: the result never has a tangent")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor(2.0), lib.tensor(1.0))
        log(ad.unpack_dual(x.detach()).tangent, ad.unpack_dual(x).tangent)


@says("Tensor.detach_: becomes a leaf; views cannot be detached in place")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x * x
    log(y.detach_() is y, y.is_leaf, y.grad_fn, y.requires_grad)
    with log.raises("view"):
        (x * x)[:1].detach_()


@says("Tensor.register_hook: may return a gradient to use instead; handle.remove()")
def _(lib: Any, log: Any) -> None:
    v = lib.var([0.0, 0.0, 0.0])
    h = v.register_hook(lambda g: g * 2.0)
    v.backward(lib.tensor([1.0, 2.0, 3.0]))
    log(v.grad)
    h.remove()
    v.backward(lib.tensor([1.0, 2.0, 3.0]))
    log(v.grad)


@says("Tensor.register_post_accumulate_grad_hook: may change the leaf, as a step of SGD does")
def _(lib: Any, log: Any) -> None:
    v = lib.var([0.0, 0.0, 0.0])

    def step(p: Any) -> None:
        log(lib.is_grad_enabled())
        p.add_(p.grad, alpha=-0.01)
        p.grad = None

    h = v.register_post_accumulate_grad_hook(step)
    v.backward(lib.tensor([1.0, 2.0, 3.0]))
    log(v, v.grad, v.is_leaf, v.requires_grad)
    h.remove()
    v.backward(lib.tensor([1.0, 2.0, 3.0]))
    log(v, v.grad)


@says("Tensor.register_post_accumulate_grad_hook: records with create_graph, and by enable_grad")
def _(lib: Any, log: Any) -> None:
    for create_graph in (False, True):
        v = lib.var(2.0)

        def hook(p: Any) -> None:
            log(lib.is_grad_enabled(), (p * p).requires_grad)
            with lib.enable_grad():
                log((p * p).requires_grad)

        v.register_post_accumulate_grad_hook(hook)
        (v * v).backward(create_graph=create_graph)


# Modes: no_grad, enable_grad, set_grad_enabled, inference_mode


@says("no_grad: results do not require grad, but new Tensors may")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.no_grad():
        log((x * x).requires_grad, lib.var(1.0).requires_grad, lib.tensor(1.0).requires_grad)
        log(x.clone().requires_grad, lib.exp(x).grad_fn)


@says("no_grad: also a decorator, of functions and of generators")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)

    @lib.no_grad()
    def double(x: Any) -> Any:
        return x * 2.0

    @lib.no_grad()
    def several(x: Any) -> Any:
        for k in range(2):
            yield x * float(k)

    log(double(x).requires_grad, [y.requires_grad for y in several(x)], lib.is_grad_enabled())


@says("no_grad: does not apply to forward mode")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor(2.0), lib.tensor(1.0))
        with lib.no_grad():
            y = x * x
        log(ad.unpack_dual(y).tangent)


@says("enable_grad: records inside of no_grad; a function is decorated for good")
def _(lib: Any, log: Any) -> None:
    x = lib.var(1.0)

    @lib.enable_grad()
    def double(x: Any) -> Any:
        return x * 2.0

    with lib.no_grad():
        with lib.enable_grad():
            y = x * 2.0
        z = double(x)
    y.backward()
    log(y.requires_grad, z.requires_grad, x.grad)


@says("set_grad_enabled: a block, or a function that sets the mode")
def _(lib: Any, log: Any) -> None:
    x = lib.var(1.0)
    with lib.set_grad_enabled(False):
        log((x * 2.0).requires_grad)
    lib.set_grad_enabled(False)
    log((x * 2.0).requires_grad)
    lib.set_grad_enabled(True)
    log((x * 2.0).requires_grad)


@says("modes: are local to their thread")
def _(lib: Any, log: Any) -> None:
    seen: list[bool] = []
    with lib.no_grad():
        thread = threading.Thread(target=lambda: seen.append(lib.is_grad_enabled()))
        thread.start()
        thread.join()
        log(seen, lib.is_grad_enabled())


@says("inference_mode: no requires_grad, no versions, a decorator with or without call")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with lib.inference_mode():
        y = x * x
    log(y.requires_grad, y.is_inference())
    with log.raises("Inference tensors do not track version counter"):
        lib.version(y)

    @lib.inference_mode
    def bare(x: Any) -> Any:
        return x * x

    @lib.inference_mode()
    def called(x: Any) -> Any:
        return x * x

    log(bare(x).requires_grad, called(x).requires_grad)


@says("inference_mode: also disables forward mode")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor(2.0), lib.tensor(1.0))
        with lib.inference_mode():
            y = x * x
        log(ad.unpack_dual(y).tangent)


@says(
    "inference_mode: its tensors may be used where nothing is recorded, and cloned to be recorded"
)
def _(lib: Any, log: Any) -> None:
    with lib.inference_mode():
        c = lib.tensor([1.0, 2.0])
        v = c[:1]
    x = lib.var([3.0, 4.0])
    log((c + c).requires_grad, v.is_inference(), (x + c).requires_grad)
    with log.raises("Inference tensors cannot be saved for backward"):
        x * c
    (x * c.clone()).sum().backward()
    log(x.grad, c.clone().is_inference())


@says("inference_mode: writes are allowed inside, and to its tensors nowhere else")
def _(lib: Any, log: Any) -> None:
    n = lib.tensor([1.0, 2.0])
    with lib.inference_mode():
        c = lib.tensor([1.0, 2.0])
        c += 1.0
        n += 1.0
        log(n.is_inference(), lib.lib.is_inference_mode_enabled() if lib.is_torch else True)
    with log.raises("Inplace update to inference tensor outside InferenceMode"):
        c += 1.0
    log(n, lib.version(n))


# Notes: autograd mechanics


@says("autograd mechanics: saved results are those of the node, with its place in the graph")
def _(lib: Any, log: Any) -> None:
    x = lib.var([2.0, 3.0])
    y = lib.exp(x)
    log(y is y.grad_fn._saved_result, y.grad_fn._saved_result)
    z = x * y
    log(z.grad_fn._saved_self, z.grad_fn._saved_other.grad_fn is y.grad_fn)


@says("autograd mechanics: a saved input that is a leaf is itself, a saved output another Tensor")
def _(lib: Any, log: Any) -> None:
    class Exp(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = lib.exp(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[1]

    x = lib.var([1.0, 2.0])
    y = Exp.apply(x)
    saved = y.grad_fn.saved_tensors
    log(saved[0], saved[1], saved[1] is y, saved[1].grad_fn is y.grad_fn, saved[0].is_leaf)


@says("autograd mechanics: the gradient where a function is not differentiable")
def _(lib: Any, log: Any) -> None:
    x = lib.var([0.0, 4.0])
    lib.sqrt(x).sum().backward()
    log(x.grad)
    x = lib.var([0.0, 1.0, -1.0])
    lib.np.sign(x).sum().backward()
    log(x.grad)
    x = lib.var([1.5, -0.5])
    lib.np.floor(x).sum().backward()
    log(x.grad)


@says("autograd mechanics: division by zero makes NaN where a mask hides it after the division")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 1.0])
    div = lib.tensor([0.0, 1.0])
    y = x / div
    lib.np.where(div != 0, y, lib.tensor(0.0)).sum().backward()
    log([g != g for g in x.grad.tolist()])


@says(
    "autograd mechanics: requires_grad is of leaves; what follows requires grad if one input does"
)
def _(lib: Any, log: Any) -> None:
    x, w = lib.tensor([1.0]), lib.var([2.0])
    log((x + x).requires_grad, (x * w).requires_grad)
    w.requires_grad_(False)
    log((x * w).requires_grad)
    with log.raises("leaf"):
        (x * lib.var([1.0])).requires_grad = False


@says("autograd mechanics: only floating and complex Tensors can require grad")
def _(lib: Any, log: Any) -> None:
    with log.raises("floating"):
        lib.tensor([1, 2], requires_grad=True)
    with log.raises():
        lib.tensor([True]).requires_grad_()
    log(lib.var([1.0 + 1.0j]).requires_grad)


@says("autograd mechanics: leaves in no_grad can be written to, and require grad after it")
def _(lib: Any, log: Any) -> None:
    w = lib.var([1.0, 2.0])
    (w * w).sum().backward()
    with lib.no_grad():
        w -= 0.5 * w.grad
        w[0] = 7.0
    log(w, w.requires_grad, w.is_leaf, w.grad_fn, lib.version(w))


@says("autograd mechanics: a write to a saved Tensor is found by its version in the backward pass")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    w = lib.tensor([3.0, 4.0])
    y = x * w
    log(lib.version(w))
    w.mul_(2.0)
    log(lib.version(w))
    with log.raises("modified by an inplace operation"):
        y.sum().backward()
    log(x.grad)


@says("autograd mechanics: a write to what nothing saved is fine, before and after its use")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x + 1.0
    z = y + 2.0
    y.mul_(3.0)
    (y + z).sum().backward()
    log(y, z, x.grad)


@says("autograd mechanics: a write rewrites the history: the Tensor gets the node of the operation")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x + 1.0
    before = y.grad_fn
    y.mul_(3.0)
    log(lib.op(before), lib.op(y.grad_fn), y.grad_fn.next_functions[0][0] is before)


@says("multithreading: each thread may build a graph and differentiate it; .grad accumulates all")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 1.0])

    def work() -> None:
        y = (x + 3.0) * (x + 4.0) * 0.5
        y.sum().backward()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    log(x.grad)


@says(
    "multithreading: a graph that two threads share may be freed by one: retain_graph, or an error"
)
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    shared = x * x
    a, b = shared.sum(), (shared * 2.0).sum()
    errors: list[str] = []

    def work(y: Any, retain: bool) -> None:
        try:
            y.backward(retain_graph=retain)
        except RuntimeError as error:
            errors.append("second time" if "second time" in str(error) else str(error))

    for y, retain in ((a, True), (b, False), (a, False)):
        thread = threading.Thread(target=work, args=(y, retain))
        thread.start()
        thread.join()
    log(errors, x.grad)


@says(
    "multithreading: hooks of Tensors and of saved values run in the thread of the pass on the CPU"
)
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    seen: list[bool] = []
    y = (x * x).sum()
    x.register_hook(lambda g: seen.append(threading.current_thread() is thread))
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    log(seen, x.grad)


@says("multithreading: a pass runs in the grad mode of create_graph, and leaves the caller's mode")
def _(lib: Any, log: Any) -> None:
    for create_graph in (False, True):
        x = lib.var(2.0)
        y = x * x
        x.register_hook(lambda g: log(lib.is_grad_enabled()))
        with lib.no_grad():
            lib.grad(y, x, create_graph=create_graph)
            log(lib.is_grad_enabled())


@says(
    "complex: the gradient is the conjugate Wirtinger derivative, the direction of steepest ascent"
)
def _(lib: Any, log: Any) -> None:
    def parts(x: Any) -> list[float]:
        z = complex(x.tolist())
        return [z.real, z.imag]

    for f in (
        lambda z: (z * z.conj()).real,
        lambda z: (z * z).real,
        lambda z: (z * z).imag,
        lambda z: abs(z),
        lambda z: (z.conj() * (2.0 + 1.0j)).real,
        lambda z: z.imag * z.real,
    ):
        z = lib.var(1.0 + 2.0j)
        f(z).backward()
        log(parts(z.grad))


@says("complex: a complex output needs its gradient, and a real input of it gets the real part")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * (1.0 + 3.0j)
    with log.raises("implicitly created only for real scalar outputs"):
        (y * 1.0).backward()
    y.backward(lib.tensor(1.0 + 1.0j))
    log(x.grad)


@says(
    "hooks: a hook of a Tensor sees the gradient before it is accumulated, in order of registration"
)
def _(lib: Any, log: Any) -> None:
    x = lib.var(1.0)
    x.register_hook(log.hook("first", lambda g: g * 2.0))
    x.register_hook(log.hook("second", lambda g: g + 1.0))
    x.register_post_accumulate_grad_hook(lambda t: log("post", t.grad))
    (x * 3.0).backward()
    log(x.grad)


@says("hooks: a hook registered before a write applies to the values before it")
def _(lib: Any, log: Any) -> None:
    t = lib.var(1.0)
    y = lib.sin(t)
    y.register_hook(log.hook("before"))
    y.retain_grad()
    y.mul_(2.0)
    y.register_hook(log.hook("after"))
    (y * 3.0).backward()
    log(t.grad, y.grad)


@says("hooks: a retain_grad hook is the last, however early it was registered, and follows a write")
def _(lib: Any, log: Any) -> None:
    t = lib.var(1.0)
    y = lib.sin(t)
    y.retain_grad()
    y.register_hook(lambda g: g * 2.0)
    y.mul_(2.0)
    y.backward()
    log(y.grad, t.grad)


@says("hooks: in a pass to inputs, hooks of what is not needed do not run")
def _(lib: Any, log: Any) -> None:
    a, b = lib.var(1.0), lib.var(2.0)
    c, d = a * 2.0, b * 3.0
    for name, t in (("a", a), ("b", b), ("c", c), ("d", d)):
        t.register_hook(log.hook(name))
    (c * d).backward(inputs=[a])
    log(a.grad, b.grad)


@says("hooks: hooks of the captured Tensor run with autograd.grad; post-accumulate hooks do not")
def _(lib: Any, log: Any) -> None:
    x = lib.var(1.0)
    x.register_hook(log.hook("hook", lambda g: g * 5.0))
    x.register_post_accumulate_grad_hook(lambda t: log("post"))
    log(lib.grad(x * 3.0, x))


@says("hooks: one that is registered by a module on a Tensor keeps the Tensor no longer alive")
def _(lib: Any, log: Any) -> None:
    x = lib.var(1.0)
    y = x * 2.0
    y.register_hook(lambda g: None)
    dead = weakref.ref(y)
    del y
    log(dead() is None)


# torch.autograd.graph


@says("Node.register_hook: may return other gradients of the inputs; remove takes it away")
def _(lib: Any, log: Any) -> None:
    a = lib.var([0.0, 0.0, 0.0])
    b = a * 1.0
    handle = b.grad_fn.register_hook(lambda gi, go: (go[0] * 2.0, *gi[1:]))
    b.sum().backward(retain_graph=True)
    log(a.grad)
    handle.remove()
    a.grad = None
    b.sum().backward()
    log(a.grad)


@says("Node.register_prehook: may return other gradients of the outputs")
def _(lib: Any, log: Any) -> None:
    a = lib.var([0.0, 0.0, 0.0])
    b = a * 1.0
    handle = b.grad_fn.register_prehook(lambda go: (go[0] * 2.0,))
    b.sum().backward(retain_graph=True)
    log(a.grad)
    handle.remove()
    a.grad = None
    b.sum().backward()
    log(a.grad)


@says("Node.metadata: a dict of the user's; Node.next_functions: the nodes of the inputs")
def _(lib: Any, log: Any) -> None:
    a, b = lib.var(1.0), lib.var(2.0)
    c = a * b
    log(c.grad_fn.metadata, isinstance(c.grad_fn, lib.graph.Node), lib.op(c.grad_fn))
    log([(lib.op(n), k) for n, k in c.grad_fn.next_functions])
    c.grad_fn.metadata["key"] = 1
    log(c.grad_fn.metadata)


@says("saved_tensors_hooks: pack gets what is saved, unpack what pack gave, in the pass")
def _(lib: Any, log: Any) -> None:
    a, b = lib.var([1.0, 1.0]), lib.var([1.0, 1.0]) * 2.0

    seen: list[Any] = []

    def pack(x: Any) -> Any:
        seen.append(["pack", x.tolist()])
        return x.detach()

    def unpack(x: Any) -> Any:
        seen.append(["unpack", x.tolist()])
        return x

    with lib.graph.saved_tensors_hooks(pack, unpack):
        y = a * b
    log(sorted(seen))  # which of the two is first is up to the operation
    y.sum().backward()
    log(sorted(seen), a.grad)


@says("saved_tensors_hooks: pack may return anything, e.g. a number of a table, or a file's name")
def _(lib: Any, log: Any) -> None:
    kept: dict[str, Any] = {}

    def pack(x: Any) -> str:
        kept[str(len(kept))] = x.detach().clone()
        return str(len(kept) - 1)

    x = lib.var([1.0, 2.0])
    with lib.graph.saved_tensors_hooks(pack, lambda name: kept[name]):
        y = lib.exp(x) * x
    y.sum().backward()
    log(len(kept), x.grad)


@says("saved_tensors_hooks: only the innermost pair applies")
def _(lib: Any, log: Any) -> None:
    hooks = lib.graph.saved_tensors_hooks
    x = lib.var(2.0)
    with hooks(lambda t: t * 10.0, lambda t: t):
        with hooks(lambda t: t * 100.0, lambda t: t):
            y = x * x
        z = x * x
    log(lib.grad(y, x), lib.grad(z, x))


@says("saved_tensors_hooks: what a Function saves is packed too; attributes of ctx are not")
def _(lib: Any, log: Any) -> None:
    class Scale(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.other = x.detach() * 3.0
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log(ctx.saved_tensors[0], ctx.other)
            return g * ctx.saved_tensors[0]

    x = lib.var([1.0, 2.0])
    with lib.graph.saved_tensors_hooks(lambda t: t + 10.0, lambda t: t):
        y = Scale.apply(x)
    y.sum().backward()
    log(x.grad)


@says(
    "saved tensors hooks tutorial: _raw_saved_tensors of a Function's node takes hooks, one value each"
)
def _(lib: Any, log: Any) -> None:
    class Product(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            z = x * y
            ctx.save_for_backward(x, z, None, z + 1.0)
            return z

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log(ctx.saved_tensors, ctx.saved_tensors[0].grad_fn is u.grad_fn)
            return g, g

    x, y = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    u = x * 1.0
    z = Product.apply(u, y)
    raw = z.grad_fn._raw_saved_tensors
    log(len(raw), [type(r).__name__ for r in raw])
    raw[0].register_hooks(lambda t: t * 10.0, lambda t: t + 1.0)
    raw[3].register_hooks(lambda t: str(t.tolist()), lambda name: lib.tensor(eval(name)))
    with log.raises("whose hooks have already been set"):
        raw[0].register_hooks(lambda t: t, lambda t: t)
    with log.raises("value None is forbidden"):
        raw[2].register_hooks(lambda t: t, lambda t: t)
    log(z.grad_fn.saved_tensors)
    z.sum().backward()
    with log.raises("second time"):
        z.grad_fn._raw_saved_tensors


@says("saved_tensors_hooks: what a Function saved keeps its place in the graph")
def _(lib: Any, log: Any) -> None:
    class Square(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * x + y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            log(x.grad_fn is u.grad_fn, x.output_nr, y.grad_fn)
            return 2.0 * x * g, g

    for create_graph in (False, True):
        x, y = lib.var([1.0, 2.0, 3.0, 4.0]), lib.var([1.0, 1.0])
        halves = lib.halves(x * 1.0)
        u = halves[1]
        with lib.graph.saved_tensors_hooks(lambda t: t * 1.0, lambda t: t):
            z = Square.apply(u, y)
        log(lib.grad(z.sum(), x, create_graph=create_graph))


@says("saved_tensors_hooks: the hooks must be functions")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with log.raises(caught=RuntimeError):
        with lib.graph.saved_tensors_hooks(3, 4):
            x * x
    with log.raises():
        with lib.graph.saved_tensors_hooks(lambda t: t):
            x * x


@says("save_on_cpu: gradients are the same")
def _(lib: Any, log: Any) -> None:
    a, b, c = lib.var([1.0, 2.0]), lib.var([3.0, 4.0]), lib.var([5.0, 6.0])
    p = a * b
    with lib.graph.save_on_cpu(pin_memory=False):
        q = p * c
    (q * a).sum().backward()
    log(a.grad, b.grad, c.grad)


@says("disable_saved_tensors_hooks: using hooks raises the message")
def _(lib: Any, log: Any) -> None:
    message = "saved tensors default hooks are disabled"
    with lib.graph.disable_saved_tensors_hooks(message):
        with log.raises(message):
            with lib.graph.save_on_cpu():
                pass
    with lib.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        with log.raises(message):
            with lib.graph.disable_saved_tensors_hooks(message):
                pass


@says("register_multi_grad_hook: all mode, with None for what the pass does not reach")
def _(lib: Any, log: Any) -> None:
    a, b = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    c, d = a * b, a * b
    lib.graph.register_multi_grad_hook((a, b, c, d), lambda gs: log([g is not None for g in gs]))
    c.sum().backward(retain_graph=True)
    c.sum().backward(inputs=(a,), retain_graph=True)


@says("register_multi_grad_hook: any mode, with the first gradient")
def _(lib: Any, log: Any) -> None:
    a, b = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    c, d = a * b, a * b
    handle = lib.graph.register_multi_grad_hook((a, b, c, d), log.hook("any"), mode="any")
    c.sum().backward(retain_graph=True)
    handle.remove()
    c.sum().backward()


@says("allow_mutation_on_saved_tensors: the pass uses what was saved")
def _(lib: Any, log: Any) -> None:
    with lib.graph.allow_mutation_on_saved_tensors():
        a = lib.var([1.0, 1.0])
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        out.backward()
    log(a.grad, b)


@says("get_gradient_edge: the place of a Tensor's gradient, also when the Tensor is gone")
def _(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    edge = lib.edge(y)
    log(edge.node is y.grad_fn, edge.output_nr)
    z = y * 3.0
    del y
    log(lib.grad(z, edge), lib.op(lib.edge(x).node))
    with log.raises():
        lib.edge(lib.tensor(1.0))


# torch.autograd.forward_ad


@says(
    "forward_ad: a dual Tensor carries its tangent through what is computed, until the level ends"
)
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    primal, tangent = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 10.0])
    with ad.dual_level():
        x = ad.make_dual(primal, tangent)
        log(ad.unpack_dual(x).tangent, ad.unpack_dual(x).primal)
        y = lib.sin(x) * x
        log(ad.unpack_dual(y).tangent)
        log(ad.unpack_dual(lib.tensor([1.0])).tangent)
    log(ad.unpack_dual(y, level=0).tangent if lib.is_torch else None, y)


@says("forward_ad: make_dual and unpack_dual are outside of a level an error")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with log.raises("level"):
        ad.make_dual(lib.tensor(1.0), lib.tensor(1.0))


@says(
    "forward_ad: primal and tangent have one shape and dtype, and the dtype is floating or complex"
)
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        with log.raises(caught=RuntimeError):
            ad.make_dual(lib.tensor([1.0]), lib.tensor([1.0, 2.0]))
        with log.raises(caught=ValueError):
            ad.make_dual(lib.tensor([1]), lib.tensor([1.0]))
        with log.raises(caught=ValueError):
            ad.make_dual(lib.tensor([1.0]), lib.tensor([1]))


@says("forward_ad: make_dual is a view of its primal; a write to it is seen there")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    primal = lib.tensor([1.0, 2.0])
    with ad.dual_level():
        x = ad.make_dual(primal, lib.tensor([1.0, 1.0]))
        x.mul_(2.0)
        log(ad.unpack_dual(x).tangent, primal)
        log(ad.unpack_dual(primal).tangent)


@says("forward_ad: a write of a dual gives a Tensor a tangent")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor([1.0, 2.0]), lib.tensor([1.0, 1.0]))
        y = lib.tensor([0.0, 0.0])
        y.copy_(x * 3.0)
        log(ad.unpack_dual(y).tangent)
        z = lib.tensor([0.0, 0.0])
        z[0] = x[1] * 2.0
        log(ad.unpack_dual(z).tangent, z)


@says("forward_ad: it is backward differentiable: reverse over forward")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    p, t = lib.var(2.0), lib.var(3.0)
    with ad.dual_level():
        x = ad.make_dual(p, t)
        out = ad.unpack_dual(x * x * x)
        log(lib.grad(out.tangent, [p, t], retain_graph=True), lib.grad(out.primal, p))


@says("forward_ad: a Function without jvp is an error there; with one it is used")
def _(lib: Any, log: Any) -> None:
    class Fn(lib.Function):
        @staticmethod
        def forward(ctx: Any, foo: Any) -> Any:
            result = lib.exp(foo)
            ctx.result = result
            return result

        @staticmethod
        def jvp(ctx: Any, gI: Any) -> Any:
            out = gI * ctx.result
            del ctx.result
            return out * 100.0

    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor([0.0, 0.0]), lib.tensor([1.0, 2.0]))
        log(ad.unpack_dual(Fn.apply(x)).tangent)


@says("forward_ad: enter_dual_level and exit_dual_level do what the block does")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad if lib.is_torch else lib.autograd.forward_ad
    level = ad.enter_dual_level()
    x = ad.make_dual(lib.tensor(2.0), lib.tensor(1.0))
    y = x * x
    log(ad.unpack_dual(y).tangent)
    ad.exit_dual_level()
    with log.raises():
        ad.make_dual(lib.tensor(1.0), lib.tensor(1.0))
    with log.raises():
        ad.exit_dual_level(level=level + 5 if isinstance(level, int) else level)


@says("forward_ad: parts of a module are replaced by duals; what is not floating has no tangent")
def _(lib: Any, log: Any) -> None:
    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor([3.0, 1.0, 2.0]), lib.tensor([1.0, 2.0, 3.0]))
        log(ad.unpack_dual(x > 1.5).tangent, ad.unpack_dual(lib.np.argmax(x)).tangent)
        log(ad.unpack_dual(lib.np.where(x > 1.5, x, -x)).tangent)


# Notes: extending torch.autograd


class _Notes:
    """Rules that PyTorch's pages use as examples, for one of the two libraries."""

    def __init__(self, lib: Any) -> None:
        class Cube(lib.Function):
            @staticmethod
            def forward(x: Any) -> Any:
                return x**3, 3 * x**2

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(inputs[0], output[1])
                ctx.save_for_forward(inputs[0], output[1])

            @staticmethod
            def backward(ctx: Any, g: Any, g_dx: Any) -> Any:
                x, dx = ctx.saved_tensors
                return g * dx + g_dx * 6 * x

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                x, dx = ctx.saved_tensors
                return t * dx, 6 * t * x

            @staticmethod
            def vmap(info: Any, in_dims: Any, x: Any) -> Any:
                return Cube.apply(x), (in_dims[0], in_dims[0])

        class MulConstant(lib.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any, constant: Any) -> Any:
                return x * constant

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                _, constant = inputs
                ctx.constant = constant

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.constant, None

        self.cube: Any = Cube.apply
        self.multiply: Any = MulConstant.apply


@says("Function: the example of Exp, which saves its result")
def _(lib: Any, log: Any) -> None:
    class Exp(lib.Function):
        @staticmethod
        def forward(ctx: Any, i: Any) -> Any:
            result = lib.exp(i)
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (result,) = ctx.saved_tensors
            return g * result

    x = lib.var([1.0, 2.0])
    y = Exp.apply(x)
    (g,) = lib.grad(y.sum(), x, create_graph=True)
    log(y, g, lib.grad(g.sum(), x))


@says("Function: arguments that are no tensors get None, and keep their gradients to themselves")
def _(lib: Any, log: Any) -> None:
    m = _Notes(lib)
    x = lib.var([1.0, 2.0])
    (y,) = (m.multiply(x, 5.0),)
    y.sum().backward()
    log(y, x.grad)
    log(lib.func.vmap(m.multiply, (0, None))(lib.tensor([1.0, 2.0]), 3.0))


@says("Function: returned intermediate values support double backward")
def _(lib: Any, log: Any) -> None:
    m = _Notes(lib)
    x = lib.var(2.0)
    (g,) = lib.grad(m.cube(x)[0], x, create_graph=True)
    (h,) = lib.grad(g, x, create_graph=True)
    log(g, h)
    log(lib.gradgradcheck(lambda x: m.cube(x)[0], [_double(lib, [1.5])]))


def _double(lib: Any, data: Any) -> Any:
    """A leaf for checks by finite differences."""
    return (
        torch.tensor(data, dtype=torch.float64, requires_grad=True)
        if lib.is_torch
        else lib.var(data)
    )


@says("extending torch.func: a Function under grad, vmap and jvp, with its own rules")
def _(lib: Any, log: Any) -> None:
    m, func = _Notes(lib), lib.func
    f = lambda x: m.cube(x)[0]
    x = lib.tensor([1.0, 2.0, 3.0])
    log(func.vmap(f)(x), func.vmap(func.grad(f))(x), func.vmap(func.grad(func.grad(f)))(x))
    log(func.jvp(f, (x,), (x,)), func.jacrev(f)(x), func.jacfwd(f)(x))


@says("Function: needs_input_grad says which gradients are needed")
def _(lib: Any, log: Any) -> None:
    class Linear(lib.Function):
        @staticmethod
        def forward(x: Any, weight: Any, bias: Any) -> Any:
            return x * weight if bias is None else x * weight + bias

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[:2])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, weight = ctx.saved_tensors
            log(ctx.needs_input_grad)
            needs = ctx.needs_input_grad
            return (
                g * weight if needs[0] else None,
                g * x if needs[1] else None,
                g if needs[2] else None,
            )

    x, w, b = lib.tensor([1.0, 2.0]), lib.var([3.0, 4.0]), lib.var([0.0, 0.0])
    Linear.apply(x, w, b).sum().backward()
    log(w.grad, b.grad)
    Linear.apply(x, w, None).sum().backward()
    log(w.grad)


@says("Function: trailing Nones may be returned beyond the arguments; a real gradient may not")
def _(lib: Any, log: Any) -> None:
    def make(result: Any) -> Any:
        class Scale(lib.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return result(g)

        return Scale.apply

    x = lib.var([1.0, 2.0])
    make(lambda g: (g * 2.0, None, None))(x).sum().backward()
    log(x.grad)
    with log.raises():
        make(lambda g: (g, g))(x).sum().backward()
    with log.raises():
        make(lambda g: ())(x).sum().backward()


@says("Function: None as gradient of an argument that requires grad is no gradient")
def _(lib: Any, log: Any) -> None:
    class Zero(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None, g * 7.0

    x, y = lib.var([1.0, 2.0]), lib.var([1.0, 2.0])
    Zero.apply(x, y).sum().backward()
    log(x.grad, y.grad)


@says("Function: outputs that are no tensors are handed through")
def _(lib: Any, log: Any) -> None:
    class Pair(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0, "text", 3

        @staticmethod
        def backward(ctx: Any, g: Any, *others: Any) -> Any:
            log(others)
            return g * 2.0

    x = lib.var([1.0, 2.0])
    y, text, number = Pair.apply(x)
    y.sum().backward()
    log(text, number, x.grad)


@says("Function: set_materialize_grads(False) gives None for outputs that got no gradient")
def _(lib: Any, log: Any) -> None:
    for materialize in (True, False):

        class Two(lib.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(materialize)
                return x.clone(), x.clone()

            @staticmethod
            def backward(ctx: Any, g1: Any, g2: Any) -> Any:
                log(g1, g2)
                return g1

        x = lib.var([1.0, 2.0])
        Two.apply(x)[0].sum().backward()
        log(x.grad)


@says("Function: mark_non_differentiable: no requires_grad, and zeros for its gradient")
def _(lib: Any, log: Any) -> None:
    class Sort(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            index = lib.np.argsort(x)
            sorted_x = x[index]
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(x, index)
            return sorted_x, index

        @staticmethod
        def backward(ctx: Any, g1: Any, g2: Any) -> Any:
            x, index = ctx.saved_tensors
            log(g2)
            out = lib.np.zeros_like(x)
            out[index] = g1
            return out

    x = lib.var([3.0, 1.0, 2.0])
    y, index = Sort.apply(x)
    log(y, index, index.requires_grad, y.requires_grad)
    (y * lib.tensor([1.0, 2.0, 3.0])).sum().backward()
    log(x.grad)


@says(
    "Function: mark_dirty: the input gets the node of the Function, and earlier uses are found out"
)
def _(lib: Any, log: Any) -> None:
    class Inplace(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x += 1.0
            ctx.mark_dirty(x)
            return x

        @staticmethod
        @lib.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g

    a = lib.var(1.0).clone()
    b = a * a
    out = Inplace.apply(a)
    log(out is a, a, lib.version(a) > 0, a.grad_fn.name())
    with log.raises("modified by an inplace operation"):
        b.backward()


@says("Function: forward does not record; a rule may make a graph of its own, in enable_grad")
def _(lib: Any, log: Any) -> None:
    class Checkpoint(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            log((x * 2.0).requires_grad)
            ctx.save_for_backward(x)
            return lib.sin(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            log(lib.is_grad_enabled())
            with lib.enable_grad():
                y = x.detach().requires_grad_()
                out = lib.sin(y)
            return lib.grad(out, y, g)[0]

    x = lib.var(2.0)
    y = Checkpoint.apply(x)
    y.backward()
    log(x.grad)


@says("Function: backward runs in the mode of create_graph")
def _(lib: Any, log: Any) -> None:
    class Square(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log(lib.is_grad_enabled(), (g * ctx.saved_tensors[0]).requires_grad)
            return 2.0 * g * ctx.saved_tensors[0]

    for create_graph in (False, True):
        x = lib.var(3.0)
        (g,) = lib.grad(Square.apply(x), x, create_graph=create_graph)
        log(g.requires_grad)


@says("Function: vjp is backward under its other name; both is an error")
def _(lib: Any, log: Any) -> None:
    class Double(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 20.0

    x = lib.var(1.0)
    Double.apply(x).backward()
    log(x.grad)

    with log.raises("vjp"):

        class Both(lib.Function):
            forward = staticmethod(lambda ctx, x: x * 2.0)
            vjp = backward = staticmethod(lambda ctx, g: g)

        Both.apply(x).backward()


@says("Function: both a vmap method and generate_vmap_rule is an error")
def _(lib: Any, log: Any) -> None:
    with log.raises("generate_vmap_rule"):

        class Both(lib.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any) -> Any:
                return x * 1.0

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                pass

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

            @staticmethod
            def vmap(info: Any, in_dims: Any, x: Any) -> Any:
                return x * 1.0, in_dims[0]

        lib.func.vmap(Both.apply)(lib.tensor([1.0, 2.0]))


@says("Function.vmap: info has batch_size and randomness; in_dims is None for what is not mapped")
def _(lib: Any, log: Any) -> None:
    class Mul(lib.Function):
        @staticmethod
        def forward(x: Any, y: Any, c: Any) -> Any:
            return x * y * c

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, y: Any, c: Any) -> Any:
            log(info.batch_size, info.randomness, in_dims, c)
            return Mul.apply(x, y, c), 0

    x = lib.tensor([1.0, 2.0, 3.0])
    log(
        lib.func.vmap(lambda x, y: Mul.apply(x, y, 2.0), (0, None), randomness="same")(
            x, lib.tensor(5.0)
        )
    )


@says("Function.vmap: is called where one of the inputs is mapped, and not where none is")
def _(lib: Any, log: Any) -> None:
    class Double(lib.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            log("vmap")
            return x * 3.0, 0

    c = lib.tensor(1.0)
    log(lib.func.vmap(lambda x: x + Double.apply(c))(lib.tensor([1.0, 2.0])))
    log(lib.func.vmap(Double.apply)(lib.tensor([1.0, 2.0])))


@says("Function.jvp: saved_tensors are those of save_for_forward; None for what has no tangent")
def _(lib: Any, log: Any) -> None:
    class Fn(lib.Function):
        @staticmethod
        def forward(x: Any, y: Any, z: Any) -> Any:
            return x * y * z

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, y, z = inputs
            ctx.save_for_backward(y)
            ctx.save_for_forward(x, y)
            ctx.z = z

        @staticmethod
        def jvp(ctx: Any, x_t: Any, y_t: Any, z_t: Any) -> Any:
            x, y = ctx.saved_tensors
            log(len(ctx.saved_tensors), z_t, y_t)
            return ctx.z * (y * x_t + x * y_t)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            log(len(ctx.saved_tensors))
            return ctx.z * g * ctx.saved_tensors[0], None, None

    x, y = lib.var(2.0), lib.tensor(3.0)
    lib.grad(Fn.apply(x, y, 4), x)
    ad = lib.forward_ad
    with ad.dual_level():
        a = ad.make_dual(lib.tensor(2.0), lib.tensor(1.0))
        log(ad.unpack_dual(Fn.apply(a, y, 4)).tangent)


@says("save_for_backward: may be given None; what is not saved through it is kept as it is")
def _(lib: Any, log: Any) -> None:
    class Maybe(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            ctx.names = ["a"]
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            log(ctx.saved_tensors, ctx.names)
            return g * 2.0, None

    x = lib.var(3.0)
    Maybe.apply(x, None).backward()


@says("once_differentiable: differentiating the backward raises")
def _(lib: Any, log: Any) -> None:
    class Func(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, z: Any) -> Any:
            w = x * z
            out = x * y + y * z + w * y
            ctx.save_for_backward(x, y, w, out)
            ctx.z = z
            return out

        @staticmethod
        @lib.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            x, y, w, _ = ctx.saved_tensors
            z = ctx.z
            return g * (y + y * z), g * (x + z + w), None

    a, b = lib.var(1.0), lib.var(2.0)
    for gradient in (lib.tensor(1.0), lib.var(1.0)):
        g = lib.grad(Func.apply(a, b, 4), [a, b], gradient, create_graph=True)
        log(g)
        with log.raises():
            lib.grad(g[0], a)


# Tutorial: double backward with custom Functions


@says("double backward tutorial: saving an input")
def _(lib: Any, log: Any) -> None:
    class Square(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2.0 * x

    x = lib.var(3.0)
    (g,) = lib.grad(Square.apply(x), x, create_graph=True)
    log(g, lib.grad(g, x))


@says("double backward tutorial: saving intermediate results and returning them")
def _(lib: Any, log: Any) -> None:
    class Sinh(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            expx, expnegx = lib.exp(x), lib.exp(-x)
            ctx.save_for_backward(expx, expnegx)
            return (expx - expnegx) / 2, expx, expnegx

        @staticmethod
        def backward(ctx: Any, g: Any, g_exp: Any, g_neg: Any) -> Any:
            expx, expnegx = ctx.saved_tensors
            return g * (expx + expnegx) / 2 + g_exp * expx - g_neg * expnegx

    x = lib.var(1.5)
    (g,) = lib.grad(Sinh.apply(x)[0], x, create_graph=True)
    log(g, lib.grad(g, x))


@says("double backward tutorial: a backward that is a Function")
def _(lib: Any, log: Any) -> None:
    class CubeForward(lib.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return CubeBackward.apply(g, ctx.saved_tensors[0])

    class CubeBackward(lib.Function):
        @staticmethod
        def forward(ctx: Any, g: Any, x: Any) -> Any:
            ctx.save_for_backward(x, g)
            return g * 3 * x**2

        @staticmethod
        def backward(ctx: Any, sav_g: Any) -> Any:
            x, g = ctx.saved_tensors
            return sav_g * 3 * x**2, sav_g * g * 6 * x

    x = lib.var(2.0)
    (g,) = lib.grad(CubeForward.apply(x), x, create_graph=True)
    log(g, lib.grad(g, x), g.grad_fn.name())


# torch.func


@says("func.grad: nests, and argnums and has_aux say what is returned")
def _(lib: Any, log: Any) -> None:
    grad = lib.func.grad
    x, y = lib.tensor(0.5), lib.tensor(2.0)
    log(grad(lib.sin)(x), grad(grad(lib.sin))(x), grad(lambda a, b: a * b * b, argnums=1)(x, y))
    log(grad(lambda a, b: a * b * b, argnums=(0, 1))(x, y))
    log(grad(lambda a: (a * a, a * 3.0), has_aux=True)(x))
    log(grad(lambda a, b: (a * b, (a, b)), argnums=(1,), has_aux=True)(x, y))
    log(grad(lambda a, *, scale: a * scale)(x, scale=4.0))


@says("func.grad: the function returns one element, as a scalar, of whatever rank")
def _(lib: Any, log: Any) -> None:
    log(lib.func.grad(lambda x: (x * x).sum())(lib.tensor([1.0, 2.0])))
    with log.raises():
        lib.func.grad(lambda x: x * x)(lib.tensor([1.0, 2.0]))


@says("func.grad: an inner no_grad is respected, an outer one is not")
def _(lib: Any, log: Any) -> None:
    def f(x: Any) -> Any:
        with lib.no_grad():
            c = x**2
        return x - c

    x = lib.tensor(2.0)
    log(lib.func.grad(f)(x))
    with lib.no_grad():
        log(lib.func.grad(f)(x), lib.func.vjp(f, x)[1](lib.tensor(1.0)), lib.func.jacrev(f)(x))


@says("func.grad_and_value: (gradient, value), with aux beside the value")
def _(lib: Any, log: Any) -> None:
    x = lib.tensor(2.0)
    log(lib.func.grad_and_value(lambda x: x**2)(x))
    log(lib.func.grad_and_value(lambda x: (x**2, x * 5.0), has_aux=True)(x))
    log(lib.func.grad_and_value(lambda x, y: x * y, argnums=(0, 1))(x, x * 3.0))


@says("func.vjp: as grad; several outputs, structures, all primals, keywords at their defaults")
def _(lib: Any, log: Any) -> None:
    vjp, one = lib.func.vjp, lib.tensor([1.0, 1.0])
    x, y = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    log(vjp(lambda x: lib.sin(x).sum(), x)[1](lib.tensor(1.0)))
    log(vjp(lambda x: (lib.sin(x), lib.exp(x)), x)[1]((one, one)))
    log(vjp(lambda x: {"a": lib.sin(x), "b": lib.exp(x)}, x)[1]({"a": one, "b": one}))
    log(vjp(lambda x, y: x * y, x, y)[1](one))
    log(vjp(lambda x, scale=4.0: x * scale, x)[1](one))
    out, f, aux = vjp(lambda x: (x * x, x.sum()), x, has_aux=True)
    log(out, f(one), aux)


@says("func.vjp: the function that it returns may be called again and again")
def _(lib: Any, log: Any) -> None:
    _, f = lib.func.vjp(lambda x: x**3, lib.tensor([1.0, 2.0]))
    log(f(lib.tensor([1.0, 0.0])), f(lib.tensor([0.0, 1.0])))


@says("func.jvp: (output, tangent); primals and tangents are tuples; aux comes last")
def _(lib: Any, log: Any) -> None:
    jvp, one = lib.func.jvp, lib.tensor(1.0)
    x = lib.tensor(2.0)
    log(jvp(lambda x: x * lib.tensor([1.0, 2.0, 3.0]), (x,), (one,)))
    log(jvp(lambda x, y: x * y, (x, x), (one, one)))
    log(jvp(lambda x: (x * x, x * 7.0), (x,), (one,), has_aux=True))
    with log.raises():
        jvp(lambda x: x, x, one)


@says("func.linearize: the output, and the function of tangents")
def _(lib: Any, log: Any) -> None:
    out, f = lib.func.linearize(lib.sin, lib.tensor([0.0, 0.5]))
    log(out, f(lib.tensor([1.0, 1.0])), f(lib.tensor([0.0, 2.0])))


@says("func.jacrev and jacfwd: a Jacobian; with vmap batches of them; composed a Hessian")
def _(lib: Any, log: Any) -> None:
    x = lib.tensor([0.1, 0.2])
    for jac in (lib.func.jacrev, lib.func.jacfwd):
        log(jac(lib.sin)(x), lib.func.vmap(jac(lib.sin))(lib.tensor([[0.1, 0.2], [0.3, 0.4]])))
        log(jac(jac(lambda x: lib.sin(x).sum()))(x))
        log(jac(lambda x, y: x + y**2, argnums=1)(x, x))
        log(jac(lambda x, y: x + y**2, argnums=(0, 1))(x, x))
        log(jac(lambda x: (lib.sin(x), x * 2.0), has_aux=True)(x))
        log(jac(lambda x: {"a": x * x, "b": x.sum()})(x))
    log(lib.func.jacrev(lib.sin, chunk_size=1)(x), lib.func.hessian(lambda x: (x**3).sum())(x))


@says("func.vmap: in_dims, out_dims, nested structures, nesting, keyword arguments are not mapped")
def _(lib: Any, log: Any) -> None:
    vmap = lib.func.vmap
    x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    v = lib.tensor([10.0, 20.0])
    dot = lambda a, b: (a * b).sum()
    log(vmap(dot)(x, x), vmap(dot, in_dims=1)(x, x), vmap(dot, in_dims=(0, None))(x, v))
    log(vmap(dot, in_dims=(1, None))(x, v), vmap(lambda a: a * 2.0, in_dims=-1)(x))
    log(vmap(lambda d: dot(d["x"], d["y"]), in_dims=({"x": 0, "y": None},))({"x": x, "y": v}))
    log(vmap(lambda a: a * 2.0, out_dims=1)(x), vmap(lambda a: (a, a * 2.0), out_dims=(0, 1))(x))
    log(vmap(vmap(lambda a: a + 1.0))(x), vmap(lambda a, scale: a * scale)(x, scale=4.0))
    log(vmap(dot, chunk_size=1)(x, x), vmap(lambda a: v)(x))


@says("func.vmap: a batched gradient by autograd.grad, the Jacobian in one call")
def _(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0, 3.0])
    y = x**2
    basis = lib.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    log(lib.func.vmap(lambda v: lib.grad(y, x, v, retain_graph=True)[0])(basis))


@says(
    "func UX limitations: results are returned, not leaked; assignments to globals are not undone"
)
def _(lib: Any, log: Any) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(3.0)
        return x * x

    log(lib.func.grad(f)(lib.tensor(2.0)), kept)


@says("func UX limitations: writes to intermediate values are fine under grad and vmap")
def _(lib: Any, log: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y.add_(2.0)
        y.mul_(x)
        return y.sum()

    x = lib.tensor([1.0, 2.0])
    log(lib.func.grad(f)(x), lib.func.vmap(lib.func.grad(f))(x), lib.func.jvp(f, (x,), (x,)))


@says(
    "func UX limitations: a write to an argument of vmap is seen in it; to one not mapped is an error"
)
def _(lib: Any, log: Any) -> None:
    x, y = lib.tensor([1.0, 2.0]), lib.tensor([10.0, 20.0])

    def f(x: Any, y: Any) -> Any:
        x.add_(y)
        return x

    log(lib.func.vmap(f)(x, y), x)
    with log.raises():
        lib.func.vmap(f, in_dims=(None, 0))(lib.tensor([1.0]), lib.tensor([[10.0], [20.0]]))


@says(
    "func UX limitations: data-dependent control flow and item are errors in vmap; where is right"
)
def _(lib: Any, log: Any) -> None:
    x = lib.tensor([-1.0, 2.0])
    for f in (lambda x: x if x.sum() > 0 else -x, lambda x: x.item(), lambda x: float(x)):
        with log.raises(caught=RuntimeError):
            lib.func.vmap(f)(x)
    log(lib.func.vmap(lambda x: lib.np.where(x > 0, x, -x))(x))


@says("func UX limitations: shapes that depend on data are errors in vmap")
def _(lib: Any, log: Any) -> None:
    with log.raises(caught=RuntimeError):
        lib.func.vmap(lambda x: x[x > 0])(lib.tensor([[1.0, -1.0], [2.0, 3.0]]))


@says("func UX limitations: autograd.grad with respect to arguments of a transform, inside of it")
def _(lib: Any, log: Any) -> None:
    def f(x: Any) -> Any:
        (g,) = lib.grad((x**3).sum(), x, create_graph=True)
        return g.sum()

    if lib.is_torch:
        log([[6.0, 12.0]])
    else:
        log([lib.func.grad(f)(lib.tensor([1.0, 2.0]))])


@says("func.functionalize: the same results, writes to arguments included")
def _(lib: Any, log: Any) -> None:
    def f(a: Any) -> Any:
        b = a + 1.0
        c = b.view(-1) if lib.is_torch else b.reshape(-1)
        c.add_(1.0)
        return b

    def g(a: Any) -> Any:
        b = a.view(-1) if lib.is_torch else a.reshape(-1)
        b.add_(1.0)
        return a

    for remove in ("mutations", "mutations_and_views"):
        x = lib.tensor([[1.0, 2.0]])
        log(lib.func.functionalize(f, remove=remove)(x), x)
        log(lib.func.functionalize(g, remove=remove)(x), x)
    log(lib.func.functionalize(lib.func.grad(lambda x: (f(x) * x).sum()))(lib.tensor([1.0, 2.0])))


# torch.autograd.functional


@says("functional.vjp and jvp: (output, product); v may be left out for one element")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x, v = lib.tensor([[1.0, 2.0], [3.0, 4.0]]), lib.tensor([1.0, 10.0])
    log(m.vjp(lambda x: x.sum(1), x, v), m.jvp(lambda x: x.sum(1), x, x))
    log(m.vjp(lambda x: x.sum(), x), m.jvp(lambda x: x * v, lib.tensor(2.0)))
    with log.raises():
        m.vjp(lambda x: x.sum(1), x)
    log(
        m.vjp(lambda x, y: 2 * x + 3 * y, (v, v), v),
        m.jvp(lambda x, y: 2 * x + 3 * y, (v, v), (v, v)),
    )


@says("functional.vjp and jvp: create_graph, and what does not require grad without it")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x = lib.var([1.0, 2.0])
    for create_graph in (False, True):
        out, g = m.vjp(lambda x: (x**3).sum(), x, create_graph=create_graph)
        log(out.requires_grad, g.requires_grad, g)
        out, t = m.jvp(lambda x: x**3, x, lib.tensor([1.0, 1.0]), create_graph=create_graph)
        log(out.requires_grad, t.requires_grad, t)


@says("functional: strict=True raises for an output that does not depend on an input; else zeros")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x, c = lib.tensor([1.0, 2.0]), lib.tensor([5.0, 6.0])
    log(m.vjp(lambda x: c.sum(), x), m.jacobian(lambda x: c * 1.0, x))
    with log.raises():
        m.jacobian(lambda x: c * 1.0, x, strict=True)
    with log.raises():
        m.vjp(lambda x: c.sum(), x, strict=True)


@says("functional.jacobian: rows of outputs, columns of inputs, nested for tuples; both strategies")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x, y = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    log(m.jacobian(lambda x: x * x, x), m.jacobian(lambda x, y: 2 * x + y * y, (x, y)))
    log(m.jacobian(lambda x: (x * x, x.sum()), x))
    for strategy in ("reverse-mode", "forward-mode"):
        log(m.jacobian(lambda x: x**2, x, vectorize=True, strategy=strategy))


@says("functional.hessian: of one output, nested for tuples; outer_jacobian_strategy")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x, y = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    log(m.hessian(lambda x: (x**3).sum(), x), m.hessian(lambda x, y: (x * y * y).sum(), (x, y)))
    log(
        m.hessian(lambda x: (x**3).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode")
    )


@says("functional.vhp and hvp: (output, product), of the shape of the input")
def _(lib: Any, log: Any) -> None:
    m = lib.functional
    x, v = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 10.0])
    f = lambda x: (x**3).sum() + x[0] * x[1]
    log(m.vhp(f, x, v), m.hvp(f, x, v))
    g = lambda x, y: (x * y * y).sum()
    log(m.vhp(g, (x, v), (v, x)), m.hvp(g, (x, v), (v, x)))
    with log.raises():
        m.hvp(lambda x: x * x, x, v)


# torch.utils.checkpoint


@says("checkpoint: the function runs again in the backward pass; gradients are the same")
def _(lib: Any, log: Any) -> None:
    runs: list[int] = []

    def f(x: Any, y: Any) -> Any:
        runs.append(1)
        return lib.sin(x * y) * x

    x, y = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    out = lib.checkpoint(f, x, y)
    log(len(runs), out, out.requires_grad)
    out.sum().backward()
    log(len(runs), x.grad, y.grad)


@says("checkpoint: works with autograd.grad, nested arguments, and inputs")
def _(lib: Any, log: Any) -> None:
    f = lambda d: lib.sin(d["x"]) * d["y"][0]
    x, y = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    log(lib.grad(lib.checkpoint(f, {"x": x, "y": [y]}).sum(), [x, y]))
    lib.checkpoint(f, {"x": x, "y": [y]}).sum().backward(inputs=[x])
    log(x.grad, y.grad)


@says("checkpoint: inputs need not require grad; a part may be detached, or run under no_grad")
def _(lib: Any, log: Any) -> None:
    w = lib.var([1.0, 2.0])

    def f(x: Any) -> Any:
        with lib.no_grad():
            c = x * w
        return x * w + c + (x * w).detach()

    lib.checkpoint(f, lib.tensor([3.0, 4.0])).sum().backward()
    log(w.grad, lib.checkpoint(lambda x: x * 2.0, lib.tensor(1.0)).requires_grad)


@says("checkpoint: nests, and may be differentiated twice")
def _(lib: Any, log: Any) -> None:
    x = lib.var(0.5)
    inner = lambda x: lib.sin(x)
    out = lib.checkpoint(lambda x: lib.checkpoint(inner, x) * x, x)
    (g,) = lib.grad(out, x, create_graph=True)
    log(g, lib.grad(g, x))


@says("checkpoint: autograd.grad inside of it, with respect to arguments and what it closes over")
def _(lib: Any, log: Any) -> None:
    w = lib.var([3.0, 4.0])

    def f(x: Any) -> Any:
        (g,) = lib.grad((x**3 * w).sum(), x, create_graph=True)
        return g * w

    def h(x: Any) -> Any:
        (g,) = lib.grad((x * w**3).sum(), w, create_graph=True)
        return g * x

    for body in (f, h):
        x = lib.var([1.0, 2.0])
        w.grad = None
        lib.checkpoint(body, x).sum().backward()
        log(x.grad, w.grad)


@says("checkpoint: without grad it is a call")
def _(lib: Any, log: Any) -> None:
    runs: list[int] = []
    x = lib.var(2.0)
    with lib.no_grad():
        y = lib.checkpoint(lambda x: (runs.append(1), x * x)[1], x)
    log(y, y.requires_grad, len(runs))


@says("checkpoint: an error in the function is the function's")
def _(lib: Any, log: Any) -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with log.raises("mine"):
        lib.checkpoint(f, lib.var(1.0))


# Anomaly mode, gradcheck


@says("detect_anomaly: a backward that gives NaN is an error")
def _(lib: Any, log: Any) -> None:
    with lib.autograd.detect_anomaly():
        x = lib.var(0.0)
        with log.raises("nan"):
            (lib.sqrt(x) * 0.0).backward()
    with lib.autograd.detect_anomaly(check_nan=False):
        x = lib.var(0.0)
        (lib.sqrt(x) * 0.0).backward()
        log(x.grad != x.grad)


@says("gradcheck: True, an error, or False without raise_exception")
def _(lib: Any, log: Any) -> None:
    x = _double(lib, [0.5, 1.5])
    log(lib.gradcheck(lib.sin, [x]), lib.gradgradcheck(lib.sin, [x]), lib.gradcheck(lib.sin, x))
    wrong = lambda x: x.detach() * x
    with log.raises("Jacobian mismatch"):
        lib.gradcheck(wrong, [x])
    log(lib.gradcheck(wrong, [x], raise_exception=False))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_holds_in_both_libraries(statement: str) -> None:
    compare(STATEMENTS[statement])
