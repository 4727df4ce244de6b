"""Taylor mode: derivatives of any order along a curve, in one pass.

A function and a curve come in, and derivatives go out. `series` has the arithmetic of Taylor series and the
rules of JAX's primitives, `level` what an operation is on them, `transforms` has `jet` and `derivatives`.
"""

from fad.taylor.series import rule_of as rule_of
from fad.taylor.transforms import derivatives as derivatives
from fad.taylor.transforms import jet as jet

__all__ = ["derivatives", "jet", "rule_of"]
