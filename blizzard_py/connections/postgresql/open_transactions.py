"""The time below which no open transaction can write rows: the bound `settled`.

A writer's ``now()`` is the start of its transaction. So an open transaction may add rows with any
time from its start on, and no row from before the oldest start can come. Idle transactions,
prepared ones and workers that apply replicated changes count too. Transactions of other databases
cannot write here, and our own sessions never write: they are left out.

Only members of ``pg_read_all_stats`` see other users' transactions. To other users their start is
null, without an error. The same statement checks the membership. The server does not report two
things, and both could lose rows:

* **The begin of a prepared transaction**: only the time of preparation is known. So earlier
  observations are used. A transaction that is prepared now, and was not then, was open then or
  began later.
* **The begin of the next transaction of one message**: all of them begin with the message, and
  between two of them none is open. If an observation finds such a session, it is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from blizzard_py.connections.postgresql.session import PLANS, READS

# A transaction's time is set a moment before pg_stat_activity shows it. So ``now()``, the begin of
# this statement, is read first and transactions are read later.
_PAUSE_SECS = 0.02

# How often an inconclusive observation is repeated: both cases usually pass in a moment.
MORE_LOOKS = 10

# Each part refers to the one before, so they run in this order: a transaction that is prepared
# meanwhile is seen by the first part or by the second.
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
       open.pid, open.since AS open_since, open.between,
       open.hidden OR NOT current_setting('track_activities')::bool AS hidden, two_phase.prepared
FROM begun,
LATERAL (
  SELECT min(xact_start) AS since, (array_agg(pid ORDER BY xact_start))[1] AS pid,
         min(pid) FILTER (WHERE xact_start IS NULL AND state = 'active'
                                AND backend_type = 'client backend') AS between,
         count(*) FILTER (WHERE state = 'disabled') > 0 AS hidden
  FROM pg_stat_activity
  WHERE NOT begun.never AND datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
    AND NOT (application_name IN ('{PLANS}', '{READS}') AND usename = current_user)) open,
LATERAL (
  SELECT coalesce(json_object_agg(transaction::text, gid), '{{}}')::text AS prepared
  FROM pg_prepared_xacts WHERE open.hidden IS NOT NULL AND database = current_database()) two_phase
"""  # noqa: S608  # constants only

NOT_A_MEMBER = (
    "this user does not see other users' transactions, so rows of those that are open for longer"
    " than settle can be missed; as a superuser, run: GRANT pg_read_all_stats TO the user"
)
HIDDEN = (
    "track_activities is off, here or in some session, which hides when transactions began, so"
    " rows of those that are open for longer than settle can be missed; switch it on"
)
FOREIGN = (
    "this is a foreign table: transactions of another server write its rows, so rows of those"
    " that are open for longer than settle can be missed; read it there"
)
STANDBY = "this is a standby, which does not show the open transactions of the primary"


class Transactions:
    """The transactions of one server, as far as they were observed."""

    def __init__(self) -> None:
        # No transaction began below this that was not prepared at the last observation.
        self._free: datetime | None = None
        # By the number of each prepared transaction: it did not begin below this.
        self._started: dict[str, datetime | None] = {}

    def until(self, answer: Mapping[str, Any]) -> tuple[datetime | None, str | None]:
        """Return the instant below which no writes are open, and what holds it back, if anything.

        The instant is None if this observation is inconclusive.
        """
        if answer["between"] is not None:
            return None, f"pid {answer['between']}, between two transactions of one message"
        now: datetime = answer["now"]
        prepared: Mapping[str, str] = json.loads(answer["prepared"])
        self._started = {number: self._started.get(number, self._free) for number in prepared}
        held = [
            (since, f"prepared transaction {prepared[number]!r}")
            for number, since in self._started.items()
        ]
        if answer["open_since"] is not None:
            held.append((answer["open_since"], f"pid {answer['pid']}, transaction"))
        self._free = min(now, answer["open_since"] or now)
        return _earliest(now, held)


def _earliest(
    now: datetime, held: list[tuple[datetime | None, str]]
) -> tuple[datetime | None, str | None]:
    since, note = now, None
    for began, who in held:
        if began is None:
            return None, f"{who}, whose start is unknown"
        if began < since:
            seconds = (now - began) / timedelta(seconds=1)
            since = began
            note = f"{who} since {began.isoformat(timespec='seconds')} ({seconds:.0f} s)"
    return since, note
