"""Training on many devices: the batch is sharded over a mesh, and JAX does the rest.

    python examples/data_parallel.py                 # 8 virtual CPU devices in this process
    python examples/data_parallel.py --processes 2   # 2 processes, 4 of the devices in each

The step is the same Python function in every case. It is compiled for arrays as they are laid out:
XLA computes each shard of the batch where it lies, and adds the gradients up over the devices (over
processes too, with gloo on the loopback interface). Each run is compared with the same steps on one
device, and fails if they differ.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys

DEVICES = 8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2, 4, 8))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


OPTIONS = arguments()
# JAX reads this when it looks for devices: so many of them on one CPU.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = str(DEVICES // OPTIONS.processes)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import fad  # noqa: E402
import fad.numpy as fnp  # noqa: E402


class Softsign(fad.Function):
    """x / (1 + |x|), with its derivative from the output's parts."""

    @staticmethod
    def forward(ctx, x):
        scale = 1.0 / (1.0 + fnp.abs(x))
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def vjp(ctx, g):
        (scale,) = ctx.saved_tensors
        return g * scale * scale


def predict(params, x):
    return Softsign.apply(x @ params["w1"] + params["b1"]) @ params["w2"]


def loss(params, x, y):
    return fnp.mean((predict(params, x) - y) ** 2)


@fad.jit
def step(params, x, y):
    """One step of gradient descent; nothing in it knows of devices."""
    value, grads = fad.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.3 * g, params, grads), value


def data() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Parameters to start from, and a batch of 256 points of a smooth function."""
    draw = np.random.default_rng(0)
    params = {
        "w1": draw.normal(size=(3, 32)),
        "b1": draw.normal(size=32),
        "w2": draw.normal(size=(32, 1)) / 32,
    }
    x = draw.uniform(-1.0, 1.0, (256, 3))
    y = np.sin(3.0 * x.sum(1, keepdims=True))
    return {k: v.astype(np.float32) for k, v in params.items()}, x.astype("f4"), y.astype("f4")


def train(params, x, y, steps: int) -> tuple[dict[str, np.ndarray], list[float]]:
    values = []
    for _ in range(steps):
        params, value = step(params, x, y)
        values.append(float(value))
    return {k: np.asarray(v) for k, v in params.items()}, values


def run(steps: int) -> None:
    """Train on all devices of all processes, and compare with one device."""
    params, x, y = data()
    mesh = jax.make_mesh((DEVICES,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    by_rows = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())

    # Each process holds its part of the batch.
    rows = np.array_split(np.arange(len(x)), jax.process_count())[jax.process_index()]
    shards = [jax.make_array_from_process_local_data(by_rows, v[rows], v.shape) for v in (x, y)]
    copies = {k: jax.device_put(v, everywhere) for k, v in params.items()}
    found, values = train(copies, *shards, steps)

    expected, alone = train(*jax.tree.map(jnp.asarray, (params, x, y)), steps)
    np.testing.assert_allclose(values, alone, rtol=1e-4)
    for name in params:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-5)
    if jax.process_index() == 0:
        print(f"the targets: {fad.asarray(shards[1])!r}")
        print(
            f"{jax.device_count()} devices in {jax.process_count()} process(es): "
            f"loss {values[0]:.4f} -> {values[-1]:.4f}, as on one device"
        )


def launch(processes: int, steps: int) -> int:
    """Start the processes of one run on this machine, and wait for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--processes", str(processes), "--steps", str(steps)]
    children = [
        subprocess.Popen([*command, "--rank", str(rank), "--port", str(port)])
        for rank in range(processes)
    ]
    try:
        return max(abs(child.wait(timeout=300)) for child in children)
    finally:
        for child in children:
            child.kill()


def main() -> int:
    if OPTIONS.processes > 1 and OPTIONS.rank is None:
        return launch(OPTIONS.processes, OPTIONS.steps)
    if OPTIONS.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{OPTIONS.port}", OPTIONS.processes, OPTIONS.rank)
    run(OPTIONS.steps)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
