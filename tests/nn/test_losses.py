"""PyTorch's losses: values, gradients and products with the Hessian are PyTorch's, and transforms agree."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.nn import losses

# Of PyTorch's `kl_div`, that its mean is not the divergence.
pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def between(*shape: int) -> np.ndarray:
    return RNG.uniform(0.05, 0.95, shape).astype(np.float32)


def signs(*shape: int) -> np.ndarray:
    return RNG.choice(np.array([-1.0, 1.0], np.float32), shape)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.log_softmax(x, 1))


X, Y = drawn(4, 3), drawn(4, 3)
WEIGHT, CLASS = between(4, 3), between(3)
INDEX = np.array([0, 2, 1, 2])
IMAGE, MAP = drawn(2, 3, 2, 2), np.array([[[0, 1], [2, 1]], [[2, 2], [1, 0]]])
P = np.asarray(jax.nn.softmax(drawn(4, 3), 1))

# Name, arguments (the first is differentiated), keywords.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("mse_loss", (X, Y), {}),
    ("mse_loss", (X, Y), {"weight": WEIGHT}),
    ("l1_loss", (X, Y), {}),
    ("l1_loss", (X, Y), {"weight": WEIGHT}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.7}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.0}),
    ("huber_loss", (X, Y), {"delta": 0.7}),
    ("huber_loss", (X, Y), {"weight": WEIGHT}),
    ("gaussian_nll_loss", (X, Y, WEIGHT), {}),
    ("gaussian_nll_loss", (X, Y, WEIGHT[:, :1]), {"full": True}),
    ("gaussian_nll_loss", (X, Y, WEIGHT[:, 0]), {"eps": 0.5}),
    ("gaussian_nll_loss", (X, Y, 0.3), {}),
    ("poisson_nll_loss", (X, np.abs(Y) * 3), {}),
    ("poisson_nll_loss", (X, np.abs(Y) * 3), {"full": True}),
    ("poisson_nll_loss", (between(4, 3), np.abs(Y)), {"log_input": False, "eps": 1e-3}),
    ("cross_entropy", (X, INDEX), {}),
    ("cross_entropy", (X, INDEX), {"weight": CLASS}),
    ("cross_entropy", (X, INDEX), {"weight": CLASS, "ignore_index": 2}),
    ("cross_entropy", (X, INDEX), {"weight": CLASS, "ignore_index": 2, "label_smoothing": 0.2}),
    ("cross_entropy", (X, INDEX), {"label_smoothing": 0.2}),
    ("cross_entropy", (X, P), {}),
    ("cross_entropy", (X, P), {"weight": CLASS, "label_smoothing": 0.2}),
    ("cross_entropy", (IMAGE, MAP), {"weight": CLASS, "ignore_index": 1, "label_smoothing": 0.1}),
    ("cross_entropy", (IMAGE, between(2, 3, 2, 2)), {"weight": CLASS}),
    ("cross_entropy", (X[0], INDEX[0]), {"weight": CLASS}),
    ("cross_entropy", (X[0], P[0]), {"label_smoothing": 0.1}),
    ("nll_loss", (log_softmax(X), INDEX), {"weight": CLASS, "ignore_index": 0}),
    ("nll_loss", (log_softmax(IMAGE), MAP), {}),
    ("binary_cross_entropy", (between(4, 3), between(4, 3)), {}),
    ("binary_cross_entropy", (between(4, 3), between(4, 3)), {"weight": WEIGHT}),
    ("binary_cross_entropy_with_logits", (X, between(4, 3)), {}),
    ("binary_cross_entropy_with_logits", (X, between(4, 3)), {"weight": WEIGHT, "pos_weight": CLASS}),
    ("kl_div", (log_softmax(X), P), {}),
    ("kl_div", (log_softmax(X), np.log(P)), {"log_target": True}),
    ("multi_margin_loss", (X, INDEX), {"weight": CLASS}),
    ("multi_margin_loss", (X, INDEX), {"p": 2, "margin": 0.5}),
    ("multilabel_soft_margin_loss", (X, between(4, 3)), {"weight": CLASS}),
    ("soft_margin_loss", (X, signs(4, 3)), {}),
    ("hinge_embedding_loss", (X, signs(4, 3)), {"margin": 0.3}),
    ("cosine_embedding_loss", (X, Y, signs(4)), {"margin": 0.1}),
    ("cosine_embedding_loss", (X[0], Y[0], signs(1)[0]), {}),
    ("margin_ranking_loss", (X, Y, signs(4, 3)), {"margin": 0.2}),
    ("triplet_margin_loss", (X, Y, drawn(4, 3)), {}),
    ("triplet_margin_loss", (X, Y, drawn(4, 3)), {"p": 1.0, "swap": True, "margin": 2.0}),
]  # fmt: skip


def named(case: Any) -> str:
    return "-".join([case[0], str(np.ndim(case[1][0])), *case[2]])


def of_torch(torch: Any, value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def of_fad(value: Any) -> Any:
    return fad.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES, ids=named)
def test_values_and_derivatives_are_pytorchs(torch: Any, case: Any, reduction: str) -> None:
    name, args, kwargs = case
    their_args = [of_torch(torch, a) for a in args]
    their_kwargs = {k: of_torch(torch, v) for k, v in kwargs.items()}
    their_args[0].requires_grad_()
    theirs = getattr(torch.nn.functional, name)(*their_args, **their_kwargs, reduction=reduction)
    (gradient,) = torch.autograd.grad(theirs.sum(), their_args[0], create_graph=True)
    direction = torch.tensor(drawn(*args[0].shape))
    product = None
    if gradient.requires_grad and name != "multi_margin_loss":  # PyTorch has no second derivative
        directed = (gradient * direction).sum()
        (product,) = torch.autograd.grad(directed, their_args[0], allow_unused=True)

    _, *others = map(of_fad, args)
    keywords = {k: of_fad(v) for k, v in kwargs.items()}

    def loss(x: Any) -> Any:
        return getattr(fad.nn, name)(x, *others, **keywords, reduction=reduction)

    assert_close(loss(fad.tensor(args[0])).array, theirs.detach().numpy(), rtol=2e-5, atol=1e-6)
    x, v = jnp.asarray(args[0]), direction.numpy()
    (own,), (own_product,) = fad.hvp(lambda x: loss(x).sum(), (x,), (v,))
    assert_close(own, gradient.detach().numpy(), rtol=2e-5, atol=2e-6)
    if name == "multi_margin_loss":
        return
    expected = np.zeros_like(own) if product is None else product.numpy(force=True)
    assert_close(own_product, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_derivatives_in_the_other_arguments_are_pytorchs(torch: Any, case: Any) -> None:
    name, args, kwargs = case
    for i, arg in enumerate(args):
        if i == 0 or not isinstance(arg, np.ndarray) or arg.dtype != np.float32:
            continue
        if name == "soft_margin_loss":  # which PyTorch refuses
            continue
        their_args = [of_torch(torch, a) for a in args]
        their_args[i].requires_grad_()
        theirs = getattr(torch.nn.functional, name)(
            *their_args, **{k: of_torch(torch, v) for k, v in kwargs.items()}
        )
        gradient = None
        if theirs.requires_grad:
            (gradient,) = torch.autograd.grad(theirs, their_args[i], allow_unused=True)
        own = fad.grad(lambda *a: getattr(fad.nn, name)(*a, **kwargs), argnums=i)(*args)
        expected = np.zeros_like(arg) if gradient is None else gradient.numpy()
        assert_close(own, expected, rtol=2e-5, atol=2e-6)


def kind(case: Any) -> Any:
    return case[0], np.asarray(case[1][1]).dtype


# Of each loss, and of each dtype of targets, the case with most keywords; all with --full.
RICHEST = {kind(case): case for case in sorted(CASES, key=lambda case: len(case[2]))}
TRANSFORMED = [
    pytest.param(
        case, id=named(case), marks=() if case is RICHEST[kind(case)] else pytest.mark.full
    )
    for case in CASES
]


@pytest.mark.parametrize("case", TRANSFORMED)
def test_transforms_agree(case: Any) -> None:
    name, args, kwargs = case
    args = tuple(jnp.asarray(a) for a in args)

    def loss(*args: Any) -> Any:
        return getattr(fad.nn, name)(*args, **kwargs)

    expected = fad.grad(loss)(*args)
    assert_close(fad.jit(fad.grad(loss))(*args), expected, rtol=1e-5, atol=1e-6)
    batched = tuple(jnp.stack([a, a]) for a in args)
    assert_close(fad.vmap(fad.grad(loss))(*batched)[1], expected, rtol=1e-5, atol=1e-6)
    assert_close(fad.vmap(loss)(*batched)[0], loss(*args), rtol=1e-5, atol=1e-6)
    x = fad.tensor(args[0], requires_grad=True)
    loss(x, *args[1:]).backward()
    assert_close(x.grad, expected, rtol=1e-5, atol=1e-6)


def test_signatures_are_pytorchs(torch: Any) -> None:
    """Names, order and defaults, without what is deprecated; what stood behind it is given by keyword."""
    for name in losses.__all__:
        theirs = inspect.signature(getattr(torch.nn.functional, name)).parameters
        kept = {n: p for n, p in theirs.items() if n not in ("size_average", "reduce")}
        own = inspect.signature(getattr(fad.nn, name)).parameters
        assert {n: p.default for n, p in own.items()} == {n: p.default for n, p in kept.items()}
        for n, p in own.items():
            if p.kind is not inspect.Parameter.KEYWORD_ONLY:
                assert list(own).index(n) <= list(theirs).index(n)


def test_large_numbers_do_not_overflow() -> None:
    scores = fad.tensor([[1e4, 0.0], [-1e4, 1e4]], requires_grad=True)
    loss = fad.nn.cross_entropy(scores, fad.tensor([1, 0]))
    loss.backward()
    assert loss.item() == 1.5e4 and scores.grad.tolist() == [[0.5, -0.5], [-0.5, 0.5]]
    x = jnp.array([-1e4, 1e4])
    for f in (
        lambda x: fad.nn.binary_cross_entropy_with_logits(
            x, jnp.array([1.0, 0.0]), reduction="sum"
        ),
        lambda x: fad.nn.multilabel_soft_margin_loss(x, jnp.array([1.0, 0.0])) * 2,
        lambda x: fad.nn.soft_margin_loss(x, jnp.array([1.0, -1.0]), reduction="sum"),
    ):
        value, gradient = fad.value_and_grad(f)(x)
        assert value == 2e4 and gradient.tolist() == [-1.0, 1.0]
        assert fad.hessian(f)(x).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_masked_scores() -> None:
    """A score of minus infinity: a class that cannot be."""
    scores = jnp.array([[1.0, -jnp.inf, 2.0]])
    value, gradient = fad.value_and_grad(fad.nn.cross_entropy)(scores, jnp.array([0]))
    assert_close(value, -jax.nn.log_softmax(scores)[0, 0])
    assert np.isfinite(gradient).all() and gradient[0, 1] == 0


def test_ends_of_binary_cross_entropy(torch: Any) -> None:
    x, t = np.array([0.0, 0.0, 1.0, 1.0], np.float32), np.array([0.0, 1.0, 0.0, 1.0], np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    torch.nn.functional.binary_cross_entropy(theirs, torch.tensor(t)).backward()
    value, gradient = fad.value_and_grad(fad.nn.binary_cross_entropy)(jnp.array(x), jnp.array(t))
    assert value == 50.0
    assert_close(gradient, theirs.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "program",
    [
        "nn.margin_ranking_loss(x, 0 * x, t.tensor([1.0, -1.0]))",
        "nn.hinge_embedding_loss(x + 1.0, t.tensor([-1.0, -1.0]))",
        "nn.l1_loss(x, 0 * x)",
        "nn.multi_margin_loss(x, t.tensor(0), margin=0.0)",
    ],
)
def test_kinks_are_pytorchs(torch: Any, program: str) -> None:
    theirs, own = torch.zeros(2, requires_grad=True), fad.zeros(2, requires_grad=True)
    eval(program, {"nn": torch.nn.functional, "t": torch, "x": theirs}).backward()
    eval(program, {"nn": fad.nn, "t": fad, "x": own}).backward()
    assert own.grad.tolist() == theirs.grad.tolist()


def test_a_class_that_is_not_there_gives_nan() -> None:
    for target in (-1, 3):
        assert np.isnan(fad.nn.cross_entropy(jnp.zeros((1, 3)), jnp.array([target])))
        assert np.isnan(fad.nn.multi_margin_loss(jnp.zeros((1, 3)), jnp.array([target])))
    assert np.isnan(fad.nn.gaussian_nll_loss(X, Y, -1.0))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("mse_loss(fnp.zeros((3, 1)), fnp.zeros(3))", r"\(3, 1\), and target \(3,\).*reshape"),
        ("mse_loss(X, Y, reduction='avg')", "reduction must be 'mean', 'sum' or 'none', got 'avg'"),
        ("cross_entropy(X, fnp.zeros(4))", "read as probabilities.*astype"),
        ("cross_entropy(X, INDEX[:2])", r"target \(2,\), expected \(4,\)"),
        ("cross_entropy(X, INDEX, weight=fnp.ones(4))", "expected one for each of 3 classes"),
        ("cross_entropy(X, P, ignore_index=0)", "ignore_index is for class indices"),
        ("cross_entropy(X, INDEX, label_smoothing=2.0)", "label_smoothing must be from 0 to 1"),
        ("cross_entropy(1.0 * fnp.sum(X), INDEX)", "input has no dimensions"),
        ("nll_loss(X, P)", "target must be of integers, got float32"),
        ("huber_loss(X, Y, delta=0.0)", "delta must be positive"),
        ("mse_loss(X, Y, weight=X[0])", r"weight has the shape \(3,\), expected \(4, 3\)"),
        ("smooth_l1_loss(X, Y, beta=-1.0)", "beta must not be negative"),
        ("gaussian_nll_loss(X, Y, X[:2])", r"var has the shape \(2, 3\)"),
        ("gaussian_nll_loss(X, Y, X, eps=0.0)", "eps must be positive"),
        ("multi_margin_loss(X, INDEX, p=3)", "p must be 1 or 2, got 3"),
        ("multi_margin_loss(X, P)", r"expected \(classes,\)"),
        ("cosine_embedding_loss(X, Y, X)", r"expected \(n, d\)"),
    ],
)
def test_errors(program: str, words: str) -> None:
    scope = {name: getattr(fad.nn, name) for name in losses.__all__}
    given = {"X": fad.tensor(X), "Y": fad.tensor(Y), "P": fad.tensor(P), "INDEX": fad.tensor(INDEX)}
    with pytest.raises(fad.errors.ArgumentError, match=words):
        eval(program, {**scope, **given, "fnp": fnp})
