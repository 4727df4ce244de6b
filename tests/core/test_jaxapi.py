"""Which versions of JAX are accepted, and what is read off its programs."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import pytest
from helpers import ROOT

from fad.core import jaxapi
from fad.core.jaxapi import BELOW_JAX, MINIMUM_JAX, check_version


@pytest.mark.parametrize("version", ["0.10.1", "0.9.2", "0.4.38"])
def test_versions_of_jax_that_are_too_old_are_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"jax>=0\.10\.2,<0\.13, found jax {version}: pip inst"):
        check_version(version)


@pytest.mark.parametrize(
    "version", ["0.10.2", "0.11.0", "0.12.0.1", "0.12.5.dev20261101", jax.__version__]
)
def test_versions_of_jax_in_the_range_are_accepted(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


@pytest.mark.parametrize("version", ["0.13.0", "1.0"])
def test_newer_versions_of_jax_that_have_all_names_are_warned_of(version: str) -> None:
    with pytest.warns(UserWarning, match=rf"tested with jax>=0\.10\.2,<0\.13, found jax {version}"):
        check_version(version)


@pytest.mark.parametrize("version, found", [("0.10.1", "ImportError"), ("0.13.0", "UserWarning")])
def test_the_version_is_looked_at_on_import(version: str, found: str) -> None:
    program = f"import jax; jax.__version__ = {version!r}; import fad"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert f"{found}: fad " in run.stderr and f"found jax {version}" in run.stderr, run.stderr
    assert run.returncode == (found == "ImportError")


def test_the_range_of_jax_is_the_packages() -> None:
    required = re.search(r'"jax(>=\S+)"', (ROOT / "pyproject.toml").read_text())
    least, below = (".".join(map(str, v)) for v in (MINIMUM_JAX, BELOW_JAX))
    assert required is not None and required[1] == f">={least},<{below}"


def loops(x: jax.Array) -> jax.Array:
    x = jax.lax.while_loop(lambda s: jnp.sum(s) < x[0], lambda s: s + x, x)
    x, _ = jax.lax.scan(lambda s, u: (s * u + x, s), x, jnp.ones((4, 3)), reverse=True)
    return jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)


def test_parts_of_loops_and_branches() -> None:
    eqns = {e.primitive.name: e for e in jax.make_jaxpr(loops)(jnp.ones(3)).jaxpr.eqns}
    loop = jaxapi.while_parts(eqns["while"])
    assert (loop.cond_count, loop.body_count) == (1, 1)
    assert (len(loop.cond.in_avals), len(loop.body.in_avals)) == (2, 2)
    scan = jaxapi.scan_parts(eqns["scan"])
    assert (scan.constants, scan.carried, scan.length, scan.reverse) == (1, 1, 4, True)
    assert len(scan.body.in_avals) == 3
    names = [b.jaxpr.eqns[0].primitive.name for b in jaxapi.branches(eqns["cond"])]
    assert names == ["cos", "sin"]
    assert [len(list(jaxapi.programs(eqns[n]))) for n in ("while", "scan", "cond")] == [2, 1, 2]


def test_parameters_of_operations() -> None:
    """Each name that is read is there in the JAX that is installed."""
    x = jnp.ones((2, 3))

    def f(x: jax.Array) -> object:
        return (
            jax.lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), jnp.concatenate([x, x]), x @ x.T, x**3,
            jax.lax.reshape(x, (6,)), jax.lax.rev(x, (0,)), x[:1], x.at[0].set(1.0), x.at[0].add(x[1]),
            x.at[0].max(0.0), x.at[0].min(0.0), x.at[0].mul(2.0), jnp.squeeze(x[:1]), x.sum(0), x.max(0),
            x.min(0), x.prod(0), jnp.any(x > 0), jnp.all(x > 0), jnp.argmax(x), jnp.argmin(x),
            jnp.convolve(x[0], x[1]),
            jnp.tile(x, (2, 1)), x[jnp.array([0, 1])],
            jnp.cumsum(x), jnp.cumprod(x), jax.lax.cummax(x), jax.lax.cummin(x), jax.lax.cumlogsumexp(x),
        )  # fmt: skip

    found = set()

    def look(jaxpr: object) -> None:
        for eqn in jaxpr.eqns:  # type: ignore[attr-defined]
            if eqn.primitive.name in jaxapi._PARAMETERS:
                found.add(eqn.primitive.name)
                jaxapi.parameters(eqn)
            for program in jaxapi.programs(eqn):
                look(getattr(program, "jaxpr", program))

    look(jax.make_jaxpr(f)(x).jaxpr)
    assert found >= {*jaxapi._PARAMETERS} - {"stack"}  # made by newer versions alone
