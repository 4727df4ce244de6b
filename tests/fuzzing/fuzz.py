"""The fuzzer: random programs under random stacks of transforms, for as long as one likes.

``python -m tests.fuzzing --minutes 10`` compares fad with JAX, eagerly, under ``fad.jit`` and
``jax.jit``, and under native JAX transforms; where PyTorch is installed, gradients with PyTorch's too.
That is in 64 bits, with data of 32 bits among it. Programs are called again and again, and trained by
gradient descent, in 32 bits and in a process of 64 bits; with ``--exact``, what is compiled must have the
bits of what runs operation by operation.
What fails is shrunk, and printed as code to paste. The exit code is the number of failures.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis
import jax
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from fad.autograd.compiled import compiled
from fad.tape.saved import allow_mutation_on_saved_tensors
from fad.testing.comparison import bare, difference
from tests.fuzzing.passes import check_passes
from tests.fuzzing.programs import MODES, Program, check_program
from tests.fuzzing.repeats import check_again, check_training
from tests.fuzzing.stacks import IN_FAD, Library, apply_stack, leaves_of
from tests.fuzzing.strategies import stacks, whole_programs

try:
    import torch
except ImportError:  # the comparison with PyTorch is left out
    torch = None  # type: ignore[assignment]

__all__ = ["Failure", "fuzz", "main"]


# Where the checks are that are no modes of `check_program`; some are of a program without transforms.
CHECKS = {
    "passes": ("passes", "check_passes", ""),
    "passes64": ("passes", "check_passes", ", x64=True"),
    "again": ("repeats", "check_again", ""),
    "again64": ("repeats", "check_again", ", x64=True"),
    "torch": ("fuzz", "check_torch", ""),
    "training": ("repeats", "check_training", ""),
    "training64": ("repeats", "check_training", ", x64=True"),
}
ALONE = ("torch", "passes", "passes64", "training", "training64")
REPEATED = ("again", "again64", "training", "training64")
EVERY = (*MODES, *CHECKS)


class Failure:
    """A shrunk failure: a program, a stack, a mode, and the error."""

    def __init__(
        self,
        program: Program,
        stack: Sequence[str],
        mode: str,
        error: BaseException,
        exact: bool = False,
    ) -> None:
        self.program = program
        self.stack = tuple(stack)
        self.mode = mode
        self.error = error
        self.exact = exact and mode in REPEATED

    def __str__(self) -> str:
        listing = "\n".join(f"#   {line}" for line in self.program.listing().splitlines())
        lines = str(self.error).strip().splitlines() or [""]
        module, check, option = CHECKS.get(self.mode, ("programs", "check_program", ""))
        stack = "" if self.mode in ALONE else f", {self.stack!r}"
        mode = f", {self.mode!r}" if self.mode in MODES else ", exact=True" if self.exact else ""
        return (
            f"# {type(self.error).__name__}: {lines[0]}\n"
            f"# under {' of '.join(reversed(self.stack)) or 'no transform'} ({self.mode}):\n"
            f"{listing}\n"
            f"from tests.fuzzing.{module} import {check}\n"
            "from tests.fuzzing.programs import Program\n\n"
            f"{check}({self.program!r}{stack}{mode}{option})\n"
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two failures one."""
        frames = traceback.extract_tb(self.error.__traceback__)
        own = [f for f in frames if "/fad/" in f.filename or "/fuzzing/" in f.filename]
        steps = tuple(sorted({name for name, _, _ in self.program.steps}))
        return type(self.error).__name__, *[(f.filename, f.lineno) for f in own[-1:]], steps


def _torch_library() -> Library:
    return Library("torch", np=torch, lax=None, nn=torch.nn.functional, scipy=None)


# PyTorch's var divides by n - 1; its max of an axis, and its take, are other functions.
OTHER_IN_TORCH = frozenset({"var", "max", "take", "sort", "at_set"})


