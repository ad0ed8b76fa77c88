"""Run the shell blocks of a document, and compare the output blocks that follow them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.scenario import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MARK = "---- block"


@dataclass(frozen=True, slots=True)
class Step:
    """A shell block, and the output that the document shows below it ("" for none)."""

    commands: str
    output: str


def read_steps(document: str) -> list[Step]:
    """Return the ``sh`` blocks of a document, each with the ``text`` block that follows it."""
    steps: list[Step] = []
    for kind, body in _BLOCK.findall(document):
        if kind == "sh":
            steps.append(Step(body, ""))
        elif kind == "text" and steps:
            steps[-1] = Step(steps[-1].commands, body)
    return steps


def run_steps(steps: list[Step], folder: Path, **environment: str) -> list[str]:
    """Run the blocks in one shell; return what each printed. A failed command fails the test."""
    script = "set -euo pipefail\n"
    script += "".join(f"echo '{_MARK}'\n{step.commands}" for step in steps)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    path = f"{_programs(folder)}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**variables, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, log = shell.communicate()
        finally:
            # A failed tutorial may leave a server behind.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"{printed}\n{log}"
    return printed.split(f"{_MARK}\n")[1:]


def check_output(step: Step, printed: str) -> None:
    """Check that every line which the document shows is printed; ``…`` stands for any text."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for shown in step.output.splitlines():
        words = " ".join(shown.split())
        pattern = re.compile(re.escape(words).replace("…", ".*"))
        assert any(pattern.fullmatch(line) for line in lines), f"{shown}\n{printed}"


def _programs(folder: Path) -> Path:
    """Make the commands of this checkout, to be found before others."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in (
        ("blizzard", "-m blizzard_py "),
        ("penguin", "-m penguin_py "),
        ("python", ""),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        (programs / name).chmod(0o755)
    return programs
