"""Trains a classifier of handwritten digits through a Function of our own, then looks inside it.

    python examples/quickstart.py [--epochs 40] [--seed 0] [--out examples/out/quickstart.png]

One loss, written once with its five rules, is used by a compiled training loop, for the gradient of
every single image, for the curvature of the trained network, and by plain JAX.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import fad
import fad.numpy as fnp

CLASSES = 10
WIDTHS = (64, 96, 96, CLASSES)
BATCH = 64
Params = list[dict[str, Any]]


class CrossEntropy(fad.Function):
    """Cross entropy of softmax(logits) with integer labels, one loss for each row of logits.

    Fused: no exponential overflows, whatever the logits, and the derivative is the plain
    difference between the predicted and the true distribution.
    """

    is_traceable = True

    @staticmethod
    def forward(logits, labels):
        shifted = logits - fnp.max(logits, axis=-1, keepdims=True)
        true = fnp.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
        return fnp.log(fnp.sum(fnp.exp(shifted), axis=-1)) - true

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        logits, labels = ctx.saved_tensors
        return g[..., None] * excess_probability(logits, labels), None

    @staticmethod
    def jvp(ctx, logits_t, labels_t):
        logits, labels = ctx.saved_tensors
        return fnp.sum(excess_probability(logits, labels) * logits_t, axis=-1)

    @staticmethod
    def vmap(info, in_dims, logits, labels):
        # The other rules take any number of leading axes, so a batch is one more of them.
        logits = batch_first(logits, in_dims[0], info.batch_size)
        labels = batch_first(labels, in_dims[1], info.batch_size)
        return CrossEntropy.apply(logits, labels), 0


def excess_probability(logits, labels):
    """softmax(logits) less 1 at the label: the derivative of the loss."""
    return fad.nn.softmax(logits, axis=-1) - fad.nn.one_hot(labels, logits.shape[-1])


def batch_first(x, dim, size):
    if dim is None:
        return fnp.broadcast_to(x, (size, *x.shape))
    return fnp.moveaxis(x, dim, 0)


def initial(seed: int) -> Params:
    keys = jax.random.split(jax.random.key(seed), len(WIDTHS) - 1)
    return [
        {
            "weight": fad.random.normal(key, (rows, columns)) / np.sqrt(rows),
            "bias": fnp.zeros(columns),
        }
        for key, rows, columns in zip(keys, WIDTHS, WIDTHS[1:], strict=False)
    ]


def network(params: Params, images):
    x = images
    for layer in params[:-1]:
        x = fad.nn.gelu(x @ layer["weight"] + layer["bias"])
    return x @ params[-1]["weight"] + params[-1]["bias"]


def loss(params: Params, images, labels):
    """The loss of one image, or the losses of a batch."""
    return CrossEntropy.apply(network(params, images), labels)


def mean_loss(params: Params, images, labels):
    return fnp.mean(loss(params, images, labels))


@fad.jit
def training_step(params: Params, velocity: Params, images, labels, rate):
    gradient = fad.grad(mean_loss)(params, images, labels)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
    params = jax.tree.map(lambda p, v: p - rate * (v + 2e-4 * p), params, velocity)
    return params, velocity


@fad.jit
def measure(params: Params, images, labels):
    """The mean loss and the accuracy on some images."""
    logits = network(params, images)
    right = fnp.argmax(logits, axis=-1) == labels
    return fnp.mean(CrossEntropy.apply(logits, labels)), fnp.mean(right)


def digits(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and held-out images (rows of 64 pixels, about -1 to 1) with their labels."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 8.0 - 1.0).astype(np.float32)
    labels = labels.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    held_out, train = order[:450], order[450:]
    return (images[train], labels[train]), (images[held_out], labels[held_out])


def train(params: Params, train_set, held_out, epochs: int, seed: int, console: Console):
    """Stochastic gradient descent with momentum and a falling rate; returns (params, history)."""
    images, labels = train_set
    draw = np.random.default_rng(seed)
    velocity = jax.tree.map(fnp.zeros_like, params)
    steps = len(images) // BATCH
    history: list[tuple[float, float, float, float]] = []
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("held-out accuracy {task.fields[accuracy]:.1%}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=epochs * steps, accuracy=0.0)
        for epoch in range(epochs):
            rate = 0.05 * 0.5 * (1.0 + np.cos(np.pi * epoch / epochs))
            order = draw.permutation(len(images))[: steps * BATCH].reshape(steps, BATCH)
            for rows in order:
                params, velocity = training_step(params, velocity, images[rows], labels[rows], rate)
                progress.advance(bar)
            history.append(
                tuple(float(x) for data in (train_set, held_out) for x in measure(params, *data))
            )
            progress.update(bar, accuracy=history[-1][3])
    return params, np.array(history)


def gradient_norms(params: Params, images, labels) -> np.ndarray:
    """The norm of the loss's gradient for each image by itself."""

    def norm(image, label):
        gradient = fad.grad(loss)(params, image, label)
        return fnp.sqrt(sum(fnp.sum(g * g) for g in jax.tree.leaves(gradient)))

    return np.asarray(fad.jit(fad.vmap(norm, chunk_size=128))(images, labels))


