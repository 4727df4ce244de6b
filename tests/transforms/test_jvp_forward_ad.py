"""Dual levels between two calls."""

from __future__ import annotations

from typing import Any

import pytest

import fad
from fad.autograd import forward_ad
from fad.core.level import state
from fad.errors import LevelError


def test_a_level_between_two_calls_as_in_torch(torch: Any) -> None:
    def tangent(library: Any) -> float:
        ad = library.autograd.forward_ad
        level = ad.enter_dual_level()
        try:
            x = ad.make_dual(library.tensor(3.0), library.tensor(1.0), level=level)
            found = ad.unpack_dual(x * x, level=level)
            assert isinstance(found, ad.UnpackedDualTensor)
            return found.tangent.item()
        finally:
            ad.exit_dual_level(level=level)

    assert tangent(fad) == tangent(torch) == 6.0
    assert state.levels == ()


def test_levels_nest_and_end_in_order(torch: Any) -> None:
    outer = forward_ad.enter_dual_level()
    inner = forward_ad.enter_dual_level()
    x = forward_ad.make_dual(fad.tensor(2.0), fad.tensor(1.0), level=outer)
    y = forward_ad.make_dual(x, fad.tensor(1.0), level=inner)
    slope = forward_ad.unpack_dual(y**3, level=inner).tangent
    assert forward_ad.unpack_dual(slope, level=outer).tangent.item() == 12.0
    with pytest.raises(LevelError, match="not the last one that was entered"):
        forward_ad.exit_dual_level(level=outer)
    forward_ad.exit_dual_level()
    forward_ad.exit_dual_level(level=outer)
    assert state.levels == ()
    for library in (torch, fad):
        with pytest.raises(RuntimeError):
            library.autograd.forward_ad.exit_dual_level()
