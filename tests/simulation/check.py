"""Checks after a run: no row twice, no row lost, no work stuck, no limit exceeded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.protocol import is_hidden
from tests.simulation import adaptor, bounds, requests
from tests.simulation.cover import Cover, Covers
from tests.simulation.engine import ROWS, rows_of
from tests.simulation.other_writers import is_theirs
from tests.simulation.plan import DAY, source_uri
from tests.simulation.store import Bucket
from tests.simulation.world import DLQ, SINK, SimulatedWorld, SourceFile, Version

if TYPE_CHECKING:
    from tests.simulation.director import Director


@dataclass
class Found:
    """Final state of a run, as an outsider sees it."""

    # Rows of the table by the Delta log, and where more than one file holds them.
    rows: Counter[str] = field(default_factory=Counter)
    # Open letters for whole files by URI, those that a replay has put away, bad records.
    letters: Counter[str] = field(default_factory=Counter)
    # Those of them that say that the file came later than the grace period.
    late: Counter[str] = field(default_factory=Counter)
    # And those of a reading that was to replace rows: these are still there, and right.
    kept: Counter[str] = field(default_factory=Counter)
    put_away: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    # Those in letters that came back after they had been put away; the next replay puts them
    # away again and takes nothing.
    back: Counter[str] = field(default_factory=Counter)
    # Whether a replay of bad records has work left, which its next run does.
    replaying: bool = False
    # Whether a replay of bad records has letters that its next run puts away.
    taken: bool = False
    # Whether a replay has lost what it had staged.
    stands: bool = False
    # Rows of files that Penguin has on record as too old to be told from removed ones.
    too_old: set[str] = field(default_factory=set)
    # Rows of ours in files that Penguin refused, which `status` and `explain` tell of.
    refused: set[str] = field(default_factory=set)
    # What the journals say of files: outcomes by source and path.
    journal: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    # And which files were read again to replace what they had.
    again: set[tuple[str, str]] = field(default_factory=set)
    # Those that a request brought which knows of no letters.
    brought: set[tuple[str, str]] = field(default_factory=set)
    # Whether a group of files is on record as one that the table does not take.
    unfit: bool = False
    # Paths that a checkpoint still has to do, by source.
    pending: set[tuple[str, str]] = field(default_factory=set)


def violations(world: SimulatedWorld, director: Director) -> list[str]:
    """Return all violations, a line each: its kind, a colon, its subject."""
    found = Found()
    wrong = [f"crash: {problem}" for problem in world.problems]
    wrong += _table(world, found)
    _letters(world, found)
    _journals(world, found)
    _states(world, found)
    # Before the files are looked at: it notes what reports call ingested.
    wrong += list(requests.violations(world))
    covers = Covers(world)
    forgot = _forgot(world)
    for file in world.files.values():
        if not world.scans[file.source]:
            continue  # nobody ever looked there
        rows = (row for version in file.versions for row in version.rows)
        if forgot and found.too_old.intersection(rows):
            continue
        wrong += _file(world, file, covers.of(file), found)
    wrong += _stuck(director)
    wrong += bounds.violations(world)
    if world.certificates is not None:
        wrong += [f"marker: {text}" for text in world.certificates.violations]
    wrong += [f"cleaned: {text}" for text in world.wrongly_cleaned]
    if world.refused:
        # It says what is missing and does nothing more, which is right.
        wrong = [text for text in wrong if text.partition(":")[0] not in _STANDING_STILL]
    return wrong


_STANDING_STILL = frozenset(
    {"lost", "silent", "vanished", "stuck", "names", "requests", "record twice", "request"}
)


# -- what is there ------------------------------------------------------------------------


def _table(world: SimulatedWorld, found: Found) -> list[str]:
    """Read the table by its log: all files of Blizzard are in it or rejected."""
    sink = world.bucket(SINK)
    wrong = []
    adds: Counter[str] = Counter()
    live: set[str] = set()
    for text in world.log_entries().values():
        for line in text.splitlines():
            action = json.loads(line)
            if "add" in action:
                # What a RESTORE adds again was there before.
                adds[action["add"]["path"]] += '"RESTORE"' not in text
                live.add(action["add"]["path"])
            if "remove" in action:
                live.discard(action["remove"]["path"])
    wrong += [f"added twice: {path}" for path, count in adds.items() if count > 1]
    for path in sorted(live):
        held = sink.objects.get(path)
        if held is None:
            wrong.append(f"broken table: {path} is in the log and not in the store")
            continue
        found.rows.update(rows_of(held.data))
    for rows in world.withdrawn.values():
        found.rows.update(rows)
    refused = _on_record(sink, found)
    wrong += [f"on record: {path}, which is committed" for path in sorted(refused & live)]
    found.unfit = _is_unfit(sink)
    return wrong + _uncommitted(world, found, adds.keys() | refused)


def _uncommitted(world: SimulatedWorld, found: Found, known: set[str]) -> list[str]:
    """Return our files in the table's folder that are neither committed nor reported."""
    sink = world.bucket(SINK)
    wrong = []
    for path in sorted(sink.objects.keys() - known):
        if not path.endswith(".parquet") or is_hidden(path) or is_theirs(path):
            continue
        grouped = path.rpartition("/")[2].startswith("unit-")
        held = sink.objects[path]
        if _forgot(world) and held.modified < world.now - 2 * DAY:
            # Each sweep warns of it, and says what to do.
            found.too_old.update(row for row in ROWS.get(held.data, ()) if isinstance(row, str))
        elif not (grouped and (found.unfit or _is_in(world, held.data))):
            wrong.append(f"uncommitted: {path} is in the directory, not in the log or on record")
    return wrong