def sharpest_curvature(params: Params, images, labels, steps: int = 30) -> list[float]:
    """Estimates of the Hessian's largest eigenvalue, by power iteration with Hessian products."""

    @fad.jit
    def product(direction):
        _, (curved,) = fad.hvp(lambda p: mean_loss(p, images, labels), (params,), (direction,))
        return curved

    def norm(tree) -> float:
        return float(np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(tree))))

    draw = np.random.default_rng(0)
    direction = jax.tree.map(lambda p: draw.normal(size=p.shape).astype(np.float32), params)
    estimates = []
    for _ in range(steps):
        size = norm(direction)
        direction = product(jax.tree.map(lambda x, size=size: x / size, direction))
        estimates.append(norm(direction))
    return estimates


def compare_with_jax(images, labels, params: Params) -> list[tuple[str, float]]:
    """The Function eagerly, compiled by fad and inside plain JAX, against a loss written in JAX."""
    logits = np.asarray(network(params, images[:64]))
    labels = labels[:64]

    def fused(x):
        return CrossEntropy.apply(x, labels).mean()

    def plain(x):
        return jax.nn.logsumexp(x, axis=-1).mean() - x[np.arange(len(labels)), labels].mean()

    def one_fused(x, label):
        return CrossEntropy.apply(x, label)

    def one_plain(x, label):
        return jax.nn.logsumexp(x) - x[label]

    direction = np.ones_like(logits) * np.arange(CLASSES, dtype=np.float32)
    gradient = jax.grad(plain)(logits)
    product = jax.jvp(jax.grad(plain), (logits,), (direction,))[1]
    hessians = jax.vmap(jax.hessian(one_plain))(logits, labels)
    checks: list[tuple[str, Any, Callable[[], Any]]] = [
        ("fad.grad", gradient, lambda: fad.grad(fused)(logits)),
        ("fad.jit(fad.grad)", gradient, lambda: fad.jit(fad.grad(fused))(logits)),
        ("jax.jit(jax.grad)", gradient, lambda: jax.jit(jax.grad(fused))(logits)),
        ("fad.hvp", product, lambda: fad.hvp(fused, (logits,), (direction,))[1][0]),
        (
            "jax.jit(jax.jvp of jax.grad)",
            product,
            lambda: jax.jit(lambda x, t: jax.jvp(jax.grad(fused), (x,), (t,))[1])(
                logits, direction
            ),
        ),
        (
            "fad.vmap(fad.hessian)",
            hessians,
            lambda: fad.vmap(fad.hessian(one_fused))(logits, labels),
        ),
        (
            "jax.jit(jax.vmap(jax.hessian))",
            hessians,
            lambda: jax.jit(jax.vmap(jax.hessian(one_fused)))(logits, labels),
        ),
    ]
    return [(name, float(np.max(np.abs(run() - expected)))) for name, expected, run in checks]


