"""The type of classes whose instances are blocks of ``with``: the class itself is none."""

from __future__ import annotations

from typing import NoReturn

from fad.errors import ArgumentError


class BlockType(type):
    """A type that refuses ``with no_grad:``, where ``with no_grad():`` is meant.

    >>> class block(metaclass=BlockType):
    ...     def __enter__(self): return self
    ...     def __exit__(self, *exc): return None
    >>> with block: pass
    Traceback (most recent call last):
    fad.errors.ArgumentError: block is a class, and needs parentheses: write `with block():`
    """

    def __enter__(cls) -> NoReturn:
        name = cls.__name__
        raise ArgumentError(f"{name} is a class, and needs parentheses: write `with {name}():`")

    def __exit__(cls, *exc: object) -> None: ...
