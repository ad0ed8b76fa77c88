"""A check that what is renamed is the newest: under another name nobody could tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from blizzard_core.errors import BlizzardError, ColdStartRefused, StateError
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.stale import current_state


class RenameRefused(BlizzardError):
    """Nothing was changed; the message says why and what to do."""


def check_current(parts: Parts, old_id: str, ids: Iterable[str]) -> None:
    """Raise `RenameRefused` for a checkpoint that its daemon would refuse.

    ``parts`` are of the new name, ``ids`` those of the source and its runs under the old one. What
    was committed since stands in the log and in the fence record as the old name's.
    """
    source = parts.source.model_copy(update={"id": old_id})
    for state_id in ids:
        suffix = state_id[len(old_id) :]
        run = replace(parts, source=source, suffix=suffix)
        try:
            check_cold_start(run)
            current_state(run, f"{parts.id}{suffix}")
        except (ColdStartRefused, StateError) as error:
            raise RenameRefused(
                f"{error}. Until then give the source `id: {old_id}`; rename it afterwards"
            ) from error
