"""Report of a request: what became of each file, one JSON object per line. Pure.

``_blizzard/requests/{source id}/7f3a9c2e.1/``::

    000003-00000007.ndjson    page 3 of what was selected, as written in epoch 7
    0192….ndjson              outcomes of a batch that was committed for the request

Pages are written before the save that queues their files, so an owner that was replaced may leave
one behind. That of the highest epoch counts: it is of the owner whose save counted. Outcomes
follow from the committed batch, so whoever writes them writes the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import StateError
from blizzard_py.requests.codec import RequestInvalid, canonical, decode

_PAGE = re.compile(r"(?P<page>[0-9]{6})-(?P<epoch>[0-9]{8})\.ndjson")
_OUTCOMES = re.compile(r"(?P<batch>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.ndjson")
_REMEDY = "restore it as it was written"


@dataclass(frozen=True, slots=True)
class ReportLine:
    """A file of a request. ``state`` is what was decided, or the outcome of its batch.

    Of one that replaces rows, ``before`` is how many there were, and ``found_by`` how they are
    found: by ``_source_file``, or by whole ``outputs``. ``bad`` are records that have new letters.
    """

    path: str
    state: str
    reason: str = ""
    rows: int = 0
    before: int = 0
    found_by: str = ""
    bad: int = 0


def page_name(page: int, epoch: int) -> str:
    """Return the name of a page of a report, as written in an epoch of the checkpoint."""
    return f"{page:06}-{epoch:08}.ndjson"


def outcomes_name(batch: str) -> str:
    """Return the name of the outcomes of a batch."""
    return f"{batch}.ndjson"


def batch_of(name: str) -> str | None:
    """Return the batch of an outcomes object, None for a page or a foreign object."""
    match = _OUTCOMES.fullmatch(name)
    return None if match is None else match["batch"]


def current_names(names: Iterable[str]) -> list[str]:
    """Return the names that count: of each page the newest, in their order, then the outcomes."""
    pages: dict[str, str] = {}
    outcomes = []
    for name in sorted(names):
        match = _PAGE.fullmatch(name)
        if match is not None:
            pages[match["page"]] = name
        elif name.endswith(".ndjson"):
            outcomes.append(name)
    return [*pages.values(), *outcomes]


def lines_to_bytes(lines: Iterable[ReportLine]) -> bytes:
    """Return the stored form of lines."""
    return b"".join(canonical(_document(line)) + b"\n" for line in lines)


def _document(line: ReportLine) -> dict[str, object]:
    found = asdict(line)
    return {key: value for key, value in found.items() if value or key in {"path", "state"}}


def lines_of(raw: bytes, where: str) -> Iterator[ReportLine]:
    """Yield the lines that stored bytes hold. Raises `RequestInvalid`."""
    for line in raw.splitlines():
        try:
            document = parsed(line, where)
        except StateError as error:
            raise RequestInvalid(str(error)) from error
        yield decode(ReportLine, document, where, _REMEDY)


def latest_lines(lines: Iterable[ReportLine]) -> list[ReportLine]:
    """Return of each file what was said of it last."""
    last: dict[str, ReportLine] = {}
    for line in lines:
        before = last.get(line.path, line)
        last[line.path] = _with_outcome(before, line)
    return list(last.values())


def _with_outcome(before: ReportLine, line: ReportLine) -> ReportLine:
    state = line.state
    if before.found_by and state == "ingested":
        state = "replaced"
    elif before.found_by and state in {"quarantined", "reported"}:
        state = "kept"
    elif state == "reported":
        state = "left"
    reason = line.reason or before.reason
    return replace(line, state=state, reason=reason, before=before.before, found_by=before.found_by)
