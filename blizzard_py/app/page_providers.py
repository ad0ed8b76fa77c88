"""Providers of Blizzard's status page (`blizzard_core.observability.status`).

Through stores of its own, so no answer to it counts as a sign of life of a loop.

The commands that the page offers to copy are whole, without secrets and safe to paste.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache, partial
from typing import Any, TypeAlias

from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.heartbeat import read_life, table_heartbeat
from blizzard_core.observability.metered_storage import metered
from blizzard_core.observability.notices import Notice
from blizzard_core.observability.peer_state import StateFiles
from blizzard_core.observability.status import Command, PageProviders
from blizzard_core.observability.stopped import BEHIND_SECS, committer_notices
from blizzard_core.observability.token_bucket import TokenBucket
from blizzard_core.redact import clean_text, redacted_word
from blizzard_core.storage.clock import elapsed
from blizzard_core.storage.opening import open_private, open_source, open_storage
from blizzard_core.text import iso
from blizzard_py.app.explaining import explain_located
from blizzard_py.app.page_history import SourceHistory
from blizzard_py.explain import Explanation, explain_unmatched, locate
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.context import SourceContext, Stores
from blizzard_py.sources.files.file_names import accepts
from blizzard_py.state.committers import committer_of, committer_states

# Kinds of errors after which the checkpoint is what to look at.
_STATE = frozenset({"StateError", "ColdStartRefused", "WatermarkError"})
_CONFIGURATION = frozenset({"ConfigError", "SchemaConflict", "SchemaUnknown", "UnitError"})


def source_commands(config: str, target: Mapping[str, Any]) -> Iterator[Command]:
    """Yield commands that help with a source's problem, then general ones.

    ``config`` is the path of the configuration, ``target`` the source's status document.
    """
    here, config = _place(config, str(target["name"])), redacted_word(config)
    kind = target["pulse"]["kind"]
    if kind in _CONFIGURATION:
        yield Command("Check the configuration and the table", f"blizzard validate {config}")
    if kind == "FencedError":
        yield Command("Show the writer of its checkpoint", f"blizzard status {config}")
    if kind in _STATE:
        why = "What the journal and the log would make of its state"
        yield Command(why, f"blizzard checkpoint rebuild {here} --dry-run")
    if target["refused"]["outputs"]:
        yield Command(
            "What ingesting the refused rows again would do",
            f"blizzard replay {here} --refused --dry-run",
        )
    if target["letters"]:
        yield Command("List dead letters and their reasons", f"blizzard dlq list {here}")
        yield Command("What a replay would take", f"blizzard replay {here} --all --dry-run")
    for request in target["requests"]:
        which = f"{config} {redacted_word(request['id'])}"
        yield Command("Show a request and its outcome", f"blizzard requests show {which} --files")
        yield Command("Cancel it: what has come stays", f"blizzard requests cancel {which}")
    yield Command("Where every source is", f"blizzard status {config}")
    yield Command("What the next poll would do", f"blizzard plan {config}")
    yield Command("Its saved state", f"blizzard checkpoint show {here}")
    yield Command("Who changed it by hand, when and why", f"blizzard checkpoint log {here}")


def letter_commands(config: str, name: str, group: Mapping[str, Any]) -> list[Command]:
    """Return what shows and replays the dead letters of one reason of the source ``name``."""
    here = _place(config, name)
    which = f"--letter {redacted_word(str(group['letter']))}"
    found = [Command("The newest of them", f"blizzard dlq show {here} {which}")]
    if group["stage"]:
        which = f"--stage {redacted_word(str(group['stage']))}"
        if group["reason"]:
            which += f" --reason {redacted_word(str(group['reason']))}"
    why = "After a fix: show what a replay would ingest; without --dry-run it does"
    return [*found, Command(why, f"blizzard replay {here} {which} --dry-run")]


def story_commands(config: str, uri: str, story: Mapping[str, Any]) -> Iterator[Command]:
    """Yield what helps a file, by what `blizzard explain` says of it."""
    here = _place(config, str(story["source"] or ""))
    config, uri = redacted_word(config), redacted_word(uri)
    verdict = story["verdict"]
    if verdict == "quarantined":
        batch = (story.get("batch") or {}).get("batch")
        which = f"--letter {redacted_word(batch)}" if batch else "--all"
        if batch:
            yield Command(
                "The letter, and the line that is bad", f"blizzard dlq show {here} {which}"
            )
        yield Command(
            "After a fix: show what a replay would ingest",
            f"blizzard replay {here} {which} --dry-run",
        )
    if verdict == "refused":
        yield Command(
            "What ingesting its rows again would do", f"blizzard replay {here} --refused --dry-run"
        )
    is_skipped = (story.get("pending") or {}).get("behind") == "apart"
    if is_skipped or verdict in {"late", "closed", "ignored"}:
        yield Command(
            "What taking it after all would do", f"blizzard ingest {config} {uri} --dry-run"
        )
    yield Command("The same on a terminal", f"blizzard explain {config} {uri}")


def _place(config: str, name: str) -> str:
    """Return what commands about the source ``name`` begin with."""
    pipeline, _, source = map(redacted_word, name.partition("/"))
    return f"{redacted_word(config)} --pipeline {pipeline} --source {source}"


# Histories of which the batches and commits are kept that were read.
PASTS_KEPT = 8
# A batch may have thousands of outputs.
OUTPUTS_TOLD = 20
# And a file as many fields as whoever wrote it liked.
FIELDS_TOLD = 50
# Who asks at the same time for what became of a file waits, but for so many.
_STORIES_WAITING = 2


# Adds to an explanation what is known of the file's fields.
Fields: TypeAlias = Callable[[SourceContext, Explanation], Explanation]


def page_providers(
    workers: Sequence[SourcePipeline],
    config: str,
    fields: Fields | None = None,
    *,
    samples: bool = False,
) -> PageProviders:
    """Return the providers of a daemon; ``config`` is the path of its configuration.

    ``fields`` adds the fields without a column to the explanation of a file. ``samples`` shows the
    beginning of bad records, to everyone who reaches the page.
    """
    parts = {each.name: each for worker in workers for each in worker.each}
    many = len(parts) + 1
    stories = _Stories(workers, config, fields)
    return PageProviders(
        peer=BackgroundCache("beside", _CommitterStates(parts), time.time, elapsed, many),
        history=BackgroundCache(
            "past", _Histories(parts, config, samples=samples), time.time, elapsed, many
        ),
        story=BackgroundCache("story", stories, time.time, elapsed, _STORIES_WAITING),
        notices=commit_lag_notices,
        commands=partial(source_commands, config),
    )


class _CommitterStates:
    """The saved states of the committers of a source's table."""

    def __init__(self, parts: Mapping[str, SourceContext]) -> None:
        self._parts = parts
        self._files = cache(self._opened)

    def __call__(self, name: str) -> list[dict[str, Any]]:
        files = self._files(name)
        sink = files.storage
        states = files.look(committer_states(sink)).items()
        return [
            {
                "name": committer_of(entry),
                "saved": entry.modified,
                "life": read_life(
                    sink, table_heartbeat(committer_of(entry)), time.time()
                ).to_json(),
                **state,
            }
            for entry, state in states
        ]

    def _opened(self, name: str) -> StateFiles:
        place = self._parts[name].ingest.sink
        return StateFiles(open_storage(place.uri, place.options))


