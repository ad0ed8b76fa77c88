"""Below which time nobody writes any more: `settled`.

A writer takes ``now()`` from the start of its transaction, so whatever is still open may bring
rows with any time from its start on, and nothing from before the oldest start can come. Idle
transactions count, and so do prepared ones. Transactions of other databases cannot write here,
and our own sessions never write: they are left out.

Others' transactions are visible to members of ``pg_read_all_stats`` only; to anybody else their
start is null, without an error. That is asked for in the same statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from blizzard_py.connections.postgresql.session import PLANS, READS

# A transaction takes its time a moment before it can be seen in pg_stat_activity. So ``now()``,
# which is when this statement began, is taken first and transactions are looked at later.
_PAUSE_SECS = 0.02

STATEMENT = f"""
WITH begun AS MATERIALIZED (
  SELECT now() AS at, pg_sleep({_PAUSE_SECS}) IS NULL AS never)
SELECT begun.at AS now,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all,
       pg_is_in_recovery() AS standby,
       CASE WHEN pg_is_in_recovery() THEN CASE
         WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
              AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver) THEN 0
         ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())
       END::float8 END AS replay_lag,
       open.pid, open.xact_start AS open_since,
       prepared.gid::text AS prepared, prepared.prepared AS prepared_at
FROM begun
LEFT JOIN LATERAL (
  SELECT pid, xact_start FROM pg_stat_activity
  WHERE NOT begun.never AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND xact_start IS NOT NULL AND datname = current_database()
    AND NOT (application_name IN ('{PLANS}', '{READS}') AND usename = current_user)
  ORDER BY xact_start LIMIT 1) open ON true
LEFT JOIN LATERAL (
  SELECT gid, prepared FROM pg_prepared_xacts
  WHERE NOT begun.never AND database = current_database()
  ORDER BY prepared LIMIT 1) prepared ON true
"""  # noqa: S608  # constants only

NOT_A_MEMBER = (
    "this user does not see others' transactions, so those that are open for longer than"
    " settle_secs can be missed; as a superuser, run: GRANT pg_read_all_stats TO the user"
)
STANDBY = "this is a standby, which does not tell which transactions are open on the primary"


def until(answer: Mapping[str, Any]) -> tuple[datetime, str | None]:
    """Below which instant everything is settled, and who holds it back if somebody does."""
    now: datetime = answer["now"]
    held: list[tuple[datetime, str]] = []
    if answer["open_since"] is not None:
        held.append((answer["open_since"], f"pid {answer['pid']}, transaction"))
    if answer["prepared_at"] is not None:
        held.append((answer["prepared_at"], f"prepared transaction {answer['prepared']!r}"))
    if not held:
        return now, None
    since, who = min(held)
    if since >= now:
        return now, None
    seconds = (now - since) / timedelta(seconds=1)
    return since, f"{who} since {since.isoformat(timespec='seconds')} ({seconds:.0f} s)"
