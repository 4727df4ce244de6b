"""Blocks of ``with`` that are written without parentheses."""

from __future__ import annotations

from typing import Any

import pytest

import fad
from fad.errors import ArgumentError

BLOCKS = [
    fad.no_grad,
    fad.enable_grad,
    fad.inference_mode,
    fad.dual_level,
    fad.autograd.detect_anomaly,
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.__name__)
def test_a_block_without_parentheses_says_so_and_changes_nothing(block: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"write `with {block.__name__}\(\):`"):
        with block:
            raise AssertionError
    assert fad.is_grad_enabled()
    with block():
        pass
