"""Choice of what becomes of each candidate, by the mode of its request. Pure but for lookups.

=============================  ==================  ==========================  =========
fact                           ``add``             ``replace``                 ``again``
=============================  ==================  ==========================  =========
the source has still to do it  left                left                        left
it is gone                     missing             missing                     missing
its rows are in                present             taken, with its batches     taken
settled without a row          taken               taken                       taken
its batch was lost             refused (insist)    refused (insist)            taken
passed before the ledger       refused, unless     refused, unless rows name   taken
                               insisted on         their file (insist)
never settled                  taken               left                        taken
=============================  ==================  ==========================  =========

A file of single records is taken unless it is in, or its whole file was replaced since. What the
source cannot open as a file is refused: nothing would ever bring it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from blizzard_core.storage.protocol import Entry
from blizzard_py.requests.document import Mode
from blizzard_py.requests.report import ReportLine
from blizzard_py.selection.claims import Claim, Claims
from blizzard_py.selection.letters import Candidate
from blizzard_py.sources.files.advance import last_of_partitions

_KEPT = (
    "it was to replace rows that are still in the table, at unknown places;"
    " `blizzard backfill --replace --assume-named` takes it, if each row names its file"
)
_NEVER = "it was never ingested; `blizzard ingest` or `backfill` takes it"
_GONE = "there is no such file"
_NO_FILE = (
    "it is no file but a part of a table or an API, of which only letters of single rows can be"
    " replayed; `blizzard backfill` reads such a part again"
)
_BROUGHT = "its rows came after the request was made"


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a page: a line for each candidate, and the files to take.

    ``ahead`` are those taken by now before scans reach them, the last of each partition;
    ``open_letters`` those with files that polls have still to do, that are refused, or gone.
    """

    lines: tuple[ReportLine, ...]
    entries: tuple[Entry, ...] = ()
    ahead: tuple[str, ...] = ()
    open_letters: frozenset[str] = field(default=frozenset())


def choose(
    candidates: Iterable[Candidate],
    claims: Claims,
    mode: Mode,
    since: Container[str] = (),
    *,
    insist: bool,
) -> Choice:
    """Return the outcome of each candidate; a repeated name counts once.

    A file with rows ``since`` the request was made does not come ``again``.
    """
    lines: dict[str, ReportLine] = {}
    entries: dict[str, Entry] = {}
    ahead: list[str] = []
    left: set[str] = set()
    for candidate in candidates:
        path = candidate.path
        line = lines.get(path)
        if line is None:
            line = _line(candidate, claims, mode, insist=insist)
            if mode == "again" and line.state == "taken" and path in since:
                claim = claims.claim_on(path)
                line = ReportLine(path, "present", _BROUGHT)
                if claim.standing == "doubtful":
                    line = ReportLine(path, "refused", claim.reason)
            lines[path] = line
        if line.state in {"left", "refused", "missing"}:
            left.add(candidate.letter)
        if line.state != "taken" or candidate.entry is None or path in entries:
            continue
        entries[path] = candidate.entry
        if claims.is_ahead(path):
            ahead.append(path)
    return Choice(
        tuple(lines.values()),
        tuple(entries.values()),
        last_of_partitions([*claims.ahead, *ahead], claims.depth),
        frozenset(left - {""}),
    )


def _line(candidate: Candidate, claims: Claims, mode: Mode, *, insist: bool) -> ReportLine:
    path = candidate.path
    if candidate.problem:
        return ReportLine(path, "refused", candidate.problem)
    if not claims.opens(path):
        return ReportLine(path, "refused", _NO_FILE)
    if candidate.entry is None and not candidate.letter:
        return ReportLine(path, "missing", _GONE)
    claim = claims.claim_on(path, candidate.entry)
    if claim.standing == "waits":
        return ReportLine(path, "left", claim.reason)
    state, reason = _DECIDE[mode](candidate, claim, insist)
    if state == "taken" and candidate.entry is None:
        return ReportLine(path, "missing", _GONE)
    return ReportLine(path, state, reason)


def _added(candidate: Candidate, claim: Claim, insist: bool) -> tuple[str, str]:
    if claim.standing == "rows":
        return "present", claim.reason
    if insist or claim.standing not in {"unknown", "doubtful"}:
        return "taken", ""
    if candidate.has_earlier_rows:
        return "refused", _KEPT
    # The letter of a whole file says itself that no rows came of it, unless a batch came later.
    if candidate.failed and claim.standing == "unknown":
        return "taken", ""
    return "refused", claim.reason


def _replaced(candidate: Candidate, claim: Claim, insist: bool) -> tuple[str, str]:
    if claim.standing == "free" and not candidate.failed:
        return "left", _NEVER
    if claim.standing == "doubtful" and not insist:
        return "refused", claim.reason
    if claim.standing == "unknown" and not (candidate.failed or insist):
        return "refused", claim.reason
    return "taken", ""


def _again(_candidate: Candidate, _claim: Claim, _insist: bool) -> tuple[str, str]:
    return "taken", ""


_DECIDE = {"add": _added, "replace": _replaced, "again": _again}
