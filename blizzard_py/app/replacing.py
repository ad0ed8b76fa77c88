"""``backfill --replace`` and ``dlq replay --replace``, wired."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_py.app.operations import chosen_letters, draining, live_parts, never
from blizzard_py.app.wiring import NoEngine
from blizzard_py.replay import Replacement, Replacing, file_parts
from blizzard_py.replay.choosing import Letters
from blizzard_py.replay.replacing import files_in, files_of_letters
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import Range, RangeRefused

_RANGES = "choose partitions or files with --from and --to"

Wanted = tuple[Mapping[str, Entry], Letters]


def replace_range(
    config: Config, where: tuple[str, str], chosen: Range, *, insist: bool, dry_run: bool
) -> Replacement:
    """Ingest the files of a range again in the place of what they were ingested as before.

    Raises `RangeRefused`, `ReplaceRefused`, `ConfigError`.
    """
    if order_key(chosen.first) > order_key(chosen.last):
        raise RangeRefused(f"--from {chosen.first!r} sorts above --to {chosen.last!r}")

    def wanted(live: Parts) -> Wanted:
        return files_in(live, chosen), Letters()

    return _replace(config, where, wanted, _RANGES, insist=insist, dry_run=dry_run)


def replace_letters(
    config: Config, where: tuple[str, str], letter_id: str | None, *, insist: bool, dry_run: bool
) -> Replacement:
    """The same for the files that dead letters tell of: of one object, or of all.

    Raises `ReplaceRefused`, `ConfigError`.
    """

    def wanted(live: Parts) -> Wanted:
        return files_of_letters(live, chosen_letters(live, letter_id))

    remedy = f"use `blizzard backfill --replace`, and {_RANGES}"
    return _replace(config, where, wanted, remedy, insist=insist, dry_run=dry_run)


def _replace(
    config: Config,
    where: tuple[str, str],
    wanted: Callable[[Parts], Wanted],
    remedy: str,
    *,
    insist: bool,
    dry_run: bool,
) -> Replacement:
    live = live_parts(config, where)
    entries, letters = wanted(live)
    if dry_run:
        files = file_parts(live, NoEngine())
        return Replacing(live, files, never, remedy, insist).preview(entries, letters)
    with draining(config, "blizzard-replace") as (engine, drain, _stop):
        files = file_parts(live, engine)
        return Replacing(live, files, drain, remedy, insist).run(entries, letters)
