"""Report of `make demo-tables`: the windows that were read, then lake and database side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from demo.postgresql import Server
from demo.shop import COLUMNS

Rows = Counter[tuple[Any, ...]]

_LATEST = "SELECT DISTINCT ON (id) * FROM rows ORDER BY id, version DESC"


def show_windows(console: Console, batches: Sequence[Mapping[str, Any]]) -> None:
    """Print each window's ends, of which the lower one is not in it, and its rows."""
    table = Table(
        title="Windows of updated_at: above one bound, up to the next", title_justify="left"
    )
    for name in ("", "above", "up to and with", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    above = "(nothing: the first)"
    for number, batch in enumerate(batches, 1):
        _, _, up_to = str(batch["watermark"]).partition("T")
        table.add_row(str(number), above, up_to, f"{batch['rows']:,}")
        above = up_to
    console.print(table)


def in_lake(lake: Path) -> tuple[Rows, dict[str, Any]]:
    """Every row of the Delta table, read by duckdb, and sums over the latest versions."""
    files = DeltaTable(str(lake)).file_uris()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"CREATE TABLE rows AS SELECT {COLUMNS} FROM read_parquet(?)",
            [files],
        )
        rows = connection.execute(
            "SELECT id, version, customer, amount::text, status, epoch_us(updated_at) FROM rows"
        ).fetchall()
        sums = connection.execute(
            f"SELECT count(*), sum(version), sum(amount)::text FROM ({_LATEST})"
        ).fetchone()
    assert sums is not None
    return Counter(rows), _named(sums)


def in_database(server: Server) -> tuple[Rows, dict[str, Any]]:
    """Return every version that the trigger noted, and sums over the present table."""
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT id, version, customer, amount::text, status,"
            " (extract(epoch FROM updated_at) * 1000000)::bigint FROM history"
        )
        rows = cursor.fetchall()
    sums = server.row("SELECT count(*), sum(version)::bigint, sum(amount)::text FROM orders")
    return Counter(rows), _named(sums)


def show_check(console: Console, server: Server, lake: Path) -> bool:
    """Print lake and database side by side; True if each version is in the lake once."""
    found, current = in_lake(lake)
    expected, orders = in_database(server)
    lines: dict[str, tuple[Any, Any]] = {
        "versions of rows": (found.total(), expected.total()),
        "versions missing": ((expected - found).total(), 0),
        "versions twice": (found.total() - len(found), 0),
        "versions nobody wrote": ((found - expected).total(), 0),
        **{f"latest versions: {name}": (current[name], orders[name]) for name in orders},
    }
    table = Table(title="The lake, read back with duckdb", title_justify="left")
    table.add_column("")
    table.add_column("in the lake", justify="right")
    table.add_column("in PostgreSQL", justify="right")
    table.add_column("")
    for name, (one, other) in lines.items():
        verdict = "[green]ok[/green]" if one == other else "[bold red]differs[/bold red]"
        table.add_row(name, _text(one), _text(other), verdict)
    console.print(table)
    return all(one == other for one, other in lines.values())


def _named(sums: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("rows", "sum(version)", "sum(amount)"), sums, strict=True))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{int(value):,}"
