"""The profile of eager steps runs, and finds what XLA does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the benchmarks compare with PyTorch (extra: bench)")
pytest.importorskip("rich", reason="the benchmarks print with it (extra: bench)")

from benchmarks import eager_profile
from benchmarks.real_sizes import Net


def test_the_shares_of_a_step() -> None:
    def loss(library: object, parameters: object, x: object) -> object:
        return (parameters[0] * x).sum()  # type: ignore[index]

    ones = np.ones(3, np.float32)
    found = eager_profile.measure(Net("a product", loss, (ones,), (ones,)), rounds=3)
    assert 0 < found.program < 1e3 and 0 < found.updates < 1e3 and found.rest >= 0
    page = eager_profile.as_markdown([("a product", found)])
    assert page.splitlines()[-1].startswith("| a product | ") and page.count("\n") == 3


def test_an_update() -> None:
    found = eager_profile.measure_update(3, rounds=2)
    assert len(found) == 5 and all([0 < us < 1e6 for us in found.values()])
    assert eager_profile.update_as_markdown(3, found).count("\n") == 3
