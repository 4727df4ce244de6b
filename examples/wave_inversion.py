"""Finds out how fast sound travels inside of a block, from what is heard at its surface.

    python examples/wave_inversion.py [--iterations 60] [--steps 400] [--eager]

A solver of the acoustic wave equation in two dimensions, written as NumPy code that changes its arrays
in place, is run for eight sources. Then the velocity at every point is recovered by gradient descent
through all of its time steps: compiled, batched over the sources, with the memory of a few steps alone.
`--eager` runs the same functions line by line, to step through them in a debugger.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import fad
import fad.numpy as fnp

SIZE = 72  # grid points along each side
SPACING = 0.01  # km
TIME_STEP = 0.002  # s
BACKGROUND = 2.0  # km/s
PEAK = 12.0  # Hz, of the sources
RIM = 12  # grid points where the velocity is known, and where sources and receivers are
SEGMENT = 20  # time steps between two checkpoints

# What the absorbing boundary needs to know: how far a wave gets in one step, in grid points.
COURANT = BACKGROUND * TIME_STEP / SPACING
ABSORB = (COURANT - 1.0) / (COURANT + 1.0)


def advance(u, change, stiffness, push):
    """One time step, in place: the pressure ``u``, and how it changes inside of the boundary."""
    top, bottom = u[1] - ABSORB * u[0], u[-2] - ABSORB * u[-1]
    left, right = u[:, 1] - ABSORB * u[:, 0], u[:, -2] - ABSORB * u[:, -1]

    neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    change += stiffness * (neighbours - 4.0 * u[1:-1, 1:-1])
    u[1:-1, 1:-1] += change
    u += push

    # Waves that arrive at the boundary leave (Engquist and Majda, first order).
    u[0] = top + ABSORB * u[1]
    u[-1] = bottom + ABSORB * u[-2]
    u[:, 0] = left + ABSORB * u[:, 1]
    u[:, -1] = right + ABSORB * u[:, -2]


def listen(u):
    """What the receivers on the four sides hear now."""
    side, near, far = slice(8, -8, 2), 8, -9
    return fnp.concatenate([u[side, near], u[side, far], u[near, side], u[far, side]])


def loop(body, state, xs, eager):
    """``body(state, x)`` for each x: as one compiled loop, or as a Python loop."""
    if not eager:
        return fad.lax.scan(body, state, xs)
    heard = []
    for x in xs:
        state, y = body(state, x)
        heard.append(y)
    return state, fnp.stack(heard)


def record(velocity, source, pulses, eager=False):
    """What the receivers hear of one source, a row for each time step.

    ``pulses`` has a row for each segment of steps; the backward pass keeps the state between two
    segments, and computes what is inside of a segment again.
    """
    stiffness = fnp.square(velocity[1:-1, 1:-1] * (TIME_STEP / SPACING))

    def step(state, pulse):
        u, change = state
        advance(u, change, stiffness, pulse * source)
        return (u, change), listen(u)

    @fad.checkpoint
    def segment(state, pulses):
        state = tuple([x.clone() for x in state])  # it runs twice, so it leaves its arguments alone
        return loop(step, state, pulses, eager)

    u = fnp.zeros((SIZE, SIZE))
    change = fnp.zeros((SIZE - 2, SIZE - 2))
    _, heard = loop(segment, (u, change), pulses, eager)
    return heard.reshape(pulses.size, -1)


def survey(inside, sources, pulses, eager=False):
    """What is heard of all sources, if ``inside`` is the velocity away from the rim."""
    velocity = fnp.full((SIZE, SIZE), BACKGROUND)
    velocity[RIM:-RIM, RIM:-RIM] = inside
    return fad.vmap(lambda source: record(velocity, source, pulses, eager))(sources)


def misfit(inside, heard, sources, pulses, eager=False):
    """The part of what was heard that the velocity does not explain, squared."""
    difference = survey(inside, sources, pulses, eager) - heard
    return fnp.sum(difference**2) / fnp.sum(heard**2)


def true_velocity() -> np.ndarray:
    """Two fast bodies and a slow one; the background elsewhere."""
    inner = SIZE - 2 * RIM
    y, x = np.mgrid[0.5:inner, 0.5:inner] / inner - 0.5
    velocity = np.full((inner, inner), BACKGROUND)
    velocity += 0.35 * np.exp(-((((x + 0.2) / 0.13) ** 2 + ((y + 0.18) / 0.09) ** 2) ** 2))
    velocity -= 0.3 * np.exp(-((((x - 0.2) / 0.1) ** 2 + ((y + 0.12) / 0.13) ** 2) ** 2))
    velocity += 0.25 * np.exp(-((((x - 0.02) / 0.3) ** 2 + ((y - 0.22) / 0.07) ** 2) ** 2))
    return velocity.astype(np.float32)


def sources_and_pulses(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """A map of each source, and the strength of all of them in time (Ricker's pulse), in segments."""
    y, x = np.mgrid[:SIZE, :SIZE]
    low, high = 6, SIZE - 7
    places = [(low, low), (low, SIZE // 2), (low, high), (SIZE // 2, high)]
    places += [(high, high), (high, SIZE // 2), (high, low), (SIZE // 2, low)]
    maps = [np.exp(-((y - a) ** 2 + (x - b) ** 2) / 2.0) for a, b in places]
    t = np.arange(-(-steps // SEGMENT) * SEGMENT) * TIME_STEP - 1.2 / PEAK
    phase = (np.pi * PEAK * t) ** 2
    pulses = (1.0 - 2.0 * phase) * np.exp(-phase)
    return np.array(maps, np.float32), pulses.astype(np.float32).reshape(-1, SEGMENT)


def invert(heard, sources, pulses, iterations: int, eager: bool, console: Console):
    """Gradient descent from the background; returns the velocity and the misfits on the way."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.03, iterations, 0.1))

    def update(inside, state):
        loss, gradient = fad.value_and_grad(misfit)(inside, heard, sources, pulses, eager)
        change, state = fad.from_jax(optimizer.update)(gradient, state)
        return inside + change, state, loss

    if not eager:
        update = fad.jit(update)
    inside = fnp.full_like(true_velocity(), BACKGROUND)
    state = optimizer.init(inside)
    misfits = []
    columns = (
        TextColumn("eager" if eager else "compiled"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("misfit {task.fields[misfit]:.1e}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=iterations, misfit=1.0)
        for _ in range(iterations):
            inside, state, loss = update(inside, state)
            misfits.append(float(loss))
            progress.update(bar, advance=1, misfit=misfits[-1])
    return np.asarray(inside), misfits


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    """The error of the velocity, over how far the truth is from the background."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true - BACKGROUND))


def draw_figure(path: Path, true, found, misfits) -> None:
    """The true velocity, the recovered one, their difference, and the misfit on the way."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 0.9])
    reach = float(np.abs(true - BACKGROUND).max())
    width = true.shape[0] * SPACING * 1000
    for ax, title, values in (
        (axes[0], "true velocity", true - BACKGROUND),
        (axes[1], "recovered", found - BACKGROUND),
        (axes[2], "error", found - true),
    ):
        image = ax.imshow(
            values, cmap="RdBu_r", vmin=-reach, vmax=reach, extent=(0, width, width, 0)
        )
        ax.set(title=title, xlabel="m")
    figure.colorbar(image, ax=axes[:3], label=f"km/s above {BACKGROUND}", shrink=0.85)
    axes[3].semilogy(np.arange(1, len(misfits) + 1), misfits, color="#2b6cb0")
    axes[3].set(title="misfit of what is heard", xlabel="iteration")
    axes[3].grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--iterations", type=int, help="of gradient descent: 60, or 2 eagerly")
    parser.add_argument("--steps", type=int, help="in time: 400, or 160 eagerly")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "out" / "wave_inversion.png",
        help="where the figure goes",
    )
    options = parser.parse_args(arguments)
    iterations = options.iterations or (2 if options.eager else 60)
    steps = options.steps or (160 if options.eager else 400)
    console = Console()
    start = time.perf_counter()

    true = true_velocity()
    sources, pulses = sources_and_pulses(steps)
    simulate: Any = survey if options.eager else fad.jit(survey, static_argnames="eager")
    heard = jax.block_until_ready(simulate(true, sources, pulses, eager=options.eager))
    console.print(
        f"{len(sources)} sources, {pulses.size} time steps on {SIZE} x {SIZE} points:"
        f" {heard.shape[0]} records of {heard.shape[1]} x {heard.shape[2]}"
    )
    found, misfits = invert(heard, sources, pulses, iterations, options.eager, console)
    before = relative_error(np.full_like(true, BACKGROUND), true)
    after = relative_error(found, true)
    console.print(f"[bold]misfit[/]: {misfits[0]:.2e} at first, {misfits[-1]:.2e} at last")
    console.print(
        f"[bold]relative error of the velocity[/]: {before:.3f} before, {after:.3f} after"
    )
    with rc_context({"font.size": 10}):
        draw_figure(options.out, true, found, misfits)
    console.print(f"figure: {options.out}")
    console.print(f"{time.perf_counter() - start:.0f} s in all")
    if iterations >= 60 and steps >= 400 and not after < 0.2:
        raise SystemExit("the velocity was not recovered")
    return after


if __name__ == "__main__":
    main()
