"""Activity of a worker that records errors and exit codes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from blizzard_core.errors import BlizzardError, FencedError


def _ignored(*_arguments: Any, **_more: Any) -> None:
    """Ignore the call."""


class _QuietView:
    """A `NotificationView` that shows nothing."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return _ignored


class Quiet:
    """An `Activity` of a worker. ``tell`` gets the errors that end a cycle."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name = name
        self._tell = tell
        self.failures = 0
        self.cycles = 0
        self.code: int | None = None
        self.error: BaseException | None = None
        self.notifications = _QuietView()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ignored

    def cycle_began(self) -> None:
        self.cycles += 1

    def cycle_done(self) -> None:
        self.failures = 0

    def cycle_failed(self, error: BaseException) -> None:
        self.failures += 1
        self.error = error
        self._tell(f"{self._name}: {type(error).__name__}: {str(error)[:300]}")

    def ended(self, code: int) -> None:
        self.code = code

    @property
    def crashed(self) -> bool:
        """The worker ended with an error that nothing excuses."""
        return bool(self.code) and not isinstance(self.error, FencedError)

    @property
    def is_bug(self) -> bool:
        """The error is none that the product raises on purpose."""
        return self.error is not None and not isinstance(self.error, BlizzardError)

    @contextmanager
    def chore(self, _name: str) -> Iterator[None]:
        yield

    @contextmanager
    def committing(self, *_arguments: Any, **_more: Any) -> Iterator[None]:
        yield
