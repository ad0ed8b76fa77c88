"""Run the shell blocks of a document, and compare the output blocks that follow them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_process import command_process, write_program
from tests.support.scenario import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MARK = "---- block"
_MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}


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
    """Run the blocks in one shell, each command as a process; return what each block printed.

    A failed command fails the test.
    """
    programs = _programs(folder)
    for name, module in _MODULES.items():
        _write_script(programs / name, f"-m {module} ")
    return _printed(steps, folder, _environment(environment, programs))


@contextmanager
def process_for_steps(**environment: str) -> Iterator[Path]:
    """Yield the socket of a process for all commands of both programs in some documents."""
    with command_process(_environment(environment)) as place:
        yield place


def run_steps_together(
    steps: list[Step], folder: Path, place: Path, **environment: str
) -> list[str]:
    """Run the blocks as `run_steps` does, with the process at a socket for all commands."""
    programs = _programs(folder)
    for name in _MODULES:
        write_program(programs / name, name, place)
    return _printed(steps, folder, _environment(environment, programs))


def _environment(given: dict[str, str], *programs: Path) -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return {**variables, "PATH": path, "PYTHONPATH": str(ROOT), **given}


def _printed(steps: list[Step], folder: Path, environment: dict[str, str]) -> list[str]:
    script = "set -euo pipefail\n"
    script += "".join(f"echo '{_MARK}'\n{step.commands}" for step in steps)
    # Files, since a server that a tutorial leaves behind keeps a pipe open.
    printed, log = folder / "printed", folder / "log"
    with printed.open("wb") as out, log.open("wb") as err:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = shell.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    text = printed.read_text(encoding="utf-8")
    assert code == 0, f"{text}\n{log.read_text(encoding='utf-8')}"
    return text.split(f"{_MARK}\n")[1:]


def check_output(step: Step, printed: str) -> None:
    """Check that every line which the document shows is printed; ``…`` stands for any text."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for shown in step.output.splitlines():
        words = " ".join(shown.split())
        pattern = re.compile(re.escape(words).replace("…", ".*"))
        assert any(pattern.fullmatch(line) for line in lines), f"{shown}\n{printed}"


def _programs(folder: Path) -> Path:
    """Make a folder of commands of this checkout, to be found before others."""
    programs = folder / "bin"
    programs.mkdir()
    _write_script(programs / "python", "")
    return programs


def _write_script(path: Path, arguments: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
    path.chmod(0o755)
