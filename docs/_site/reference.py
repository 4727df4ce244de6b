"""The reference: a page for each public name, made of its docstring, and an index for each module.

`write` makes the pages when the site is built. What a module has is read off the module, so no list of names
is kept here. The names of `fad.numpy` and the other derived modules have one line each, the first sentence of
their docstring, which is that of their JAX twin.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensor

# Each module once, the first in which a name stands has its page.
WRITTEN = {
    "fad": "values, custom rules, transforms, forward mode, modes, the bridge to JAX",
    "fad.autograd": "the eager graph: nodes, hooks, saved values, anomaly mode",
    "fad.autograd.forward_ad": "dual Tensors, as `torch.autograd.forward_ad`",
    "fad.autograd.function": "`torch.autograd.function`'s names",
    "fad.autograd.functional": "`torch.autograd.functional`'s names",
    "fad.autograd.grad_mode": "`torch.autograd.grad_mode`'s names",
    "fad.autograd.graph": "`torch.autograd.graph`'s names",
    "fad.autograd.profiler": "`torch.autograd.profiler`'s names",
    "fad.func": "`torch.func`'s names",
    "fad.extend": "operations and transforms of one's own",
    "fad.nn.losses": "PyTorch's losses, which are in `fad.nn`",
    "fad.nn.utils": "norms and clipping of gradients, parameters as one vector",
    "fad.implicit": "derivatives of what a solver finds",
    "fad.testing": "checking derivatives and rules",
    "fad.testing.plugin": "tests of a Function for pytest",
    "fad.testing.strategies": "strategies for hypothesis",
    "fad.viz": "pictures of graphs and matrices",
    "fad.errors": "the exceptions",
}
DERIVED = {
    "fad.numpy": "jax.numpy",
    "fad.numpy.linalg": "jax.numpy.linalg",
    "fad.numpy.fft": "jax.numpy.fft",
    "fad.lax": "jax.lax",
    "fad.lax.linalg": "jax.lax.linalg",
    "fad.nn": "jax.nn",
    "fad.nn.initializers": "jax.nn.initializers",
    "fad.random": "jax.random",
    "fad.scipy": "jax.scipy",
}


def names(module: str) -> list[str]:
    """The public names of a module, without its modules."""
    found = importlib.import_module(module)
    listed = [n for n in getattr(found, "__all__", dir(found)) if not n.startswith("_")]
    return [n for n in listed if not isinstance(getattr(found, n), types.ModuleType)]


def homes() -> dict[str, str]:
    """For each public name, with its module in front, the name under which it has its page."""
    found: dict[str, str] = {}
    first: dict[int, str] = {}
    for module in WRITTEN:
        for name in names(module):
            full = f"{module}.{name}"
            found[full] = first.setdefault(id(getattr(importlib.import_module(module), name)), full)
    return found


def resolve(full: str) -> Any:
    """The object with this full name."""
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)


def derived_modules() -> Iterator[tuple[str, str]]:
    """The derived modules with their JAX twins; `fad.scipy` has modules of its own."""
    for module, twin in DERIVED.items():
        yield module, twin
        if module == "fad.scipy":
            found = importlib.import_module(module)
            for name in dir(found):
                if isinstance(getattr(found, name), types.ModuleType):
                    yield f"{module}.{name}", f"{twin}.{name}"


def summary(found: Any) -> str:
    """The first sentence of a docstring, as plain text."""
    text = inspect.getdoc(found) or "" if callable(found) or isinstance(found, property) else ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.][.!]) (?=[A-Z`])", paragraph)[0]
    plain = re.sub(r":[\w:]+:`~[\w.]*?(\w+)`", r"\1", sentence)
    plain = re.sub(r":[\w:]+:`\.?([^`<]*?)(?: <[^`]*>)?`", r"\1", plain)
    plain = re.sub(r"`+([^`]*)`+", r"\1", plain)
    return re.sub(r"([\\*`_|:])", r"\\\1", plain)


def page_name(full: str) -> str:
    """The file of a name's page. `fad.Tensor` and `fad.tensor` need two, whatever the file system."""
    last = full.rpartition(".")[2]
    return f"{full}-class" if last[:1].isupper() else full