def _forgot(world: SimulatedWorld) -> bool:
    """Return whether Penguin lost its state since its last sweep, so that old files wait.

    With a clock that is put back, or without its mirror.
    """
    return world.settings.store_skew > DAY or bool(world.counts["mirrors lost"])


def _is_in(world: SimulatedWorld, data: bytes) -> bool:
    """Return whether the file's output is committed.

    A daemon that slept during a take-over leaves its output a second time.

    No listing looks for files of groups, so this one stays.
    """
    metadata = pq.read_schema(pa.BufferReader(data)).metadata or {}
    output_id = metadata.get(b"blizzard.output_id", b"").decode()
    return bool(output_id) and any(
        f'"{output_id}"' in text for text in world.log_entries().values()
    )


def _is_unfit(sink: Bucket) -> bool:
    """Return whether a group cannot be applied: the schema changed, or its files were compacted.

    Penguin says so, and what to do.
    """
    held = sink.objects.get(adaptor.MIRROR)
    blocked = {} if held is None else json.loads(held.data).get("blocked", {})
    told = ("does not fit", "are in no file of its own")
    return any(why in text for text in blocked.values() for why in told)


def open_letters(world: SimulatedWorld) -> Counter[str]:
    """Return the number of open letters of whole files, by the file's URI."""
    found = Found()
    _letters(world, found)
    return found.letters


def _on_record(sink: Bucket, found: Found) -> set[str]:
    """Return the files that Penguin has rejected."""
    record = sink.objects.get("_penguin/events_quarantine.ndjson")
    refused = set()
    for line in [] if record is None else record.data.splitlines():
        about = json.loads(line)
        refused.add(about["path"])
        held = sink.objects.get(about["path"])
        found.refused.update(() if held is None else ROWS.get(held.data, ()))
        if about.get("stage") == "horizon" and about["path"] in sink.objects:
            rows = ROWS.get(sink.objects[about["path"]].data, ())
            found.too_old.update(row for row in rows if isinstance(row, str))
    return refused


