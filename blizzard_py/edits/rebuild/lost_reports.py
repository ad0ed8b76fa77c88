"""Reports of requests whose batches the journal has lost.

A report is written before its batch is published, so it proves no rows: its files may be in the
table or not. A file that was given up is reported as quarantined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from blizzard_py.edits.rebuild.decide import Doubt
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.state.journal import moment_of


@dataclass(frozen=True, slots=True)
class LostReports:
    """Batches that only a report tells of, their files, and a doubt for each damaged report."""

    batches: frozenset[str]
    paths: frozenset[str]
    damaged: tuple[Doubt, ...] = ()


def read_lost(mailbox: Mailbox, reports: Mapping[str, Entry]) -> LostReports:
    """Read ``reports`` by batch. Raises `StorageError`."""
    paths: set[str] = set()
    damaged: list[Doubt] = []
    for batch, entry in reports.items():
        try:
            lines = list(mailbox.lines(entry))
        except RequestInvalid as error:
            damaged.append(Doubt(str(error), moment_of(batch)))
        else:
            paths.update(line.path for line in lines if line.state in {"ingested", "quarantined"})
    return LostReports(frozenset(reports), frozenset(paths), tuple(damaged))
