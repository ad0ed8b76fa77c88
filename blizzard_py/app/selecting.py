"""Selection of the files that a request brings: what becomes of each, and why. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.watermark.paths import split
from blizzard_py.ingest.request_runner import Selected
from blizzard_py.replay.ownership import Claims
from blizzard_py.requests.document import Request
from blizzard_py.requests.report import ReportLine
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Ingested
from blizzard_py.state.siblings import replays_of
from blizzard_py.state.source_state import SourceState

# Files of a page: the checkpoint lists them until they are done.
_PAGE_FILES = 500


def select(parts: Parts, state: SourceState, request: Request, cursor: str, now: float) -> Selected:
    """Return the page of a request's files that begins at ``cursor``, the number of those before.

    ``state`` is saved, ``now`` is the store's time. Raises `StateError`, `StorageError`.
    """
    first = int(cursor or 0)
    paths = request.select["files"][first : first + _PAGE_FILES]
    insist = bool(request.options.get("insist"))
    lines, entries, ahead = _judged(parts, paths, now, insist=insist)
    end = first + len(paths)
    highest = _highest([*state.ahead, *ahead], state.progress.depth)
    is_last = end >= len(request.select["files"])
    return Selected(tuple(entries), tuple(lines), str(end), is_last, highest)


def preview(parts: Parts, paths: Sequence[str], *, insist: bool) -> list[ReportLine]:
    """Return what a request for these files would do with each, as things are.

    Raises `StateError`, `StorageError`.
    """
    return _judged(parts, paths, None, insist=insist)[0]


def _judged(
    parts: Parts, paths: Sequence[str], now: float | None, *, insist: bool
) -> tuple[list[ReportLine], list[Entry], list[str]]:
    """What becomes of each file, those to bring, and of these those that scans reach later."""
    sink = parts.stores.sink
    replays = Ingested(sink, replays_of(parts.letters_id)[0], parts.concurrency)
    claims = Claims(parts, [replays], now)
    lines: list[ReportLine] = []
    entries: list[Entry] = []
    ahead: list[str] = []
    for path in paths:
        entry = parts.stores.source.stat(path)
        claim = claims.claim(path)
        if entry is None:
            lines.append(ReportLine(path, "missing", "there is no such file"))
        elif claim.standing == "waits":
            lines.append(ReportLine(path, "left", claim.reason))
        elif claim.standing == "rows":
            lines.append(ReportLine(path, "present", claim.reason))
        elif claim.standing == "unknown" and not insist:
            lines.append(ReportLine(path, "refused", claim.reason))
        else:
            lines.append(ReportLine(path, "taken"))
            entries.append(entry)
            if claims.is_ahead(path):
                ahead.append(path)
    return lines, entries, ahead


def _highest(paths: Sequence[str], depth: int | None) -> tuple[str, ...]:
    """Return of each partition the path that scans reach last; all while the depth is unknown."""
    if depth is None:
        return tuple(dict.fromkeys(paths))
    found: dict[str, str] = {}
    for path in sorted(paths, key=order_key):
        found[split(path, depth)[0]] = path
    return tuple(found.values())
