"""Interpreters of child processes, kept for the next test.

A start takes half a second. Each call runs in a fork of its own, so no test sees what another did.
"""

from __future__ import annotations

from collections.abc import Callable
from subprocess import Popen
from typing import ClassVar, ParamSpec, TypeVar

from blizzard_py.formats.child_process import ChildProcess

P = ParamSpec("P")
R = TypeVar("R")


class WarmChild(ChildProcess):
    """A `ChildProcess` that takes an idle interpreter, and leaves it behind at its end."""

    _idle: ClassVar[list[Popen[bytes]]] = []
    _is_unanswered = False

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
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
        process = self._process
        if process is None or self._is_unanswered or process.poll() is not None:
            super().close()
        else:
            self._idle.append(process)
            self._process = None

    def _started(self) -> Popen[bytes]:
        if self._process is None and self._idle:
            self._process = self._idle.pop()
        return super()._started()

    @classmethod
    def end_idle(cls) -> None:
        """End the interpreters that wait."""
        while cls._idle:
            process = cls._idle.pop()
            process.kill()
            process.communicate()
