"""Work by hand on work units, wired: highs, marks, starts over, letters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from blizzard_core.errors import UnitError
from blizzard_core.settings.document import Config
from blizzard_py.app.operations import chosen_letters
from blizzard_py.app.request_effects import configured, look, units_of
from blizzard_py.app.request_selector import close_letters
from blizzard_py.app.submit import RequestOrder, Waits, submit_and_follow
from blizzard_py.app.wiring import context_of, view_of
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.edits import checkpoint_edit, unit_edits
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.requests.progress import RequestResult
from blizzard_py.slices.instants import resolve
from blizzard_py.slices.units.state import key_parts, unit_key
from blizzard_py.slices.units.values import LONE
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.tables.unit_names import values_of
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState

Edit = Callable[[SourceState], SourceState]


def high_edit(found: SourceView, unit: str, high: str) -> Edit:
    """Return the edit of ``checkpoint set --unit NAME --high T``; ``none`` forgets the unit.

    Raises `EditRefused`, `UnitError`, `Unavailable` where values stand in a table that gives none.
    """
    source = units_of(found.name, found.source)
    zone, now = _zone(source), _now(found)
    key = key_of(unit, now, zone)
    to = None if high.strip().lower() == "none" else resolve(high, now, zone)
    values = values_of(configured(source))
    return lambda state: unit_edits.set_high(state, look(source, state, now), key, to, values)


def key_of(text: str, now: dt.datetime, zone: str) -> str:
    """Return the key of a unit as people write it: partition start, ``/`` and name."""
    begin, slash, name = text.partition("/")
    return unit_key(resolve(begin, now, zone), name if slash else LONE)


def units_between(
    config: Config, where: tuple[str, str], ends: tuple[str, str], only: Sequence[str]
) -> tuple[str, ...]:
    """Return the units that have time from one end to the other. Raises `EditRefused`."""
    found = view_of(context_of(config, where))
    with closing(found):
        source = units_of(found.name, found.source)
        now, zone = _now(found), _zone(source)
        try:
            span = (resolve(ends[0], now, zone), resolve(ends[1], now, zone))
        except UnitError as error:
            raise EditRefused(f"--from, --to: {'; '.join(error.problems)}") from error
        values = values_of(configured(source))
        state = checkpoint_edit.read_checkpoint(found).state
        _, keys = unit_edits.read_again(state, look(source, state, now), span, values, only)
        return keys


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of a replay: the ids of their objects, and their units."""

    letters: tuple[str, ...]
    units: tuple[str, ...]


def letters_of_units(config: Config, where: tuple[str, str], letter_id: str | None) -> Letters:
    """Return the open letters of a source, or the one of that id. Raises `ConfigError`."""
    parts = context_of(config, where)
    chosen = chosen_letters(parts, letter_id)
    keys = tuple(dict.fromkeys(key for each in chosen for key in _keys(parts, each)))
    return Letters(tuple(each.id for each in chosen), keys)


def replay_units(
    config: Config, where: tuple[str, str], found: Letters, why: str, waits: Waits
) -> RequestResult | None:
    """Have the units of letters read again, and put the letters away once that is done.

    Their rows are replaced, so nothing comes twice. The request's end, None where there are no
    letters. Raises as `submit_and_follow` does.
    """
    if not found.units:
        return None
    select = {"units": list(found.units)}
    result = submit_and_follow(
        config, where, RequestOrder("mark_units", select, why=why or "replay of letters"), waits
    )
    if result.state == "done":
        # Whoever dies here has marked them: doing it once more reads them once more.
        close_letters(context_of(config, where), found.letters, None)
    return result


def _keys(parts: SourceContext, found: DeadLetterObject) -> list[str]:
    root = f"{parts.stores.source.uri}/"
    found_keys = []
    for letter in letters.read(parts.stores.dlq, found):
        key = letter.uri.removeprefix(root)
        key_parts(key, letter.uri)
        found_keys.append(key)
    return found_keys


def _zone(source: UnitSource) -> str:
    return configured(source).range.zone


def _now(found: SourceView) -> dt.datetime:
    return dt.datetime.fromtimestamp(found.parts.clock(), dt.UTC)