def check_torch(program: Program) -> bool:
    """Check the gradient of a program against PyTorch's, where PyTorch has the operations.

    Returns:
        Whether there was something to compare.

    Raises:
        AssertionError: the gradients differ.

    >>> check_torch(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,))) is (torch is not None)
    True
    """
    if torch is None or program.is_complex or program.tolerance() > 1e-6:
        return False
    if OTHER_IN_TORCH & {name for name, _, _ in program.steps}:
        return False
    with jax.enable_x64(True):
        x, n = program.inputs()
    leaves = [torch.tensor(np.asarray(v), requires_grad=True) for v in leaves_of(x)]
    others = [torch.tensor(np.asarray(v)) for v in n]
    try:
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            out = program.run(_torch_library(), leaves, others)
            outs = [v for v in leaves_of(out) if v.is_floating_point()]
            total: Any = 0.0
            for k, v in enumerate(outs):
                total = total + (k + 1.0) * torch.sin(v).sum()
            if not total.requires_grad:
                return False
            grads = torch.autograd.grad(total, leaves, allow_unused=True)
    except (TypeError, AttributeError, ValueError, RuntimeError, NotImplementedError):
        return False  # PyTorch does not have it, or not so
    expected = [
        np.zeros(v.shape) if g is None else g.detach().numpy()
        for v, g in zip(leaves, grads, strict=True)
    ]
    if any(v.dtype != np.float64 for v in expected) or not all(
        np.isfinite(v).all() and np.abs(v).max(initial=0.0) < 1e8 for v in expected
    ):
        return False
    with jax.enable_x64(True), allow_mutation_on_saved_tensors():
        f = lambda x, n: program.run(IN_FAD, x, n)
        got = bare(apply_stack(IN_FAD, f, ("grad",))(x, n))
        if [v.dtype for v in bare(leaves_of(program.run(IN_FAD, x, n)))] != [
            v.detach().numpy().dtype for v in leaves_of(out)
        ]:
            return False  # the libraries promote differently
    found = difference(got, expected, 1e-6, 1e-6)
    assert found is None, f"PyTorch's gradient: {found}"
    return True


def fuzz(
    minutes: float,
    seed: int = 0,
    max_steps: int = 6,
    max_stack: int = 3,
    modes: Sequence[str] = EVERY,
    say: Any = print,
    exact: bool = False,
) -> tuple[list[Failure], Counter[str]]:
    """Run random programs for some minutes.

    Arguments:
        minutes: for how long, about; a round that was begun is finished.
        seed: where to begin; the same seed gives the same programs.
        max_steps: the length of programs, at most.
        max_stack: how many transforms, at most.
        modes: names of `tests.fuzzing.programs.MODES`, and of `CHECKS`.
        say: what to call with each failure, as text.
        exact: whether "again" and "training" also compare bits: compiled, and operation by operation.

    Returns:
        The failures, each once; and how many programs were compared, by mode.

    >>> failures, counts = fuzz(0.0, modes=("eager",), max_stack=0)
    >>> failures, counts["eager"] > 0
    ([], True)
    """
    end = time.monotonic() + 60.0 * minutes
    failures: list[Failure] = []
    counts: Counter[str] = Counter()
    rounds = 0
    while True:
        failure = _round(seed, max_steps, max_stack, modes, counts, exact)
        if failure is not None and failure.key not in {f.key for f in failures}:
            failures.append(failure)
            say(str(failure))
        seed += 1
        rounds += 1
        if time.monotonic() >= end:
            return failures, counts
        if rounds % ROUNDS == 0:  # a process may keep only so many compiled programs
            compiled.clear_cache()
            jax.clear_caches()


EXAMPLES = 50
ROUNDS = 8


def _round(
    seed: int,
    max_steps: int,
    max_stack: int,
    modes: Sequence[str],
    counts: Counter[str],
    exact: bool,
) -> Failure | None:
    """One run of hypothesis: some examples, and shrinking where one fails."""
    last: list[tuple[Program, tuple[str, ...], str]] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(whole_programs(max_steps), stacks(max_stack), st.sampled_from(sorted(modes)))
    def run(program: Program, stack: tuple[str, ...], mode: str) -> None:
        last[:] = [(program, stack, mode)]
        compared = _check(program, stack, mode, exact)
        counts[mode] += compared
        counts["skipped"] += not compared

    try:
        run()
    except Exception as error:  # whatever a program raises is a find
        return Failure(*last[0], error, exact)
    return None


def _check(program: Program, stack: tuple[str, ...], mode: str, exact: bool = False) -> bool:
    match mode:
        case "torch":
            return check_torch(program)
        case "passes" | "passes64":
            return check_passes(program, x64=mode != "passes")
        case "again" | "again64":
            return check_again(program, stack, x64=mode != "again", exact=exact)
        case "training" | "training64":
            return check_training(program, x64=mode != "training", exact=exact)
    return check_program(program, stack, mode)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the number of failures.

    >>> main(["--minutes", "0", "--modes", "eager", "--max-stack", "0"])
    0 failures; compared ...
    0
    """
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long")
    parser.add_argument("--seed", type=int, default=0, help="where to begin")
    parser.add_argument("--max-steps", type=int, default=6, help="the length of programs")
    parser.add_argument("--max-stack", type=int, default=3, help="how many transforms")
    parser.add_argument("--modes", nargs="+", default=EVERY, choices=EVERY)
    parser.add_argument("--exact", action="store_true", help="again and training compare bits, too")
    given = parser.parse_args(argv)
    failures, counts = fuzz(
        given.minutes,
        given.seed,
        given.max_steps,
        given.max_stack,
        given.modes,
        exact=given.exact,
    )
    compared = ", ".join(f"{n} {mode}" for mode, n in sorted(counts.items()))
    print(f"{len(failures)} failures; compared {compared}")
    return len(failures)
