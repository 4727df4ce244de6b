"""Forward Laplacians: the sum of second derivatives of a function, in one pass.

A function and its arguments come in, and a Laplacian goes out. Begin with NOTE [forward Laplacians] in
`level`; `jacobian_rows` and `row_rules` have the Jacobians that go along, `transforms` has `laplacian`.
"""

from fad.laplacians.transforms import laplacian as laplacian
from fad.laplacians.transforms import value_and_laplacian as value_and_laplacian

__all__ = ["laplacian", "value_and_laplacian"]
