"""The table that `make demo-tables` reads, and its changes.

A trigger writes each version of each row into ``history``, which the daemon knows nothing
of: what the lake has to hold in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from demo.postgresql import Server

FIRST_ROWS = 20_000
COLUMNS = "id, version, customer, amount, status, updated_at"


def make(server: Server) -> None:
    """Make the database, its tables, the role ``reader`` and the first rows."""
    server.execute("CREATE DATABASE shop", database="postgres")
    server.execute(
        """CREATE TABLE orders (
             id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1,
             customer text, amount numeric(12,2), status text NOT NULL DEFAULT 'new',
             updated_at timestamptz NOT NULL DEFAULT now())""",
        "CREATE INDEX ON orders (updated_at)",
        "CREATE TABLE history (LIKE orders)",
        """CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN INSERT INTO history SELECT NEW.*; RETURN NULL; END'""",
        """CREATE TRIGGER changed AFTER INSERT OR UPDATE ON orders
           FOR EACH ROW EXECUTE FUNCTION changed()""",
        f"CREATE ROLE reader LOGIN PASSWORD '{server.password}'",
        "GRANT SELECT ON orders TO reader",
        "GRANT pg_read_all_stats TO reader",
        inserting(FIRST_ROWS),
    )


def inserting(count: int) -> str:
    """Return the statement that inserts so many orders."""
    return (
        "INSERT INTO orders (customer, amount)"
        f" SELECT 'customer ' || g % 997, g % 10000 / 4.0 FROM generate_series(1, {count}) g"
    )


def updating(first: int, last: int, status: str) -> str:
    """Return the statement that makes a new version of the orders with these ids."""
    return (
        f"UPDATE orders SET version = version + 1, status = '{status}', updated_at = now()"
        f" WHERE id BETWEEN {first} AND {last}"
    )


@contextmanager
def transaction(server: Server, *statements: str) -> Iterator[None]:
    """Run the statements at the beginning, commit at the end: later than others do."""
    with server.session(autocommit=False) as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        yield
        session.commit()


def versions(server: Server) -> int:
    """Return the number of row versions so far, in transactions that have ended."""
    count: int = server.row("SELECT count(*) FROM history")[0]
    return count