class _Histories:
    """The histories of sources; what was read of the last few is not read again."""

    def __init__(self, parts: Mapping[str, SourceContext], config: str, *, samples: bool) -> None:
        self._parts = parts
        self._config = config
        self._samples = samples
        self._history = lru_cache(PASTS_KEPT)(self._opened)

    def __call__(self, name: str) -> dict[str, Any]:
        document = self._history(name).look()
        for group in document["letters"]["groups"]:
            commands = letter_commands(self._config, name, group)
            group["commands"] = [asdict(each) for each in commands]
        return document

    def _opened(self, name: str) -> SourceHistory:
        parts = self._parts[name]
        place = parts.ingest.sink
        sink = open_storage(place.uri, place.options)
        dlq = open_private(parts.stores.dlq.uri, parts.dlq_options)
        stores = replace(parts.stores, sink=sink, dlq=dlq)
        return SourceHistory(replace(parts, stores=stores), time.time, samples=self._samples)


class _Stories:
    """Explanations of files, within a budget of requests."""

    def __init__(
        self, workers: Sequence[SourcePipeline], config: str, fields: Fields | None
    ) -> None:
        self._parts = {each.name: each for worker in workers for each in worker.each}
        self._config = config
        self._fields = fields
        self._allowance = TokenBucket(elapsed)

    def __call__(self, uri: str) -> dict[str, Any]:
        roots = {
            name: parts.stores.source.uri for name, parts in self._parts.items() if parts.has_files
        }
        place = locate(uri, roots, lambda name, path: accepts(self._parts[name].files)(path))
        if place.source is None or place.path is None:
            found = explain_unmatched(place)
        else:
            parts = _with_metered_stores(self._parts[place.source], self._allowance)
            found = explain_located(parts, place)
            found = found if self._fields is None else self._fields(parts, found)
        document = found.to_json()
        commands = story_commands(self._config, found.uri, document)
        outputs = [
            {**asdict(each), "status_text": each.status_text} for each in found.outputs or ()
        ]
        return {
            **document,
            "sources": len(roots),
            "outputs": outputs[:OUTPUTS_TOLD],
            "more_outputs": max(0, len(outputs) - OUTPUTS_TOLD),
            "reason": clean_text(document["reason"]),
            "untaken": _names(document["untaken"]),
            "added_since": _names(document["added_since"]),
            "commands": [asdict(each) for each in commands],
        }


