"""The table in docs/comparison.md: a row for each feature, a column for each library."""

from __future__ import annotations

from pathlib import Path

from tests.comparison.features import FEATURES

__all__ = ["COLUMNS", "read", "write"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"
COLUMNS = ("torch", "jax", "hijax", "mlx", "autograd", "torchax", "fad")
MARKS = {"hijax": " with hijax"}


def read() -> dict[str, dict[str, str]]:
    """For each library its version and its cells, by feature."""
    head, _, *rows = map(_cells, _lines())
    columns: dict[str, dict[str, str]] = {
        name: {"version": head[k + 1].removesuffix(MARKS.get(name, ""))}
        for k, name in enumerate(COLUMNS)
    }
    for feature, *cells in rows:
        for name, cell in zip(COLUMNS, cells, strict=True):
            columns[name][feature] = cell
    return columns


def write(columns: dict[str, dict[str, str]]) -> None:
    """Write the table."""
    head = [
        "gives the right numbers",
        *[columns[n].get("version", "") + MARKS.get(n, "") for n in COLUMNS],
    ]
    rows = [head, ["---"] * len(head)]
    rows += [
        [feature, *[columns[n].get(feature, "not run") for n in COLUMNS]] for feature in FEATURES
    ]
    text = PAGE.read_text()
    old = "\n".join(_lines())
    PAGE.write_text(text.replace(old, "\n".join([f"| {' | '.join(row)} |" for row in rows])))


def _lines() -> list[str]:
    return [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.removeprefix("| ").removesuffix(" |").split(" | ")]
