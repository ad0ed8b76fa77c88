"""A first configuration of a table or an API: its connection says what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import ConfigError, SourceError
from blizzard_core.settings.connections import (
    ConnectionSettings,
    DatabaseConnectionSettings,
    HttpConnectionSettings,
    LakeConnectionSettings,
)
from blizzard_core.settings.document import QuerySettings
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.query_sources import COLUMN, TableSourceSettings
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.app.queries.plan import PROMISES
from blizzard_py.commands.starter.target import LAKES, StarterTarget
from blizzard_py.commands.starter.watermark import ColumnFacts, Proposal, candidates, proposed
from blizzard_py.commands.starter.yaml_text import EDITOR_LINES, commented, filled, flow, quoted
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.protocol import (
    ReadBound,
    ReadSelection,
    SourceColumn,
    SourceConnection,
)
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.reading import Access, BoundKind
from blizzard_py.schema.column_names import unique_columns
from blizzard_py.schema.field_specs import field_document

_TEXT_TIMES = frozenset({"sqlite", "csv", "json", "excel"})
_SETTLE_SECS = 60.0
# Any column: questions before the choice of a column do not depend on it.
_NO_COLUMN = "id"


@dataclass(frozen=True, slots=True)
class Description:
    """A connection's answer: columns, the proposed one with its bound, what it cannot promise."""

    columns: Sequence[SourceColumn]
    key: Sequence[str] = ()
    proposal: Proposal | None = None
    bound: BoundKind | None = None
    warnings: Sequence[str] = ()


def describe(target: StarterTarget, since: str | None, column: str | None) -> Description:
    """Ask the connection. ``since`` is an API's parameter; ``column`` is the operator's choice.

    Raises `ConfigError` if no column can be proposed or the chosen one is not there, and what
    connections raise.
    """
    access = _access(target, since, _NO_COLUMN)
    with closing(connect(access, _selection(target))) as connection:
        columns = list(connection.columns())
        if not columns:
            raise ConfigError(target.what, ["has nothing from which columns can be derived"])
        versions = target.driver in ("delta", "iceberg") and column is None
        if versions:
            connection.bound("version", _SETTLE_SECS)  # some have none, and say what to do
            return Description(columns)
        facts = _facts(target, connection, columns)
    if column is None:
        proposal = proposed(facts, target.what)
    elif column in [each.name for each in columns]:
        _check_sent(target, next(each for each in columns if each.name == column))
        proposal = Proposal(column, (f"{column}: as it was asked for.",))
    else:
        there = ", ".join(each.name for each in columns)
        raise ConfigError("--column", [f"there is no column {column!r}; there are: {there}"])
    # The type of a watermark in files is the declared one.
    declared = (each.field for each in columns if each.name == proposal.column)
    fields = tuple(declared) if target.driver in LAKES else ()
    chosen = replace(_selection(target), fields=fields, columns=(proposal.column,))
    with closing(connect(_access(target, since, proposal.column), chosen)) as connection:
        kind, why_bound = _bound(connection)
        warnings = dict.fromkeys([*why_bound.warnings, *connection.warnings()])
    key = facts.key if all(COLUMN.fullmatch(name) for name in facts.key) else ()
    return Description(columns, key, proposal, kind, tuple(warnings))


def _check_sent(target: StarterTarget, column: SourceColumn) -> None:
    """Refuse a column that is no time, because an API is sent a time."""
    if target.driver == "http" and column.kind not in {"time", "date"}:
        problem = f"{column.name!r} is {column.type}, and an API is read in windows of time"
        raise ConfigError("--column", [problem])


def _facts(
    target: StarterTarget, connection: SourceConnection, columns: Sequence[SourceColumn]
) -> ColumnFacts:
    text_times = target.driver in _TEXT_TIMES
    if not isinstance(connection, SqlConnection):
        return ColumnFacts(columns, text_times=text_times)
    indexed = [name for name in candidates(columns) if connection.indexed(name)]
    return ColumnFacts(columns, connection.key(), indexed, text_times)


def _bound(connection: SourceConnection) -> tuple[BoundKind, ReadBound]:
    """Return the connection's default bound, or the highest value."""
    kind = connection.default_bound
    if kind is None:
        raise SourceError("the column has no order, so new rows cannot be found by it")
    try:
        return kind, connection.bound(kind, _SETTLE_SECS)
    except SourceError:
        if kind == "max":
            raise
        return "max", connection.bound("max", _SETTLE_SECS)


