"""Parts of a query over event time that may not change after its first batch. Pure.

Spark's own check is not enough. It accepts another window, another aggregate of the same type or
another mode, and mixes old and new state without a warning. So the query is saved with the state
and compared key by key. If Spark runs, it compares SQL texts and the session's time zone
(`blizzard_py.streaming.query_equivalence`). ``COUNT(*)`` is the same query as ``count(*)``, and the
same text may be another query in another zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from blizzard_core.errors import StateError
from blizzard_core.settings.base import to_micros
from blizzard_core.settings.event_time import Branch, EventTimeSettings, JoinSettings
from blizzard_py.job import FieldSpec, IngestSettings
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_state import StreamState

_REMEDY = "set it back, or give the new query a pipeline and a table of its own"
_FORGETTING = (
    f"{_REMEDY}; if its open windows may be lost: `blizzard checkpoint reset --event-time`"
)
# The columns of the watermark. They may not change, so that no window is published twice.
_TIMES = ("column", "sources")
# Keys that only Spark can compare.
_SPELLED = ("transform", "aggregates", "zone")
# The checkpoint's policy stays in force, and status shows it.
_NOT_COMPARED = ("policy", "transform", "zone")


def fingerprint(
    given: EventTimeSettings, branches: Sequence[Branch], ingest: IngestSettings, zone: str
) -> dict[str, Any]:
    """Return the settings that the state depends on. All others may change.

    For several sources it has each one's column by its name. ``zone`` is the time zone of the
    Spark session, which SQL uses to turn a time into hours, dates and text.
    """
    times: dict[str, Any] = {"column": branches[0].column}
    if len(branches) > 1:
        times = {"sources": {each.source: each.column for each in branches}}
    window = given.window
    kind: dict[str, int] | None = None
    if window is not None and window.gap is not None:
        kind = {"gap_us": to_micros(window.gap)}
    elif window is not None and window.size is not None:
        kind = {
            "size_us": to_micros(window.size),
            "slide_us": to_micros(window.slide or window.size),
            "offset_us": to_micros(window.offset),
        }
    return {
        **times,
        **({} if given.join is None else {"join": _join(given.join)}),
        "policy": given.advanced.policy,
        "deduplicate": list(given.deduplicate),
        "window": kind,
        "group_by": list(given.group_by),
        "aggregates": dict(given.aggregates),
        "mode": given.mode,
        "partitions": given.advanced.partitions,
        "transform": ingest.sql.transform,
        "zone": zone,
        # As text: only equality of types matters here.
        "fields": {
            each.name: _type(each) for each in (*ingest.schema.fields, *ingest.added_columns.path)
        },
    }


def _join(join: JoinSettings) -> dict[str, Any]:
    return {
        "left": join.left,
        "right": join.right,
        "type": join.type,
        "on": list(join.on),
        "lower_us": join.lower_us,
        "upper_us": join.upper_us,
        "columns": dict(join.columns),
    }


def _type(spec: FieldSpec) -> str:
    inner = ", ".join(f"{child.name} {_type(child)}" for child in spec.children)
    digits = f"({spec.precision},{spec.scale})" if spec.type == "decimal" else ""
    return f"{spec.type}{digits}" + (f"<{inner}>" if inner else "")


def changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each changed key of the query's configuration.

    Keys that only Spark can compare are in `respelled`. Fields may be added and removed if the
    query does not use them, but no type may change.
    """
    found = []
    if "sources" in current and "sources" not in stored:
        found.append(f"sources: there was one, and there are {len(current['sources'])}")
    for key, before in stored.items():
        now = current.get(key)
        if key in _NOT_COMPARED or (key == "column" and "sources" in current):
            continue
        if key in _CHANGES and (now is not None or key != "join"):
            found += _CHANGES[key](before, now or {})
        elif now != before:
            found.append(f"event_time.{key} was {_shown(before)} and is {_shown(now)}")
    return found


def spelling_changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each changed key that may still mean the same query."""
    found = {}
    for key in _SPELLED:
        before, now = stored.get(key, current[key]), current[key]
        if before == now:
            continue
        if key == "aggregates":
            found[key] = "; ".join(
                f"event_time.aggregates.{name} was {text!r} and is {now[name]!r}"
                for name, text in before.items()
                if name in now and now[name] != text
            )
        else:
            place = "spark.conf: spark.sql.session.timeZone" if key == "zone" else key
            found[key] = f"{place} was {_shown(before)} and is {_shown(now)}"
    return found


def resume(stream: StreamState | None, current: Mapping[str, Any]) -> StreamState:
    """Return the state for the next batch, after all checks, with the present text of the query.

    After an operator's reset the query may be another one.
    """
    known = stream or StreamState(query=current)
    if not known.packs:
        return replace(known, query=current)
    return replace(known, query={**known.query, **{key: current[key] for key in _SPELLED}})


def forgotten(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a query that stays fixed once its state is forgotten."""
    return {key: stored[key] for key in _TIMES if key in stored}


def check_query(state: SourceState, current: Mapping[str, Any] | None, where: str) -> None:
    """Raise `StateError` if the state is of another query than the one asked for.

    ``current`` is its fingerprint, None for a pipeline without a query. A watermark that was only
    observed allows any query.
    """
    stream = (
        None if state.kind.stream is None or state.kind.stream.is_watched else state.kind.stream
    )
    if current is None:
        if stream is not None:
            raise StateError(
                f"{where}: holds the state of an event_time query, and the configuration has none;"
                f" {_REMEDY}"
            )
        return
    if stream is None:
        # A rebuilt checkpoint has no counts, but its files are done.
        if state.summary.totals.batches or state.position.progress.state != "Initial":
            raise StateError(
                f"{where}: this pipeline has published rows as they came, so the table is no answer"
                " of an event_time query; give the query a pipeline and a table of its own"
            )
        return
    found = changes(stream.query, current)
    if found:
        raise change_error(found, where, forgettable=not changes(forgotten(stream.query), current))


def change_error(found: Sequence[str], where: str, *, forgettable: bool = True) -> StateError:
    """Return the error for a changed query. ``forgettable``: valid once its state is forgotten."""
    remedy = _FORGETTING if forgettable else _REMEDY
    return StateError(
        f"{where}: the query has changed under its state ({'; '.join(found)}); {remedy}"
    )


def _shown(value: Any) -> str:
    return "absent" if value in (None, "", [], {}) else repr(value)


def _of_fields(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"schema.fields: {name} was {kind} and is {now[name]}"
        for name, kind in before.items()
        if now.get(name, kind) != kind
    ]


def _of_sources(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changes of several sources, or of their time columns."""
    if before.keys() != now.keys():
        return [f"sources: were {', '.join(before)}" + (f" and are {', '.join(now)}" * bool(now))]
    return [
        f"the time of sources.{name} was {column!r} and is {now[name]!r}"
        for name, column in before.items()
        if now[name] != column
    ]


def _of_join(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"event_time.join.{name} was {was!r} and is {now[name]!r}"
        for name, was in before.items()
        if now[name] != was
    ]


def _of_aggregates(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a sentence if the names or their order changed: Spark keeps values by position."""
    if list(before) == list(now):
        return []
    was, are = (", ".join(names) or "absent" for names in (before, now))
    return [f"event_time.aggregates were {was} and are {are}"]


_CHANGES: Mapping[str, Callable[[Any, Any], list[str]]] = {
    "fields": _of_fields,
    "sources": _of_sources,
    "join": _of_join,
    "aggregates": _of_aggregates,
}
