"""A process that runs one of our modules, and is connected to its parent by a `Line`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from blizzard_py.formats.columnar.messages import Line


class OwnProcess:
    """A clean interpreter with ``python -m module``, which gets its end of the line as a number."""

    def __init__(self, module: str, stdout: int, environment: Mapping[str, str]) -> None:
        own_end, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                env={**os.environ, "PYTHONPATH": path, **environment},
            )
        self.line = Line(own_end)

    def kill(self) -> None:
        """End the process."""
        self.line.close()
        self.process.kill()
        self.process.wait()
