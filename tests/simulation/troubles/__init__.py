"""Table of the troubles that a plan may contain, with their chances."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.drawing import Drawing
from tests.simulation.troubles import operators, processes, stores, tables
from tests.simulation.writers import delete, rewrite


def nothing(drawing: Drawing) -> None:
    """Draw no trouble."""


TROUBLES: dict[str, tuple[float, Callable[[Drawing], None]]] = {
    "nothing": (8, nothing),
    "death": (5, processes.death),
    "kill": (3, processes.kill),
    "outage": (3, processes.outage),
    "stall": (4, processes.stall),
    "stale_starter": (2, processes.stale_starter),
    "stale_sweeper": (1, processes.stale_sweeper),
    "stale_folder": (0.5, processes.stale_folder),
    "rival": (1, processes.rival),
    "slow_job": (3, processes.slow_job),
    "backlog": (1.5, processes.backlog),
    "half_published": (1, processes.half_published),
    "release": (1, processes.release),
    "lost_answer": (2, stores.lost_answer),
    "late_landing": (2, stores.late_landing),
    "refusal": (1, stores.refusal),
    "hanging": (1, stores.hanging),
    "odd_page": (1, stores.odd_page),
    "clock": (1, stores.clock),
    "slow_answer": (1.5, stores.slow_answer),
    "slow_listing": (1.5, stores.slow_listing),
    "rewrite": (1, rewrite),
    "delete": (1, delete),
    "half_committed": (1, tables.half_committed),
    "mirror": (0.5, tables.mirror),
    "stray": (1, tables.stray),
    "compaction": (1, tables.compaction),
    "vacuum": (0.5, tables.vacuum),
    "restore": (0.5, tables.restore),
    "log_cut": (0.5, tables.log_cut),
    "lifecycle": (0.3, operators.lifecycle),
    "misconfigured": (0.5, operators.misconfigured),
    "checkpoint_lost": (1, operators.checkpoint_lost),
    "regraced": (0.5, operators.regraced),
    "renamed": (0.3, operators.renamed),
    "moved": (0.7, operators.moved),
}
