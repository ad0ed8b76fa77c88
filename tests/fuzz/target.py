"""A target: code that reads foreign bytes, and its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NoReturn

CORPUS = Path(__file__).parent / "corpus"

Mutate = Callable[[bytes, Random], bytes | None]


class Broken(Exception):
    """The contract does not hold. ``rule`` is the same for all bytes that break it alike."""

    def __init__(self, rule: str, detail: object = "") -> None:
        super().__init__(rule, detail)
        self.rule = rule


@dataclass(frozen=True)
class Target:
    """A target: ``check`` returns for all input that the contract allows, and raises otherwise.

    ``seeds`` are inputs that reach deep into the code. ``mutate`` changes an input and keeps its
    form (JSON, a footer with its length), or returns None where it cannot.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Mutate | None = None
    max_bytes: int = 4096

    def corpus(self) -> list[Path]:
        """Return the files that earlier runs found, unchanged."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())


def hold(rule: str, holds: bool, detail: object = "") -> None:
    """Raise `Broken` unless it ``holds``."""
    if not holds:
        broken(rule, detail)


def broken(rule: str, detail: object = "") -> NoReturn:
    """Report that the contract does not hold."""
    raise Broken(rule, detail)
