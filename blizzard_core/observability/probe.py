"""The container's health check: ``python -m blizzard_core.observability.probe CONFIG``.

It requests ``/health`` from the daemon that runs with CONFIG in this container. Exit code 0: the
daemon is alive, or ``metrics`` is not configured, or CONFIG does not exist. Exit code 1: it is
not alive; the reason is printed.
"""

from __future__ import annotations

import sys
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from blizzard_core.errors import BlizzardError
from blizzard_core.observability.address import WebAddress
from blizzard_core.settings.load import load_config

TIMEOUT_SECS = 5
_SHOWN_BYTES = 2000


def probe(config: Path) -> tuple[bool, str]:
    """Return whether the daemon with this ``config`` is alive, as far as can be told, and why."""
    if not config.exists():
        return True, f"{config}: not there, nothing to ask"
    metrics = load_config(config).metrics
    if metrics is None:
        return True, f"{config}: metrics.address is not set, nothing to ask"
    alive, answer = _query_health(metrics.address)
    # Which of the two daemons this container runs is not in the file.
    if not alive and metrics.penguin_address is not None:
        alive, answer = _query_health(metrics.penguin_address)
    return alive, answer


def _query_health(address: str) -> tuple[bool, str]:
    host, port = WebAddress.parse(address).local
    connection = HTTPConnection(host, port, timeout=TIMEOUT_SECS)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        text = answer.read(_SHOWN_BYTES).decode(errors="replace")
    except (OSError, HTTPException) as error:
        return False, f"{address}: {error}"
    finally:
        connection.close()
    return answer.status == 200, text


def main(config: str) -> int:
    """Print what was found; the exit code."""
    try:
        alive, reason = probe(Path(config))
    except BlizzardError as error:
        alive, reason = False, str(error)
    print(reason)  # noqa: T201  # container engines keep what a health check prints
    return 0 if alive else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
