"""Interpreters of child processes, kept for the next test.

A start takes half a second. Each call runs in a fork of its own, so no test sees what another did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, ParamSpec, TypeVar

from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.columnar.messages import OwnProcess

P = ParamSpec("P")
R = TypeVar("R")


class WarmChild(ChildProcess):
    """A `ChildProcess` that takes an idle interpreter, and leaves it behind at its end."""

    _idle: ClassVar[list[OwnProcess]] = []
    _is_unanswered = False

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._started is None and self._idle:
            self._started = self._idle.pop()
        self._is_unanswered = True
        try:
            found = super().call(function, *args, **kwargs)
        except Exception:
            self._is_unanswered = False
            raise
        self._is_unanswered = False
        return found

    def close(self) -> None:
        """Leave the interpreter behind, unless its next answer is to a call of before."""
        started = self._started
        if started is None or self._is_unanswered or started.process.poll() is not None:
            super().close()
        else:
            self._idle.append(started)
            self._started = None

    @classmethod
    def end_idle(cls) -> None:
        """End the interpreters that wait."""
        while cls._idle:
            cls._idle.pop().kill()
