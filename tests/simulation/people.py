"""What people do beside the daemons: the commands of the product, at any moment."""

from __future__ import annotations

from typing import Any

from tests.simulation.plan import Event


def act(_director: Any, found: Event) -> None:
    """Do what the event says."""
    raise ValueError(f"no such event: {found}")