def _letters(world: SimulatedWorld, found: Found) -> None:
    # What a rename has copied stays where it was, and counts for nothing there.
    left = tuple(f"{adaptor.PIPELINE}_s{number}/" for number in world.settings.carried)
    letters = world.bucket(DLQ).objects
    for path, held in letters.items():
        folder, _, name = path.rpartition("/")
        is_back = f"{folder}/replayed/{name}" in letters
        reasons = "/discarded/" in path
        if reasons or not path.endswith(".ndjson") or "~records/" in path or path.startswith(left):
            continue
        for line in held.data.decode().splitlines():
            letter = json.loads(line)
            if "/replayed/" in path:
                found.put_away[letter["path"]] += 1
            elif path.endswith(".records.ndjson"):
                found.records[letter["raw"]] += 1
                found.back[letter["raw"]] += is_back
            else:
                found.letters[letter["path"]] += 1
                found.late[letter["path"]] += letter["stage"] == "late"
                found.kept[letter["path"]] += bool(letter.get("kept"))


def _journals(world: SimulatedWorld, found: Found) -> None:
    for number in range(world.settings.sources):
        stem = f"_blizzard/journal/{adaptor.source_id(world.settings, number)}"
        for path, held in world.bucket(SINK).objects.items():
            if path.startswith(f"{stem}/"):
                document = json.loads(held.data)
                for file in document["files"]:
                    key = (source_uri(number), file["path"])
                    found.journal.setdefault(key, []).append(file["outcome"])
                    if file["outcome"] == "ingested" and _is_by_name(world, number, document):
                        found.brought.add(key)
                    if document.get("group"):
                        found.again.add(key)


def _is_by_name(world: SimulatedWorld, number: int, batch: Mapping[str, Any]) -> bool:
    """Return whether a batch is of a request for files or a range: of letters it does not know."""
    request = batch.get("request")
    source_id = adaptor.source_id(world.settings, number)
    held = world.bucket(SINK).objects.get(f"_blizzard/requests/{source_id}/{request}.json")
    return held is not None and not json.loads(held.data)["select"].get("letters")


def _states(world: SimulatedWorld, found: Found) -> None:
    """Check the checkpoints for unfinished work."""
    for number in range(world.settings.sources):
        uri = source_uri(number)
        held = world.bucket(SINK).objects.get(adaptor.checkpoint_path(world.settings, number))
        document: dict[str, Any] = {} if held is None else json.loads(held.data)
        paths = [*document.get("retries", {})]
        for batch in document.get("in_flight", []):
            paths += [file["path"] for file in batch["files"]]
        paths += adaptor.queued(document)
        found.pending.update((uri, path) for path in paths)
        asked = [entry for entry in document.get("queue", []) if entry.get("request")]
        flying = [batch for batch in document.get("in_flight", []) if batch.get("request")]
        found.replaying |= bool(asked or flying)
        found.taken |= any(each.get("letters") for each in document.get("requests", {}).values())
        found.stands |= bool(world.counts["staging deleted"] and flying)


# -- one file -----------------------------------------------------------------------------


def _file(world: SimulatedWorld, file: SourceFile, cover: Cover, found: Found) -> list[str]:
    """Compare the outcome of one source file with its promise."""
    name = f"{file.source}/{file.path}"
    came = [v for v in file.versions if any(found.rows[row] for row in v.rows)]
    wrong = _rows(name, file, came, cover, found)
    # Who slept between a commit and its letters writes them again after a replay of them.
    is_left = (file.source, file.path) in world.left
    says_none = found.letters[name] > found.kept[name]
    # Without what it had staged a replay refuses to go on, and its letters stay.
    is_brought = (file.source, file.path) in found.brought
    is_open = says_none and not (found.put_away[name] or is_left or found.stands or is_brought)
    if is_open and came and not cover.may_have_letter:
        wrong.append(f"both: {name} has its rows in the table and a dead letter")
    if cover.excluded:
        return [*wrong, f"excluded: {name} is in the table"] if came else wrong
    if cover.promised and found.late[name] and not came:
        wrong.append(f"not late: {name} was in time and is called late ({cover.why})")
    if came:
        return [*wrong, *_records(world, file, came[0].number, found, cover)]
    return [*wrong, *_without_rows(world, file, cover, found)]


