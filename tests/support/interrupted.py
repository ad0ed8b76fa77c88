"""Objects whose calls are made by a function, which may count them, refuse them or die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import GeneratorType
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call: its name, what it was given, and how it is made. Pages are all read within it."""

    name: str
    arguments: tuple[Any, ...]
    made: Callable[[], Any]

    def __call__(self) -> Any:
        found = self.made()
        return iter(list(found)) if isinstance(found, GeneratorType) else found


class Interrupted:
    """A proxy of ``inner``, mostly a store: each call goes through ``around``."""

    def __init__(self, inner: Any, around: Callable[[Call], Any]) -> None:
        self._inner = inner
        self._around = around

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *given, **more: self._around(Call(name, given, lambda: found(*given, **more)))
