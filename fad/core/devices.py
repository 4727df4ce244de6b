"""Devices by name: ``"cpu"``, ``"gpu:1"``, ``"cuda"``."""

from __future__ import annotations

from typing import Any

import jax

from fad.errors import ArgumentError

_PLATFORMS = {"cuda": "gpu", "mps": "METAL", "xla": "tpu"}


def device_of(device: Any) -> Any:
    """The device that a string names; what is no string is returned as it is.

    Arguments:
        device: the platform, as JAX calls it (``"cuda"`` is ``"gpu"``), and behind a colon the number of
            the device; the first one if there is none.

    Raises:
        ArgumentError: there is no such device.

    >>> device_of("cpu").platform
    'cpu'
    >>> device_of("cpu:99")
    Traceback (most recent call last):
    fad.errors.ArgumentError: device 'cpu:99': there are ...
    """
    if not isinstance(device, str):
        return device
    name, colon, number = device.partition(":")
    try:
        if not name:  # which would be JAX's default
            raise RuntimeError
        found = jax.local_devices(backend=_PLATFORMS.get(name, name))
    except RuntimeError:
        known = sorted({d.platform for d in jax.local_devices()} | {"cpu"})
        raise ArgumentError(
            f"device {device!r}: there is no {name!r} here, but {', '.join(map(repr, known))}. Leave the "
            "device out, which takes JAX's first, or install a JAX that has it (pip install 'jax[cuda12]')"
        ) from None
    try:
        return found[int(number) if colon else 0]
    except (ValueError, IndexError):
        raise ArgumentError(
            f"device {device!r}: there are {[f'{name}:{k}' for k in range(len(found))]}"
        ) from None