def _selection(target: StarterTarget) -> ReadSelection:
    return ReadSelection(table=target.source.get("table", ""))


def _access(target: StarterTarget, since: str | None, column: str) -> Access:
    """Return the access as the daemon builds it, from validated settings."""
    block, source = filled(target.connection), filled(target.source)
    watermark: dict[str, Any] = {"columns": [column]}
    settings: ConnectionSettings
    source_settings: QuerySettings
    if target.driver == "http":
        watermark["push"] = {"from": {"param": since}}
        settings = HttpConnectionSettings.model_validate(block)
        source_settings = HttpSourceSettings.model_validate({**source, "watermark": watermark})
    else:
        family = LakeConnectionSettings if target.driver in LAKES else DatabaseConnectionSettings
        settings = family.model_validate(block)
        source_settings = TableSourceSettings.model_validate({**source, "watermark": watermark})
    return kind_of(source_settings).access(settings, source_settings)


def configuration(
    target: StarterTarget, table_uri: str, found: Description, since: str | None
) -> str:
    """Return the YAML; it passes `validate` once the environment has its secrets."""
    promises = "apis" if target.driver == "http" else "tables"
    return "\n".join(
        [
            EDITOR_LINES,
            f"# Rows of {commented(target.what)} become rows of the Delta table at table_uri.",
            "# Try it: `blizzard validate`, `blizzard plan`, then both daemons with `run --once`.",
            f"# What it promises: docs/reference/{promises}.md",
            "# Every key: docs/reference/configuration.md",
            "# ${VAR} and ${VAR:-default} are filled in from the environment.",
            "",
            "connections:",
            f"  {flow(target.name)}:",
            *_block(target.connection, 4),
            "",
            "pipelines:",
            f"  {flow(target.pipeline)}:                        # a name of your choice",
            "    sources:",
            f"      {flow(target.name)}:",
            *_block(target.source, 8),
            "        poll_interval: 1m   # how often to look for new rows",
            *_hints(target),
            *_watermark(target, found, since),
            "    sink:",
            f"      table_uri: {quoted(table_uri)}",
            "    schema:",
            f"      fields:                    # as {commented(target.what)} has them",
            *_fields(found.columns),
            "",
        ]
    )


def _block(block: Any, indent: int) -> Iterator[str]:
    for key, value in block.items():
        yield f"{' ' * indent}{key}: {flow(value)}"


def _hints(target: StarterTarget) -> Iterator[str]:
    if target.driver == "http":
        yield "        # pages: { kind: page, param: page }   # without it one answer has all"
    else:
        yield "        # filter: status <> 'draft'            # only rows for which it holds"


def _watermark(target: StarterTarget, found: Description, since: str | None) -> Iterator[str]:
    if found.proposal is None:
        yield "        watermark: {}              # by the table's versions: nothing is missed"
        return
    yield "        watermark:"
    for line in found.proposal.why:
        yield f"          # {commented(line)}"
    yield f"          columns: {flow([found.proposal.column])}"
    if found.bound is not None:
        yield f"          bound: {found.bound}    # {PROMISES[found.bound]}"
    for warning in found.warnings:
        yield f"          # {commented(warning)}"
    if target.driver == "http":
        yield f"          push: {{ from: {{ param: {flow(since)} }} }}"
        yield "          # push.to: if the API has such a parameter (docs/reference/apis.md)"
    if found.bound in ("max", "rows") and found.key:
        yield f"          key: {flow(list(found.key))}    # tells rows with the highest value apart"
    yield "          # backward: 1d    # read rows again that came late, …"
    yield "          # reread: new_only         # … and keep those that are new"


def _fields(columns: Sequence[SourceColumn]) -> Iterator[str]:
    names = unique_columns([column.name for column in columns])
    seen: set[str] = set()
    for column in columns:
        name, field, why = names.get(column.name), column.field, ""
        if name is None:
            why = ", a column cannot have this name"
        elif column.name.lower() in seen:
            why = ", differs only in case"
        elif name != column.name:
            field = replace(field, name=name, source=column.name)
        seen.add(column.name.lower())
        mark = "# " if why else ""
        yield f"        {mark}- {flow(field_document(field))}    # {commented(column.type)}{why}"
