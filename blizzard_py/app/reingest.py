"""``blizzard ingest``: files that are named are ingested exactly once, whatever they are called.

The command writes a request, and whoever owns the source brings the files as batches of its own
(`blizzard_py.ingest.request_runner`). Names do not matter: late files, hidden ones, those with
another ending, in partitions that are kept apart or closed, are all taken. A file that polls have
still to do is left to them, one whose rows are in is left out, and one of which nobody knows is
refused unless somebody insists. What cannot be ingested ends as a dead letter, as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.signals import INTERRUPTED
from blizzard_py.app.event_time import refuse_rows
from blizzard_py.app.operations import sources_of
from blizzard_py.app.selecting import preview
from blizzard_py.app.submit import Order, RequestResult, Waits, submit_and_follow
from blizzard_py.app.wiring import NoEngine, parts_of, source_of
from blizzard_py.explain import located
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.report import ReportLine
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Journal

# What people have to look at.
_FAILED = frozenset({"quarantined", "taken", "open", "refused", "missing"})
# So many batches of the journal are read before it is looked whether that is enough.
_BATCHES_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Given:
    """The outcomes of all files of one source, and the end of their request, None of a preview.

    A file is ``ingested``, ``present`` (its rows were in), ``left`` (to polls), ``refused``,
    ``missing``, ``quarantined``, ``taken`` where it is not done yet, or ``open`` where it was not
    requested, since the command was interrupted.
    """

    files: tuple[ReportLine, ...]
    rows: int = 0
    request: RequestResult | None = None

    @property
    def is_unmended(self) -> bool:
        """Return whether there is something that people have to look at."""
        return any(file.state in _FAILED for file in self.files)


def ingest(
    config: Config,
    uris: Sequence[str],
    names: tuple[str | None, str | None],
    waits: Waits | None,
    *,
    insist: bool,
) -> dict[tuple[str, str], Given]:
    """Return what became of the given files, by source. ``names`` narrow the sources down.

    Without ``waits`` nothing is written: what would be done. Raises `ConfigError` for a URI that
    lies below no source's root, or below several, and what `submit_and_follow` raises.
    """
    chosen = _by_source(config, uris, names)
    for where in chosen:
        refuse_rows(config, where, "`blizzard ingest`")
    found: dict[tuple[str, str], Given] = {}
    is_interrupted = False
    for where, paths in chosen.items():
        if waits is None:
            found[where] = _previewed(config, where, paths, insist=insist)
        elif is_interrupted:
            why = "interrupted before it was requested; give the command again"
            found[where] = Given(tuple(ReportLine(path, "open", why) for path in paths))
        else:
            given = _requested(config, where, paths, waits, insist=insist)
            is_interrupted = given.request is not None and given.request.exit_code == INTERRUPTED
            found[where] = given
    return found


def _previewed(
    config: Config, where: tuple[str, str], paths: Sequence[str], *, insist: bool
) -> Given:
    parts = parts_of(config, where, NoEngine())
    lines = _compared(parts, preview(parts, paths, insist=insist))
    return Given(
        tuple(replace(one, state="would ingest") if one.state == "taken" else one for one in lines)
    )


def _requested(
    config: Config, where: tuple[str, str], paths: Sequence[str], waits: Waits, *, insist: bool
) -> Given:
    parts = parts_of(config, where, NoEngine())
    result = submit_and_follow(
        config, where, Order("reingest", {"files": list(paths)}, {"insist": insist}), waits
    )
    lines = _reported(Mailbox(parts.stores.sink, parts.id).report(result.id), result.state)
    told = {line.path: line for line in lines}
    known = [told.get(path, ReportLine(path, "taken", "not looked at yet")) for path in paths]
    return Given(tuple(_compared(parts, known)), result.counts.get("rows", 0), result)


def _reported(lines: Iterable[ReportLine], state: str) -> list[ReportLine]:
    """Return of each file the last that was said, once its request is in a state."""
    last = {line.path: line for line in lines}
    if state == "done":
        # It came to where polls look before its turn.
        gone = {p: replace(one, state="left") for p, one in last.items() if one.state == "taken"}
        last |= gone
    return list(last.values())


def _compared(parts: Parts, lines: Sequence[ReportLine]) -> list[ReportLine]:
    """The lines, with those files refused whose rows are in and that are other files by now."""
    present = [line.path for line in lines if line.state == "present"]
    known = _stamps(Journal(parts.stores.sink, parts.id, parts.concurrency), present)
    changed = set()
    for path in present:
        entry = parts.stores.source.stat(path)
        if entry is None or known.get(path) != (entry.size, entry.modified):
            changed.add(path)
    return [_changed(line) if line.path in changed else line for line in lines]


def _changed(line: ReportLine) -> ReportLine:
    return replace(
        line,
        state="refused",
        reason=f"{line.reason}, and it is not known to be the same file still; `blizzard backfill"
        " --replace` with --from and --to of this path reads it in the place of its rows",
    )


def _stamps(journal: Journal, paths: Sequence[str]) -> Mapping[str, tuple[int, float]]:
    """Return size and time of files when they were ingested last, as far as the journal tells."""
    left, found = set(paths), {}
    batches = sorted(journal.batches(), reverse=True) if left else []
    while batches and left:
        some, batches = batches[:_BATCHES_AT_ONCE], batches[_BATCHES_AT_ONCE:]
        for record in journal.read(some):
            for path in left.intersection(record.listed):
                if record.outcomes[path] == "ingested" and path not in found:
                    found[path] = record.listed[path]
        left.difference_update(found)
    return found


def _by_source(
    config: Config, uris: Sequence[str], names: tuple[str | None, str | None]
) -> dict[tuple[str, str], list[str]]:
    """The paths of the files below their sources, each once."""
    roots = {
        where: source.source_uri
        for where in sources_of(config, *names)
        if isinstance(source := source_of(config, where), SourceSettings)
    }
    if not roots:
        raise ConfigError(
            "--pipeline, --source",
            ["has no files to ingest; `blizzard backfill` reads what a table or an API has again"],
        )
    chosen: dict[tuple[str, str], dict[str, None]] = {}
    problems: list[str] = []
    for uri in uris:
        homes = {
            where: place.path
            for where, root in roots.items()
            if (place := located(uri, {"/".join(where): root})).path
        }
        match list(homes.items()):
            case [(where, path)]:
                chosen.setdefault(where, {})[path] = None
            case []:
                known = ", ".join(sorted(set(roots.values())))
                problems.append(f"{uri}: names no file below {known}")
            case several:
                listed_names = ", ".join("/".join(where) for where, _ in several)
                problems.append(
                    f"{uri}: lies below the roots of {listed_names}; say which with --pipeline and"
                    " --source"
                )
    if problems:
        raise ConfigError("URI", problems)
    return {where: list(paths) for where, paths in chosen.items()}
