"""Values that are saved for the backward pass in the memory of the host."""

from __future__ import annotations

import jax
from jax.sharding import Sharding

from fad import Tensor
from fad.autograd import saved_tensors_hooks
from fad.extend import bottom


class save_on_cpu(saved_tensors_hooks):
    """A block in which saved values are kept in host memory, and copied back when they are needed.

    Arguments:
        pin_memory, device_type: have no effect; PyTorch has them. JAX manages buffers of transfers itself.

    Source: ``torch.autograd.graph.save_on_cpu``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor(0.0, requires_grad=True)
    >>> with fad.autograd.save_on_cpu():
    ...     y = fnp.exp(x)
    >>> y.backward()
    >>> x.grad.item()
    1.0
    """

    __slots__ = ()

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        cpu = jax.devices("cpu")[0]

        def to_host(t: Tensor) -> tuple[Sharding | None, Tensor]:
            value = bottom(t)
            is_traced = isinstance(value, jax.core.Tracer)
            return None if is_traced else value.sharding, t.to(cpu)

        def back(packed: tuple[Sharding | None, Tensor]) -> Tensor:
            where, t = packed
            return t if where is None else t.to(where)

        super().__init__(to_host, back)
