"""README's first screen: its program raises in PyTorch and JAX what the table says; figures are measured."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import ROOT

README = (ROOT / "README.md").read_text()
PROGRAM = README.partition("```python\n")[2].partition("```")[0].partition("x = fad")[0]


def raises(of: str) -> str:
    """What the table says that the program raises there."""
    (row,) = [line for line in README.splitlines() if line.startswith("| " + of)]
    return row.split("`")[-2]


def check(program: Any, of: str) -> None:
    kind, _, text = raises(of).partition(": ")
    with pytest.raises(Exception) as caught:
        program()
    assert type(caught.value).__name__ == kind
    assert str(caught.value).startswith(text)


def in_torch(torch: Any, program: str) -> dict[str, Any]:
    """The names that the program defines, with PyTorch's for fad's."""
    program = re.sub(r"^import .*\n", "", program, flags=re.MULTILINE)
    names: dict[str, Any] = {"torch": torch}
    exec(
        program.replace("fad.Function", "torch.autograd.Function").replace("fnp.", "torch."), names
    )
    return names


def test_the_program_in_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")
    names = in_torch(torch, PROGRAM)
    x = torch.arange(3.0)
    torch.func.grad(names["energy"])(x)  # with one reverse transform it runs
    names["Softplus"].generate_vmap_rule = True
    check(lambda: torch.func.hessian(names["energy"])(x), "PyTorch 2.13")


@jax.custom_vjp
def softplus(x: Any) -> Any:
    return jnp.log(1.0 + jnp.exp(x))


softplus.defvjp(lambda x: (softplus(x), x), lambda x, g: (g / (1.0 + jnp.exp(-x)),))


def test_the_program_in_jax() -> None:
    def energy(x: Any) -> Any:
        u = 1.0 * x
        for _ in range(3):
            u[1:-1] += 0.1 * softplus(u[2:] - u[:-2])
        return (u**2).sum()

    check(lambda: jax.grad(energy)(jnp.arange(3.0)), "JAX 0.10 to 0.12")


def test_the_program_in_jax_without_writes() -> None:
    def energy(x: Any) -> Any:
        u = 1.0 * x
        for _ in range(3):
            u = u.at[1:-1].add(0.1 * softplus(u[2:] - u[:-2]))
        return (u**2).sum()

    jax.grad(energy)(jnp.arange(3.0))
    check(lambda: jax.hessian(energy)(jnp.arange(3.0)), "JAX, `hessian(energy)(x)`")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def test_figures_are_those_of_the_page_of_performance() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    measured = page.partition("**Eager transforms**")[2].partition("**Traced code**")[0]
    found: dict[str, list[str]] = {}
    for row in filter(lambda line: line.startswith("| "), measured.splitlines()):
        found.setdefault(cells(row)[1], cells(row)[2:])  # the small net comes first
    table = README.partition("| small net, 6 layers of 16 |")[2].partition("\n\n")[0]
    rows = [cells(row) for row in table.splitlines()[2:]]
    assert len(rows) == 5
    for what, *times in rows:
        shown = [time for time in times if time]
        assert shown == found[what][: len(shown)], what