def heading(text: str, sign: str = "=") -> str:
    return f"{text}\n{sign * len(text)}\n\n"


def table(rows: list[tuple[str, str]]) -> str:
    lines = [".. list-table::", "   :widths: 30 70", "   :width: 100%", ""]
    for name, text in rows:
        lines += [f"   * - {name}", f"     - {text}"]
    return "\n".join(lines) + "\n\n"


def name_page(full: str) -> str:
    found = resolve(full)
    text = heading(full)
    if full == "fad.Tensor":
        return text + tensor_page()
    examples = f"\n.. autolink-examples:: {full}\n   :collapse:\n"
    if inspect.isclass(found):
        text += f".. autoclass:: {full}\n   :members:\n"
        if issubclass(found, BaseException):
            text += "   :show-inheritance:\n"
        return text + examples
    if callable(found):
        return text + f".. autofunction:: {full}\n" + examples
    whole = repr(found) if len(repr(found)) < 80 else f"{type(found).__name__} of {len(found)}"
    return text + f".. py:data:: {full}\n\n   ``{whole}``\n"


def tensor_page() -> str:
    text = ".. autoclass:: fad.Tensor\n\n"
    for title, group in tensor.groups().items():
        text += heading(title, "-") + tensor.example(title) + "\n\n"
        for name in group:
            kind = inspect.getattr_static(resolve("fad.Tensor"), name)
            directive = "automethod" if inspect.isroutine(kind) else "autoattribute"
            text += f".. {directive}:: fad.Tensor.{name}\n"
        text += "\n"
    return text


def module_page(module: str, about: str) -> str:
    home = homes()
    rows = []
    for name in sorted(names(module), key=str.lower):
        full = home[f"{module}.{name}"]
        found = resolve(full)
        rows.append((f":doc:`{name} <{page_name(full)}>`", summary(found) or type(found).__name__))
    own = [full for full, at in home.items() if full == at and full.rpartition(".")[0] == module]
    text = heading(module) + f"{about[0].upper()}{about[1:]}.\n\n".replace("`", "``") + table(rows)
    last = {full: full.rpartition(".")[2] for full in own}
    entries = "".join(
        f"   {last[full]} <{page_name(full)}>\n" for full in sorted(own, key=str.lower)
    )
    return text + (f".. toctree::\n   :hidden:\n\n{entries}" if own else "")


def derived_page(module: str, twin: str) -> str:
    text = heading(module)
    text += f"The names of ``{twin}``, with its arguments and results, for Tensors and arrays; "
    text += ":doc:`../namespaces` says how they are derived and what differs.\n\n"
    text += f".. py:module:: {module}\n   :no-index:\n\n"
    found = importlib.import_module(module)
    for name in sorted(names(module), key=str.lower):
        item = getattr(found, name)
        kind = "class" if inspect.isclass(item) else "function" if callable(item) else "data"
        text += f".. py:{kind}:: {name}\n\n   {summary(item)}\n\n"  # of the module above
    return text


def write(folder: Path) -> None:
    """Write all pages of the reference; what is the same stays untouched."""
    pages = {module: module_page(module, about) for module, about in WRITTEN.items()}
    pages |= {page_name(full): name_page(full) for full, at in homes().items() if full == at}
    derived = dict(derived_modules())
    pages |= {module: derived_page(module, twin) for module, twin in derived.items()}
    text = heading("Reference")
    text += "Each public name has a page, with what it takes, what it returns, and an example.\n\n"
    text += table([(f":doc:`{m} <{m}>`", a.replace("`", "``")) for m, a in WRITTEN.items()])
    text += "Derived from JAX, one line for each name:\n\n"
    text += table(
        [(f":doc:`{m} <{m}>`", f"the names of ``{twin}``") for m, twin in derived.items()]
    )
    entries = "".join(f"   {module}\n" for module in [*WRITTEN, *derived])
    pages["index"] = text + f".. toctree::\n   :hidden:\n\n{entries}"
    folder.mkdir(exist_ok=True)
    for old in set(folder.iterdir()) - {folder / f"{name}.rst" for name in pages}:
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, page in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)
