"""Commands that the page offers to copy: whole, without secrets, safe to paste. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blizzard_core.observability.page_providers import Command
from blizzard_core.redact import redacted_word

# Kinds of errors after which the checkpoint is what to look at.
_STATE = frozenset({"StateError", "ColdStartRefused", "WatermarkError"})
_CONFIGURATION = frozenset({"ConfigError", "SchemaConflict", "SchemaUnknown", "UnitError"})


def source_commands(config: str, target: Mapping[str, Any]) -> list[Command]:
    """Return commands that help with a source's problem, then general ones.

    ``config`` is the path of the configuration, ``target`` the source's status document.
    """
    return [Command(why, command) for why, command in _of_source(redacted_word(config), target)]


def _of_source(config: str, target: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pipeline, _, source = str(target["name"]).partition("/")
    here = f"{config} --pipeline {redacted_word(pipeline)} --source {redacted_word(source)}"
    kind = target["pulse"]["kind"]
    if kind in _CONFIGURATION:
        yield "Check the configuration and the table", f"blizzard validate {config}"
    if kind == "FencedError":
        yield "Show the writer of its checkpoint", f"blizzard status {config}"
    if kind in _STATE:
        why = "What the journal and the log would make of its state"
        yield why, f"blizzard checkpoint rebuild {here} --dry-run"
    if target["refused"]["outputs"]:
        yield (
            "What ingesting the refused rows again would do",
            f"blizzard replay {here} --refused --dry-run",
        )
    if target["letters"]:
        yield "List dead letters and their reasons", f"blizzard dlq list {here}"
        yield "What a replay would take", f"blizzard replay {here} --all --dry-run"
    for request in target["requests"]:
        which = f"{config} {redacted_word(request['id'])}"
        yield (
            "Show a request and its outcome",
            f"blizzard requests show {which} --files",
        )
        yield "Cancel it: what has come stays", f"blizzard requests cancel {which}"
    yield "Where every source is", f"blizzard status {config}"
    yield "What the next poll would do", f"blizzard plan {config}"
    yield "Its saved state", f"blizzard checkpoint show {here}"
    yield "Who changed it by hand, when and why", f"blizzard checkpoint log {here}"


def letter_commands(config: str, name: str, group: Mapping[str, Any]) -> list[Command]:
    """Return what shows and replays the dead letters of one reason of the source ``name``."""
    pipeline, _, source = name.partition("/")
    where = f"--pipeline {redacted_word(pipeline)} --source {redacted_word(source)}"
    here = f"{redacted_word(config)} {where}"
    which = f"--letter {redacted_word(str(group['letter']))}"
    found = [Command("The newest of them", f"blizzard dlq show {here} {which}")]
    if group["stage"]:
        which = f"--stage {redacted_word(str(group['stage']))}"
        if group["reason"]:
            which += f" --reason {redacted_word(str(group['reason']))}"
    why = "After a fix: show what a replay would ingest; without --dry-run it does"
    return [*found, Command(why, f"blizzard replay {here} {which} --dry-run")]


def story_commands(config: str, uri: str, story: Mapping[str, Any]) -> list[Command]:
    """Return what helps a file, by what `blizzard explain` says of it."""
    commands = _of_story(redacted_word(config), redacted_word(uri), story)
    return [Command(why, command) for why, command in commands]


def _of_story(config: str, uri: str, story: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pipeline, _, source = str(story["source"] or "").partition("/")
    here = f"{config} --pipeline {redacted_word(pipeline)} --source {redacted_word(source)}"
    verdict = story["verdict"]
    if verdict == "quarantined":
        batch = (story.get("batch") or {}).get("batch")
        which = f"--letter {redacted_word(batch)}" if batch else "--all"
        if batch:
            yield "The letter, and the line that is bad", f"blizzard dlq show {here} {which}"
        yield (
            "After a fix: show what a replay would ingest",
            f"blizzard replay {here} {which} --dry-run",
        )
    if verdict == "refused":
        yield (
            "What ingesting its rows again would do",
            f"blizzard replay {here} --refused --dry-run",
        )
    is_skipped = (story.get("pending") or {}).get("behind") == "apart"
    if is_skipped or verdict in {"late", "closed", "ignored"}:
        yield "What taking it after all would do", f"blizzard ingest {config} {uri} --dry-run"
    yield "The same on a terminal", f"blizzard explain {config} {uri}"
