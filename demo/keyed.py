"""`make demo-keyed`: a PostgreSQL table and Debezium's files, into tables of current rows.

Orders change and get a ``deleted_at``; customers change and go in change files, some of which come
late, twice, and in a wrong order. After each round duckdb counts the keyed tables, and the counts
are the sources'. The lake is made anew below ``.demo-keyed/`` (or ``$DEMO_DIR``) and kept. Exits 1
if a daemon fails or a count differs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from blizzard_py.demo.stage import DemoFailedError, staged, step
from demo import postgresql
from demo.running import RunningDaemon, running

CONFIG = Path("configs/demo-keyed.yaml")
ROUNDS = 3
_ORDERS = 2000
_CUSTOMERS = 300
_PATIENCE_SECS = 300

# Rows, and the sum of a column that each change changes.
Counts = tuple[int, int]


@dataclass
class Customers:
    """A table of customers as its database has it, and its changes as Debezium writes them."""

    raw: Path
    chance: random.Random
    points: dict[int, int] = field(default_factory=dict)
    lsn: int = 0
    late: list[str] = field(default_factory=list)
    files: int = 0

    def change(self) -> None:
        """Change, add and remove customers, and write files: late lines, and some twice."""
        lines = [self._changed(key) for key in self.chance.choices(range(_CUSTOMERS), k=600)]
        self.chance.shuffle(lines)
        lines += self.chance.sample(lines, 50) + self.late
        self.late = lines[:100]
        for part in (lines[100:400], lines[400:]):
            self._write(part)

    def finish(self) -> None:
        """Write what was late last."""
        self._write(self.late)
        self.late = []

    def _changed(self, key: int) -> str:
        self.lsn += 1
        before = {"id": key} if key in self.points else None
        if before is not None and self.chance.random() < 0.3:
            del self.points[key]
            kind, after = "d", None
        else:
            self.points[key] = self.lsn
            kind, after = "u" if before else "c", {"id": key, "points": self.lsn}
        document = {"op": kind, "before": before, "after": after, "source": {"lsn": self.lsn}}
        return json.dumps(document)

    def _write(self, lines: list[str]) -> None:
        self.files += 1
        name = f"{self.chance.randrange(10**6):06}-{self.files}.ndjson"
        self.raw.mkdir(parents=True, exist_ok=True)
        # Visible as a whole: a hidden name is renamed.
        hidden = self.raw / f".{name}"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self.raw / name)


def make_orders(server: postgresql.Server) -> None:
    """Make the database, the table, the role ``reader`` and the first rows."""
    server.execute("CREATE DATABASE shop", database="postgres")
    server.execute(
        """CREATE TABLE orders (
             id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1,
             status text NOT NULL DEFAULT 'new', deleted_at timestamptz,
             updated_at timestamptz NOT NULL DEFAULT now())""",
        "CREATE INDEX ON orders (updated_at)",
        f"CREATE ROLE reader LOGIN PASSWORD '{server.password}'",
        "GRANT SELECT ON orders TO reader",
        "GRANT pg_read_all_stats TO reader",
        f"INSERT INTO orders (status) SELECT 'new' FROM generate_series(1, {_ORDERS})",
    )


def change_orders(server: postgresql.Server, number: int) -> None:
    """Insert, update and delete orders; a deleted row stays, with the time of its deletion."""
    first = number * 200
    server.execute(
        f"INSERT INTO orders (status) SELECT 'new' FROM generate_series(1, {100 + number})",
        "UPDATE orders SET version = version + 1, status = 'paid', updated_at = now()"
        f" WHERE id BETWEEN {first} AND {first + 400}",
        "UPDATE orders SET deleted_at = now(), updated_at = now()"
        f" WHERE id BETWEEN {first + 100} AND {first + 150}",
        "UPDATE orders SET deleted_at = NULL, version = version + 1, updated_at = now()"
        f" WHERE id BETWEEN {first - 90} AND {first - 80}",
    )


def in_shop(server: postgresql.Server) -> Counts:
    """Return the counts of the database's table."""
    rows, versions = server.row(
        "SELECT count(*), sum(version)::bigint FROM orders WHERE deleted_at IS NULL"
    )
    return int(rows), int(versions)


def in_lake(folder: Path, column: str) -> Counts:
    """Return the counts of a keyed table, by duckdb; its keys are there once."""
    if not (folder / "_delta_log").is_dir():
        return 0, 0
    with duckdb.connect() as connection:
        files = DeltaTable(str(folder)).file_uris()
        if not files:
            return 0, 0
        found = connection.execute(
            f"SELECT count(*), sum({column})::bigint, count(DISTINCT id) FROM read_parquet(?)",
            [files],
        ).fetchone()
    assert found is not None
    if found[0] != found[2]:
        raise DemoFailedError(f"{folder}: a key is there twice")
    return int(found[0]), int(found[1])


def equal(
    place: Path, server: postgresql.Server, customers: Customers, penguin: RunningDaemon
) -> list[tuple[str, Counts, Counts]]:
    """Wait until the keyed tables are as the sources; return the counts of both."""
    deadline = time.monotonic() + _PATIENCE_SECS
    while True:
        of_customers = len(customers.points), sum(customers.points.values())
        found = [
            ("orders", in_shop(server), in_lake(place / "lake/orders", "version")),
            ("customers", of_customers, in_lake(place / "lake/customers", "points")),
        ]
        if all(source == lake for _, source, lake in found):
            return found
        if time.monotonic() > deadline:
            raise DemoFailedError(f"counts differ after {_PATIENCE_SECS} s: {found}")
        penguin.events("merged")  # raises if it has ended
        time.sleep(0.2)


def run(place: Path, console: Console) -> bool:
    """Server, daemons, and rounds of changes between them."""
    show = Table(title="Rows, and the sum of a changing column", title_justify="left")
    for name in ("after", "table", "source", "keyed table"):
        show.add_column(name, justify="right")
    with postgresql.running() as server:
        make_orders(server)
        os.environ |= {
            "DEMO_DIR": str(place.absolute()),
            "DEMO_PORT": str(server.port),
            "DEMO_PASSWORD": server.password,
        }
        customers = Customers(place / "raw", random.Random(41))
        customers.change()
        customers.finish()
        logs = place / "logs"
        with (
            running("penguin", CONFIG, logs / "penguin.log") as penguin,
            running("blizzard", CONFIG, logs / "blizzard.log"),
        ):
            stepped = partial(step, console)
            for number in range(ROUNDS + 1):
                text = f"round {number}" if number else "the first rows"
                start = "" if number else ", after Spark's start"
                with stepped(f"{text}{start}: written, ingested, merged"):
                    if number:
                        change_orders(server, number)
                        customers.change()
                        customers.finish()
                    found = equal(place, server, customers, penguin)
                for name, source, lake in found:
                    show.add_row(text, name, *(f"{c[0]:,} / {c[1]:,}" for c in (source, lake)))
    console.print(show)
    return True


def main() -> int:
    """Run the demo; the process's exit code."""
    place = Path(os.environ.get("DEMO_DIR") or ".demo-keyed")
    return staged(place, run, "lake", "Both keyed tables have the rows of their sources")


if __name__ == "__main__":
    sys.exit(main())
