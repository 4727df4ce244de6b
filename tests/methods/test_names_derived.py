"""Methods that are functions: each by its name, and all of fad.numpy's that compute element by element."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.methods.names import ELEMENTWISE, MEMBERS, METHODS

VALUES = np.array([0.5, 2.0, 3.0], np.float32)
MATRIX = np.eye(3, dtype=np.float32) + 0.5
# Arguments of those that mean NumPy's, which the comparison with PyTorch does not have.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "argpartition": (1,),
    "array_equal": (VALUES,),
    "average": (),
    "choose": ([VALUES, VALUES, VALUES],),
    "compress": (np.array([True, False, True]),),
    "divmod": (2.0,),
    "expand_dims": (0,),
    "matvec": (VALUES,),
    "nanpercentile": (30,),
    "percentile": (30,),
    "repeat": (2,),
    "rollaxis": (0, 0),
    "searchsorted": (1.0,),
    "take": (np.array([2, 0]),),
    "take_along_axis": (np.array([2, 0]), 0),
    "tensordot": (VALUES, 1),
    "vecdot": (VALUES,),
    "vecmat": (MATRIX,),
}
PLAIN = """argmax argmin argsort around bitwise_count iscomplex matrix_transpose mean modf nanargmax nanargmin
nancumprod nancumsum nanmax nanmin nanprod nanstd nanvar nonzero ptp ravel spacing std trapezoid
unstack unwrap var median sort""".split()


@pytest.mark.sweep("name", sorted([*ARGUMENTS, *PLAIN]), sample=18)
def test_methods_are_numpys_functions_of_their_names(name: str) -> None:
    data = MATRIX if name in ("matvec", "matrix_transpose") else VALUES
    if name in ("choose", "bitwise_count"):
        data = np.array([0, 1, 2])
    args = ARGUMENTS.get(name, ())
    x = fad.tensor(data)
    assert_close(getattr(x, name)(*args), getattr(jnp, name)(x.array, *args))


def test_every_method_has_its_name_and_a_docstring() -> None:
    for name in ELEMENTWISE | METHODS:
        method = getattr(fad.Tensor, name)
        assert method is MEMBERS[name]
        assert method.__name__ == name and method.__qualname__ == f"Tensor.{name}"
        assert "of this Tensor." in method.__doc__


def test_all_functions_of_elements_and_all_reductions_are_methods() -> None:
    own = [n for n in dir(fnp) if isinstance(getattr(np, n, None), np.ufunc)]
    reductions = """all any amax amin argmax argmin average count_nonzero cumprod cumsum max mean median min
    nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile
    nanstd nansum nanvar percentile prod ptp quantile std sum var""".split()
    without = [n for n in [*own, *reductions] if not hasattr(fad.Tensor, n)]
    assert not without


def test_methods_keep_history_and_take_keywords() -> None:
    x = leaf(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    x.sin().square().sum(dim=0, keepdim=True).amax().backward()
    k = int(np.argmax((np.sin(x.detach().numpy()) ** 2).sum(0)))
    expected = np.zeros((2, 3), np.float32)
    expected[:, k] = np.sin(2 * x.detach().numpy()[:, k])
    assert_close(x.grad, expected)
    f = lambda x: x.exp().log_softmax(0).where(x > 0.6, 0.0).sum()
    g = lambda x: jnp.where(x > 0.6, jnp.exp(x) - jnp.log(jnp.exp(jnp.exp(x)).sum()), 0.0).sum()
    assert_close(fad.hessian(f)(VALUES / 3), fad.hessian(fad.from_jax(g))(VALUES / 3))
