"""Construction of the parts that manual commands work on: letters, files, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from blizzard_py.app.configuration import source_of
from blizzard_py.app.event_time import refuse_rows
from blizzard_py.app.wiring import context_of
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter
from blizzard_py.edits.rename import Rename
from blizzard_py.explain import locate
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts


def sources_of(config: Config, pipeline: str | None, source: str | None) -> list[tuple[str, str]]:
    """Return the sources with these names; None means all. Raises `ConfigError`."""
    found = [
        (name, source_name)
        for name, settings in config.pipelines.items()
        for source_name in settings.sources
        if pipeline in {None, name} and source in {None, source_name}
    ]
    if not found:
        source_of(config, (pipeline or "*", source or "*"))
    return found


def file_sources(
    config: Config,
    pipeline: str | None,
    source: str | None,
    block: Callable[[SourceSettings], object],
    problem: str,
) -> list[SourceContext]:
    """Return the chosen sources of files with this ``block``. Raises `ConfigError` without any."""
    names = sources_of(config, pipeline, source)
    chosen = [
        name
        for name in names
        if (files := source_of(config, name).as_files) is not None and block(files) is not None
    ]
    if not chosen:
        raise ConfigError(f"pipelines.{names[0][0]}.sources", [f"{'/'.join(names[0])} {problem}"])
    return [context_of(config, name) for name in chosen]


def list_dead_letters(
    config: Config, where: list[tuple[str, str]], *, replayed: bool
) -> Iterator[tuple[str, DeadLetterObject, DeadLetter | UnreadableDeadLetter]]:
    """Yield every dead letter with its source's name and object, one at a time.

    Of the source's file, also where a replay has written its record into one of its own.
    """
    # What reads a letter's file; most commands of checkpoints need none of it.
    from blizzard_py.selection.letters import original  # noqa: PLC0415  # see above

    for place in where:
        parts = context_of(config, place)
        for found in letters.objects(parts.stores.dlq, parts.letters_id, replayed=replayed):
            try:
                for letter in letters.read(parts.stores.dlq, found):
                    yield parts.name, found, original(parts, letter)
            except UnreadableDeadLetter as error:
                yield parts.name, found, error


def chosen_letters(
    live: SourceContext, letter_id: str | None, *, replayed: bool = False
) -> list[DeadLetterObject]:
    """Return the present objects; a replay must not replay its own letters.

    With ``replayed`` closed ones count as well.
    """
    found = list(letters.objects(live.stores.dlq, live.letters_id, replayed=replayed))
    if letter_id is None:
        return found
    found = [each for each in found if each.id == letter_id]
    if not found:
        hint = "`blizzard dlq list` shows the ids, with --replayed also of closed letters"
        raise ConfigError("--letter", [f"{live.name} has no open letters of that name; {hint}"])
    return found


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A choice of dead-letter objects; all of them without any field.

    ``id`` is that of one; ``stage`` and ``reason`` are of any letter in it, ``since`` the time from
    which on it was written (epoch seconds).
    """

    id: str | None = None
    stage: str | None = None
    reason: str | None = None
    since: float | None = None

    def fits(self, letter: DeadLetter) -> bool:
        """Return whether a letter has the stage and the reason."""
        return self.stage in {None, letter.stage} and (self.reason or "") in letter.error


def letters_chosen(config: Config, where: tuple[str, str], wanted: LetterFilter) -> list[str]:
    """Return the ids of the open objects that a filter chooses, oldest first.

    Raises `ConfigError` for an unknown source or id, `UnreadableDeadLetter`, `StorageError`.
    """
    live = context_of(config, where)
    found = chosen_letters(live, wanted.id)
    if wanted.since is not None:
        found = [each for each in found if each.modified >= wanted.since]
    if wanted.stage is not None or wanted.reason is not None:
        dlq = live.stores.dlq
        found = [each for each in found if any(map(wanted.fits, letters.read(dlq, each)))]
    return [each.id for each in found]


def rename_of(
    config: Config, where: tuple[str, str], old_id: str | None, moved_from: str | None
) -> Rename:
    """Return what takes a source's state over from an old id or place. Raises `ConfigError`."""
    live = context_of(config, where)
    if old_id in {None, live.id} and moved_from is None:
        raise ConfigError(
            "--from",
            [f"{live.id} is the id that {live.name} has; give the old one, or --moved-from"],
        )
    return Rename(live, live.id if old_id is None else old_id, moved_from)


def watermark_columns(config: Config, where: tuple[str, str]) -> tuple[str, ...]:
    """Return the watermark's columns. Raises `ConfigError` for a source of files."""
    source_of(config, where)
    source = config.pipelines[where[0]].query_sources.get(where[1])
    if source is None:
        raise ConfigError(
            "--column", [f"{'/'.join(where)} reads files; give --partition and --watermark"]
        )
    return tuple(source.marks.columns)


def files_by_source(
    config: Config, uris: Sequence[str], names: tuple[str | None, str | None]
) -> dict[tuple[str, str], list[str]]:
    """Return the paths of the files below their sources, each once; ``names`` narrow these down.

    Raises `ConfigError` for a URI that lies below no source's root, or below several.
    """
    sources = {
        where: source
        for where in sources_of(config, *names)
        if (source := source_of(config, where).as_files) is not None
    }
    roots = {where: source.uri for where, source in sources.items()}
    if not roots:
        raise ConfigError(
            "--pipeline, --source",
            ["has no files to ingest; `blizzard backfill` reads what a table or an API has again"],
        )
    chosen: dict[tuple[str, str], dict[str, None]] = {}
    problems: list[str] = []
    every = {"/".join(where): root for where, root in roots.items()}
    for uri in uris:
        # Among all of them, since a relative path could lie below any single one.
        found = locate(uri, every)
        homes = {
            where: place.path
            for where, root in roots.items()
            if found.path and (place := locate(found.uri, {"/".join(where): root})).path
        }
        takers = {where: path for where, path in homes.items() if accepts(sources[where])(path)}
        match list((takers if len(takers) == 1 else homes).items()):
            case [(where, path)]:
                chosen.setdefault(where, {})[path] = None
            case []:
                known = ", ".join(sorted(set(roots.values())))
                why = f"; it {found.reason}" if found.source is None else ""
                problems.append(f"{uri}: names no file below {known}{why}")
            case several:
                listed_names = ", ".join("/".join(where) for where, _ in several)
                problems.append(
                    f"{uri}: lies below the roots of {listed_names}; say which with --pipeline and"
                    " --source"
                )
    if problems:
        raise ConfigError("URI", problems)
    for where in chosen:
        refuse_rows(config, where, "`blizzard ingest`")
    return {where: list(paths) for where, paths in chosen.items()}