def _names(fields: Sequence[str] | None) -> list[str]:
    """Return printable names of fields; the last entry may count those left out."""
    names = [clean_text(name) for name in (fields or ())[:FIELDS_TOLD]]
    more = len(fields or ()) - len(names)
    return [*names, f"and {more:,} more"] if more > 0 else names


def _with_metered_stores(parts: SourceContext, allowance: TokenBucket) -> SourceContext:
    """Return the parts with stores that count requests and are no sign of life."""
    sink, source = parts.ingest.sink, parts.files
    stores = Stores(
        metered(open_source(source.source_uri, source.storage_options), allowance.spend),
        metered(open_storage(sink.uri, sink.options), allowance.spend),
        metered(open_private(parts.stores.dlq.uri, parts.dlq_options), allowance.spend),
    )
    return replace(parts, stores=stores)


def commit_lag_notices(brief: Mapping[str, Any], committers: CachedDocument) -> list[Notice]:
    """Return notices from the committers' state and a source's own view. Pure.

    A daemon that has just started gives none: its history shows earlier publications.
    """
    last, read = brief["last"], committers.at
    if read is None or committers.document is None or committers.error:
        return []
    down = committer_notices(committers.document, read)
    if down or last is None or not last["rows"]:
        return down
    times = [each["updated"] or each["saved"] for each in committers.document]
    committed = max(times, default=None)
    # State files have whole seconds.
    if read - last["at"] < BEHIND_SECS or (committed is not None and committed >= last["at"] - 1):
        return []
    since = "ever" if committed is None else f"since {iso(committed)}"
    return [
        Notice(
            "warn",
            f"nothing was committed to its table {since}; rows were published at {iso(last['at'])}",
            "Is Penguin running for this table? Its own page and log say why it waits.",
        )
    ]