def draw_figure(path: Path, history, held_out, predicted, norms) -> None:
    """Losses, accuracies, gradient norms, and the held-out images with the largest gradients."""
    images, labels = held_out
    right = predicted == labels
    blue, orange, red, grey = "#2b6cb0", "#dd8a1a", "#c53030", "#4a5568"
    figure = Figure(figsize=(12, 8.4), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.07, w_pad=0.07)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    figure.suptitle("Handwritten digits through a fad.Function", fontsize=14, weight="bold")

    losses, accuracies, spread = top.subplots(1, 3)
    epochs = np.arange(1, len(history) + 1)
    for axes, columns, label in ((losses, (0, 2), "mean loss"), (accuracies, (1, 3), "error")):
        values = history if axes is losses else 100 * (1 - history)
        axes.plot(epochs, values[:, columns[0]], color=blue, label="train")
        axes.plot(epochs, values[:, columns[1]], color=orange, label="held out")
        axes.set(xlabel="epoch", title=label)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    losses.set_yscale("log")
    accuracies.set(title="wrong images (%)", ylim=(0, None))
    accuracies.annotate(
        f"{100 * (1 - history[-1, 3]):.1f} %",
        (epochs[-1], 100 * (1 - history[-1, 3])),
        xytext=(0, 8),
        textcoords="offset points",
        ha="right",
        color=orange,
        weight="bold",
    )

    bins = np.geomspace(max(norms.min(), 1e-6), norms.max() * 1.05, 32)
    spread.hist(norms[right], bins, color=blue, alpha=0.8, label=f"right ({right.sum()})")
    spread.hist(norms[~right], bins, color=red, alpha=0.9, label=f"wrong ({(~right).sum()})")
    spread.set(
        xscale="log",
        yscale="symlog",
        xlabel="norm of the image's own gradient",
        title="held-out images by gradient norm",
        ylim=(0, 150),
    )
    spread.set_yticks([0, 1, 3, 10, 30], labels=["0", "1", "3", "10", "30"])
    spread.legend(frameon=False, loc="upper left")

    bottom.suptitle("The 16 hardest held-out images, by the norm of their gradient", fontsize=11)
    hardest = np.argsort(-norms)[:16]
    for axes, k in zip(bottom.subplots(2, 8).flat, hardest, strict=True):
        axes.imshow(images[k].reshape(8, 8), cmap="gray_r", vmin=-1, vmax=1)
        text = (
            f"{labels[k]}, read as {predicted[k]}" if not right[k] else f"{labels[k]}, read right"
        )
        axes.set_title(text, color=grey if right[k] else red, fontsize=10, weight="bold")
        axes.set_xlabel(f"{norms[k]:.1f}", color=grey, fontsize=9, labelpad=3)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(visible=True, color=red if not right[k] else "#cbd5e0")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training images")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights, the order")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "out" / "quickstart.png",
        help="where the figure goes",
    )
    options = parser.parse_args()
    console = Console()
    start = time.perf_counter()

    train_set, held_out = digits(options.seed)
    console.print(f"{len(train_set[0])} images to train on, {len(held_out[0])} held out")
    params = initial(options.seed)
    params, history = train(params, train_set, held_out, options.epochs, options.seed, console)
    _, train_accuracy, held_out_loss, held_out_accuracy = history[-1]
    console.print(
        f"[bold]accuracy[/]: train {train_accuracy:.1%}, held out {held_out_accuracy:.1%}"
        f" (loss {held_out_loss:.3f})"
    )

    predicted = np.asarray(network(params, held_out[0])).argmax(-1)
    norms = gradient_norms(params, *held_out)
    wrong = predicted != held_out[1]
    console.print(
        f"[bold]gradient of each held-out image[/]: median norm {np.median(norms):.2g};"
        f" of the {wrong.sum()} that are read wrong, {np.median(norms[wrong]):.2g}"
    )

    curvature = sharpest_curvature(params, *train_set)
    console.print(
        f"[bold]sharpest curvature[/] of the training loss: {curvature[-1]:.3f}"
        f" (power iteration, {len(curvature)} Hessian products)"
    )

    table = Table("the same Function under", "largest difference from a loss written in JAX")
    for name, difference in compare_with_jax(*held_out, params):
        table.add_row(name, f"{difference:.1e}")
    console.print(table)

    with rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        draw_figure(options.out, history, held_out, predicted, norms)
    console.print(f"figure: {options.out}")
    console.print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
