"""The formats of sparse matrices."""

from __future__ import annotations

import importlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import MissingLibrary

sparse = importlib.import_module("jax.experimental.sparse")
X = np.ones(3, np.float32)


def test_formats() -> None:
    scipy = pytest.importorskip("scipy.sparse", reason="the format 'scipy'")
    x = jnp.arange(1.0, 7.0).reshape(2, 3)
    f = lambda x: (x**2).sum(0)
    whole = fad.jacfwd(f)(x)
    bcoo, bcsr, csr = (fad.sparse_jacobian(f, format=n)(x) for n in ("bcoo", "bcsr", "scipy"))
    assert isinstance(bcoo, sparse.BCOO) and bcoo.shape == (3, 2, 3)
    assert isinstance(bcsr, sparse.BCSR) and bcsr.shape == (3, 6)
    assert isinstance(csr, scipy.csr_array) and csr.shape == (3, 6)
    np.testing.assert_allclose(bcsr @ x.reshape(-1), csr @ np.asarray(x).reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(csr.toarray().reshape(whole.shape), whole)
    assert csr.tocsc().nnz == bcoo.nse == 6
    of_tensor = fad.sparse_jacobian(f, format="scipy")(fad.tensor(x))
    np.testing.assert_array_equal(of_tensor.toarray(), csr.toarray())
    compiled = fad.jit(fad.sparse_jacobian(f, format="bcsr"))(x)
    np.testing.assert_array_equal(compiled.todense(), bcsr.todense())


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module

    def missing(name: str) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return whole(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingLibrary, match=r"pip install scipy.*format='bcoo'"):
        fad.sparse_jacobian(fnp.sin, format="scipy")
    assert fad.sparse_jacobian(fnp.sin, format="bcsr")(X).nse == 3
