"""Registry of the guards and their replacements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.world import SimulatedWorld

Patch = Callable[[SimulatedWorld], AbstractContextManager[Any]]
Model = Callable[[int], list[str]]


@dataclass(frozen=True)
class Guard:
    """One guard: its name, what the product does without it, and how to take it away.

    A ``model`` returns the violations of a seed, in place of a history of both daemons.
    """

    name: str
    without: str
    patch: Patch
    model: Model | None = None


GUARDS: list[Guard] = []


def guard(
    without: str, model: Model | None = None
) -> Callable[[Callable[[SimulatedWorld], Iterator[None]]], Patch]:
    """Register a patch under its function's name."""

    def register(function: Callable[[SimulatedWorld], Iterator[None]]) -> Patch:
        patch = contextmanager(function)
        GUARDS.append(Guard(function.__name__, without, patch, model))
        return patch

    return register


# -- what asks nobody and does nothing ------------------------------------------------------


def nothing(*_arguments: Any, **_more: Any) -> None:
    """Do nothing."""


def always(*_arguments: Any, **_more: Any) -> bool:
    return True


def never(*_arguments: Any, **_more: Any) -> bool:
    return False


def none(*_arguments: Any, **_more: Any) -> list[Any]:
    return []


def empty(*_arguments: Any, **_more: Any) -> tuple[Any, ...]:
    return ()


def anybody(*_arguments: Any, **_more: Any) -> str:
    return ""
