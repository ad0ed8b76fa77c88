"""``blizzard up``: both daemons as child processes with one page, for a small server."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import LOG_LEVELS, command, config_argument
from blizzard_core.errors import ConfigError
from blizzard_core.observability.address import WebAddress
from blizzard_core.signals import INTERRUPTED

if TYPE_CHECKING:
    from blizzard_core.settings.document import MetricsSettings

# Pages without `metrics` in the configuration; another free port if one is taken.
_HOST = "127.0.0.1"
_PORTS = {"blizzard": 9090, "penguin": 9091}
_MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}
# How long a child may take beyond the grace period before it is killed.
_KILL_SECS = 60.0
_CHECK_SECS = 0.2
# The code of a child that SIGTERM ended before it could handle it.
_STOPPED = 128 + signal.SIGTERM
# The code of a child that SIGKILL ended.
_KILLED = 128 + signal.SIGKILL
# How many presses of Ctrl-C end the children at once.
_ENDING_INTERRUPTS = 2
# Of prctl(2) on Linux: the signal that a child gets when its parent dies.
_PDEATHSIG = 1


@command(
    section="Run",
    examples=("blizzard up config.yaml                # until Ctrl-C",),
    log_level=False,  # it passes its own on
)
@config_argument
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="Least severe level to log.",
)
def up(config: Path, log_level: str) -> int:
    """Run both daemons and one status page for both until Ctrl-C or SIGTERM.

    Starts `blizzard run` and `penguin run` and passes their logs on. The page is at the address of
    `metrics`; without it on this machine only, at 9090 or another free port. If one daemon ends,
    the other is stopped, and its exit code is that of this command.
    """
    from blizzard_core.settings.needed_extras import check_extras, needed_extras
    from blizzard_py.app.configuration import load_config
    from blizzard_py.engines.java import require_java

    loaded = load_config(config)
    if not loaded.pipelines:
        raise ConfigError(
            str(config), ["has no `pipelines`, so Blizzard has no work; run `penguin run` alone"]
        )
    check_extras(needed_extras(loaded))
    require_java(loaded.spark.master)
    addresses = page_addresses(loaded.metrics)
    click.echo(f"status page: http://{addresses['blizzard']}/")
    sys.stdout.flush()
    commands = {
        name: [
            *(sys.executable, "-m", module, "run", str(config)),
            *("--log-level", log_level, "--metrics-address", addresses[name]),
        ]
        for name, module in _MODULES.items()
    }
    commands["blizzard"] += ["--penguin-page", addresses["penguin"]]
    return supervise(commands, loaded.global_.advanced.shutdown_grace + _KILL_SECS)


def page_addresses(metrics: MetricsSettings | None) -> dict[str, str]:
    """Return where the pages are served: as configured, or on free ports of this machine."""
    if metrics is None:
        return {name: _free_address(_HOST, port) for name, port in _PORTS.items()}
    host, port = WebAddress.parse(metrics.address)
    blizzard = metrics.address if port else _free_address(host, 0)
    penguin = metrics.penguin_address or _free_address(host, port + 1 if port else 0)
    return {"blizzard": blizzard, "penguin": penguin}


def supervise(commands: Mapping[str, Sequence[str]], kill_secs: float) -> int:
    """Run these processes until a signal comes or one of them ends. Return the exit code.

    SIGTERM and SIGINT are passed on as SIGTERM, which finishes what runs. A second SIGINT ends the
    children at once, also where only this process gets it. Whoever is still there after
    ``kill_secs`` is killed: the next start repeats its work.
    """
    signals: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, _frame: signals.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, arguments in commands.items():
            children[name] = _start(arguments)
        while not signals and not (ended := _ended(children)):
            time.sleep(_CHECK_SECS)
        if not signals:
            ends = ", ".join(f"{name} {_end_text(code)}" for name, code in ended.items())
            click.echo(f"{ends}; stopping both", err=True)
        for child in children.values():
            child.terminate()
        deadline = time.monotonic() + kill_secs
        while (
            len(_ended(children)) < len(children)
            and time.monotonic() < deadline
            and signals.count(signal.SIGINT) < _ENDING_INTERRUPTS
        ):
            time.sleep(_CHECK_SECS)
    finally:
        for child in children.values():
            child.kill()
            child.wait()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if signals.count(signal.SIGINT) >= _ENDING_INTERRUPTS:
        return INTERRUPTED
    codes_by_age = [*({} if signals else ended).values(), *_ended(children).values()]
    return next((code for code in codes_by_age if code not in (0, _STOPPED)), 0)


def _end_text(code: int) -> str:
    """Return how a child ended, and what a person should look for."""
    if code == _KILLED:
        return f"was killed (exit code {code}), by hand or for lack of memory: see `dmesg`"
    return f"ended with exit code {code}"


def _ended(children: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, int]:
    """Return the exit codes of the children that ended, as a shell has them."""
    codes = {name: child.poll() for name, child in children.items()}
    return {
        name: 128 - code if code < 0 else code for name, code in codes.items() if code is not None
    }


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a child that is told to stop when this process dies, even by SIGKILL (on Linux).

    Until it handles Ctrl-C itself it ignores it: SIGTERM from here ends it during its imports.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def follow_parent() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(AttributeError):
            libc.prctl(_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it died before it was followed
                os._exit(_STOPPED)

    # This process has one thread, so a function may run between fork and exec.
    return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, preexec_fn=follow_parent)  # noqa: PLW1509, S603  # see above; our own module, and no shell


def _free_address(host: str, port: int) -> str:
    """Return the address with this port, or with a free one if it is taken."""
    for wanted in (port, 0):
        with suppress(OSError, OverflowError), WebAddress(host, wanted).listen() as found:
            return str(WebAddress(host, found.getsockname()[1]))
    raise ConfigError("metrics", [f"cannot listen on {host}; give another `address`"])
