"""The handle: what it says of itself without a transform, what aliases share, and what makes none."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import leaf

import fad
from fad.core import tensor as module
from fad.core.tensor import Tensor, bottom, meta_of, new_tensor, storage_of, version_of
from fad.tape.recorder import ROOT


def test_a_tensor_is_made_by_functions_alone() -> None:
    for args in ((), (1.0,), ([1.0], "float32")):
        with pytest.raises(TypeError, match=r"write fad\.tensor\(data\).*fad\.asarray\(x\)"):
            fad.Tensor(*args)


def test_plain_jax_functions_refuse_it_and_say_what_to_write() -> None:
    for f in (jnp.sin, jnp.sum, lambda x: jnp.add(x, 1.0), jax.lax.exp):
        with pytest.raises(TypeError, match=r"write fad\.numpy\.f\(x\)"):
            f(fad.tensor([1.0]))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_it_has_the_form_of_its_array(shape: tuple[int, ...]) -> None:
    array = jnp.ones(shape, jnp.int8)
    x = fad.asarray(array)
    assert (x.shape, x.dtype, x.ndim, x.size) == (array.shape, array.dtype, array.ndim, array.size)
    assert x.aval == array.aval and bottom(x) is x.value


def test_its_form_is_that_of_a_lane_inside_of_vmap() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.size, x.aval.shape))
        seen.append(bottom(x).shape)
        return x

    fad.vmap(fad.vmap(f))(jnp.ones((4, 3, 2)))
    assert seen == [((2,), 1, 2, (2,)), (4, 3, 2)]


def test_a_plain_tensor_has_no_meta() -> None:
    """What only few Tensors have costs the others nothing; reading it makes none."""
    x = fad.tensor([1.0]) * 2.0
    assert (x.grad, x.base, x.version, x.retains_grad, x.output_nr) == (None, None, 0, False, 0)
    assert x.meta is None


def test_aliases_share_a_storage_and_its_version() -> None:
    x = fad.tensor([1.0, 2.0])
    y, other = x.detach(), fad.tensor([1.0, 2.0])
    x += 1.0
    assert version_of(x) == version_of(y) == x.version == 1 and version_of(other) == 0
    assert storage_of(x) is storage_of(y) is not storage_of(other)


@pytest.mark.parametrize("make", [meta_of, storage_of])
def test_what_is_made_late_is_the_same_for_all_threads(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads have both seen that there is none; one of them is held up there."""
    x = fad.tensor([1.0])
    meta_of(x) if make is storage_of else None
    barrier = threading.Barrier(2)
    lock = threading.Lock()

    class Together:
        def __enter__(self) -> None:
            barrier.wait(10)
            lock.acquire()

        def __exit__(self, *exc: object) -> None:
            lock.release()

    monkeypatch.setattr(module, "_meta_lock", Together())
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(make(x))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found[0] is found[1]


def test_an_inference_tensor_has_a_version_that_no_saved_value_has() -> None:
    with fad.inference_mode():
        x = fad.tensor([1.0])
        x += 1.0
    assert storage_of(x).version < 0


def test_properties_can_be_set_and_read_on_every_tensor() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    t = new_tensor(y.value, ROOT)
    assert (t.requires_grad, t.node, t.output_nr, t.aux) == (False, None, 0, None)
    t._requires_grad, t._node, t._output_nr = True, y.node, y.output_nr
    t.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    t._value = jnp.zeros(2)
    assert t.tolist() == [0.0, 0.0] and isinstance(t, Tensor)


def test_dir_has_what_is_there_and_for_users() -> None:
    x = fad.tensor([1.0, 2.0])
    for names in (dir(fad.Tensor), dir(x), dir(x[:1]), dir(fad.ones(2, 2))):
        assert {"shape", "grad", "version", "sin_"} <= {*names}
        assert not {"aux", "born", "meta", "node"} & {*names}
    for t in (x, x[:1], fad.ones(2, 2)):
        assert all([hasattr(t, name) for name in dir(t)])
    assert "view_fn" in dir(x[:1]) and "view_fn" not in dir(x)
    seen: list[int] = []
    fad.jit(fad.vmap(lambda x: (seen.append(len(dir(x))), x)[1]))(jnp.ones(2))
    fad.grad(lambda x: (seen.append(len(dir(x))), x)[1])(1.0)
    assert min(seen) > 500


def test_it_has_attributes_of_the_user() -> None:
    """The state that an optimizer keeps on a parameter, as PyTorch's programs do."""
    parameters = [leaf([1.0, 2.0]), leaf(3.0)]
    for _ in range(3):
        for p in parameters:
            p.grad = None
        sum((p * p).sum() for p in parameters).backward()
        with fad.no_grad():
            for p in parameters:
                if not hasattr(p, "momentum"):
                    p.momentum = fad.zeros_like(p)
                p.momentum.mul_(0.5).add_(p.grad)
                p -= 0.125 * p.momentum
    x, momentum = 3.0, 0.0
    for _ in range(3):
        momentum = 0.5 * momentum + 2.0 * x
        x -= 0.125 * momentum
    assert parameters[1].item() == x
    assert "momentum" in dir(parameters[0])
    assert not hasattr(parameters[0] * 1.0, "momentum")
    with pytest.raises(AttributeError, match="did you mean"):
        parameters[0].requires_gard
