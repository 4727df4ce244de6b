"""What Tensor has, by what it is for, with an example of each kind."""

from __future__ import annotations

import inspect

import fad

# From a title to the modules that the members come from, and an example of them.
GROUPS = {
    "Shape and dtype": (
        ("fad.core.tensor", "fad.methods.placement"),
        """
        >>> x = fad.tensor([[1.0, 2.0, 3.0]])
        >>> x.shape, x.ndim, x.size, x.dtype.name, x.nbytes
        ((1, 3), 2, 3, 'float32', 12)
        >>> x.astype(int).dtype.name, x.to("bfloat16").dtype.name
        ('int32', 'bfloat16')
        >>> x.level, x.value
        (eager level 0, Array([[1., 2., 3.]], dtype=float32))
        """,
    ),
    "Values": (
        ("fad.methods.values", "fad.methods.operators", "fad.views.copying"),
        """
        >>> x = fad.tensor([1.0, 2.0])
        >>> x.tolist(), x[0].item(), x.numpy()
        ([1.0, 2.0], 1.0, array([1., 2.], dtype=float32))
        >>> x.array
        Array([1., 2.], dtype=float32)
        >>> x.clone() is x
        False
        """,
    ),
    "Graph and gradients": (
        ("fad.methods.history", "fad.tape.hooks"),
        """
        >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * x
        >>> y.grad_fn, y.is_leaf, x.is_leaf
        (<MultiplyBackward>, False, True)
        >>> handle = y.register_hook(lambda g: print("gradient of y:", g.tolist()))
        >>> y.retain_grad()
        >>> y.sum().backward()
        gradient of y: [1.0, 1.0]
        >>> x.grad.tolist(), y.grad.tolist(), y.detach().requires_grad, x.version
        ([2.0, 4.0], [1.0, 1.0], False, 0)
        """,
    ),
    "Views": (
        ("fad.methods.shapes", "fad.methods.views", "fad.views.indexing"),
        """
        >>> x = fad.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> first, second = x.unbind(0)
        >>> first.is_view, first.base is x, x.T[1].tolist(), x.reshape(4).shape
        (True, True, [2.0, 4.0], (4,))
        >>> x.at[0].set(0.0).tolist()
        [[0.0, 0.0], [3.0, 4.0]]
        """,
    ),
    "Functions as methods": (
        ("fad.methods.names",),
        """
        >>> x = fad.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.sum().item(), x.mean(0).tolist(), x.max(axis=1).tolist(), x.argmax().item()
        (10.0, [2.0, 3.0], [2.0, 4.0], 3)
        >>> x.cumsum(1).tolist(), x.trace().item(), x.dot(x[0]).tolist()
        ([[1.0, 3.0], [3.0, 7.0]], 5.0, [5.0, 11.0])
        """,
    ),
    "In place": (
        ("fad.methods.in_place",),
        """
        >>> x = fad.tensor([1.0, 4.0])
        >>> x.sqrt_().add_(1.0).mul_(2.0)
        Tensor([4., 6.], dtype=float32)
        >>> x.clamp_(max=5.0).unsqueeze_(0).shape, x.version
        ((1, 2), 5)
        >>> x[0, 1] = 7.0
        >>> x.zero_().tolist()
        [[0.0, 0.0]]
        """,
    ),
    "The array's own": (
        ("fad.bridge.protocols",),
        """
        >>> x = fad.tensor([1.0, 2.0])
        >>> x.is_fully_addressable, len(x.addressable_shards), x.is_deleted()
        (True, 1, False)
        """,
    ),
}
MORE = "More"  # for what comes from another module


def groups() -> dict[str, list[str]]:
    """The public members of Tensor, by title."""
    titles = {module: title for title, (modules, _) in GROUPS.items() for module in modules}
    found: dict[str, list[str]] = {title: [] for title in [*GROUPS, MORE]}
    for name in dir(fad.Tensor):
        getattr(fad.Tensor, name)  # a member in a tool is imported now
        member = inspect.getattr_static(fad.Tensor, name)
        if not name.startswith("_") and not inspect.ismemberdescriptor(member):
            made_by = getattr(member, "fget", None) or member
            title = titles.get(getattr(made_by, "__module__", ""), MORE)
            found["In place" if name.endswith("_") else title].append(name)
    return {title: names for title, names in found.items() if names}


def example(title: str) -> str:
    """The example of a kind of members, as a doctest."""
    return inspect.cleandoc(GROUPS[title][1]) if title in GROUPS else ""