def _without_rows(world: SimulatedWorld, file: SourceFile, cover: Cover, found: Found) -> list[str]:
    """Return the violations of a file without rows in the table."""
    key, name = (file.source, file.path), f"{file.source}/{file.path}"
    wrong = []
    if found.unfit and key in world.redone:
        return wrong
    if key in world.redone and all(version.rows for version in file.versions):
        wrong.append(f"vanished: {name} was redone as it was told, and has no rows")
    if found.refused.intersection(row for version in file.versions for row in version.rows):
        return wrong  # it is on record, and whoever looks is told of `blizzard replay --refused`
    if key in world.told_ingested and file.versions[0].rows:
        wrong.append(f"vanished: {name} was ingested as it was told, and has no rows")
    if "ingested" in found.journal.get(key, []) and file.versions[0].rows:
        wrong.append(f"vanished: {name} was ingested by the journal and has no rows")
    if _is_reported(world, file, cover, found):
        return wrong
    if cover.promised:
        wrong.append(f"lost: {name} ({cover.why})")
    elif cover.must_be_told:
        wrong.append(f"silent: {name} is gone and nobody says so ({cover.why})")
    return wrong


def _rows(
    name: str, file: SourceFile, came: Sequence[Version], cover: Cover, found: Found
) -> list[str]:
    """Check that a file has the rows of one version, each of them once."""
    wrong = []
    most = 1 + cover.again
    for version in came:
        counts = [found.rows[row] for row in version.rows]
        if max(counts) > most and not cover.may_repeat:
            wrong.append(f"twice: {name} version {version.number} has {max(counts)} of each row")
        if min(counts) == 0:
            wrong.append(f"torn: {name} version {version.number} came in part: {counts}")
    times = sum(max(found.rows[row] for row in version.rows) for version in came)
    if len(came) > 1 and times > most and not cover.may_repeat:
        wrong.append(f"twice: {name} came in {len(came)} of {len(file.versions)} versions")
    return wrong


def _is_reported(world: SimulatedWorld, file: SourceFile, cover: Cover, found: Found) -> bool:
    """Return whether an operator can find out the outcome of a file without rows."""
    name = f"{file.source}/{file.path}"
    if (
        name in world.closing
        or found.letters[name]
        or (file.source, file.path) in found.pending
        or file.deleted is not None
    ):
        return True
    if cover.promised:
        return False
    reported = (int(file.source[-1]), file.path) in world.reported
    return bool(found.put_away[name]) or (reported and world.settings.late_files == "report")


def _records(
    world: SimulatedWorld, file: SourceFile, number: int, found: Found, cover: Cover
) -> list[str]:
    """Check that each bad record of an ingested file has a letter."""
    wrong = []
    key = (file.source, file.path)
    again = key in world.redone or key in found.again or bool(cover.again)
    # A letter for the file that a replay made of records stands for them.
    letters = {*found.letters, *world.closing}
    told = found.replaying or any(f"~records/{file.path}." in uri for uri in letters)
    told |= f"{file.source}/{file.path}" in world.closing
    # They were staged with the state when that was lost, or had just been published.
    unpublished = bool(world.deeds["letters unpublished"])
    told |= unpublished
    # Of a batch that brought letters alone nothing in the table tells.
    again |= unpublished or bool(world.counts["put back: state and fence"])
    for i in range(file.versions[number].bad_rows):
        raw = f"?{file.path}@{number}#{i}"
        count = found.records[raw]
        if count == 0 and not told:
            wrong.append(f"record lost: {file.source}/{file.path} line ?{i}")
        elif count - found.back[raw] > 1 and not (again or cover.may_repeat or found.taken):
            wrong.append(f"record twice: {file.source}/{file.path} line ?{i}")
    return wrong


# -- the daemons --------------------------------------------------------------------------


def _stuck(director: Director) -> list[str]:
    """Check that no daemon fails again and again after the faults, and that each one works."""
    wrong = []
    for kind, processes in director.processes.items():
        alive = [p for p in processes if not p.is_over]
        if not alive:
            wrong.append(f"stuck: no {kind} is at work")
        for activity in alive[-1].activities if alive else ():
            if activity.failures > 1:
                wrong.append(f"stuck: {kind} failed {activity.failures} times: {activity.error}")
            elif activity.code is not None:
                wrong.append(f"stuck: a worker of {kind} has ended: {activity.error}")
    return wrong
