"""The reason why one file was or was not ingested: ``blizzard explain``. Writes nothing.

The answer as JSON; what does not apply is null, times are epoch seconds::

    {"uri": "s3://raw/events/date=2024-01-28/1.ndjson.gz",
     "verdict": "ingested", "reason": "one sentence for people",
     "source": "events/main",              # null: no source's file
     "sources": [{"source", "root", "matches", "reason"}, …],   # every configured one
     "path": "date=2024-01-28/1.ndjson.gz",                     # below the source's root
     "file": {"size", "modified_ts"},      # null: does not exist
     "partition": "date=2024-01-28", "name": "1.ndjson.gz",
     "compared_with": {"state", "depth", "watermark", "scan_start", "floor", "source_watermark"},
     "batch": {"batch", "attempt", "started_ts", "finished_ts", "rows", "bad_rows",
               "request",                  # of an operator, that it was for (null: of none)
               "group",                    # its number, if it replaces (null: it adds)
               "row_groups"},              # which were copied (null: its source copies none)
     "outputs": [{"path", "rows", "delta_status", "delta_version", "refusal",
                  "removed_version", "removed_by"}, …],
     "records_replayed": 0,                # rows from single records of it, of an ingested file
     "dead_letter": {"object", "stage", "error", "timestamp", "retry_count"},
     "pending": {"behind", "reason", "batch", "phase", "attempt", "started_ts",
                 "tries", "max_tries", "until_ts"},
     "late": {"late_files", "reason"},
     "untaken": ["device"],                # fields of its first records without a column
     "added_since": ["price"],             # and those with one since it was ingested
     "content": {"format": "csv", "codecs": ["gzip"], "members": [],   # null: not read
                 "columns": [{"name", "type", "column", "match"}, …],
                 "missing", "unexpected", "problem"},
     "out_of_time": {"late", "ahead"},     # rows that a query over event time was not given
     "merged": {"table", "version", "changes", "outcomes"}}     # of the pipeline's keyed table

Verdicts:

* ``ingested``: ``batch`` says in which batch and how many rows; ``outputs`` are
  the Parquet files that its rows can be in: those of the batch, or those in the
  directory that the file's path stands for. ``delta_status`` is ``committed``
  (in ``delta_version``), ``not committed yet``, or ``unknown`` where the log
  has been cleaned up. After a later commit (``removed_version``) of the operation ``removed_by``
  it is ``moved`` (OPTIMIZE), ``changed`` (an engine has rewritten the file, and maybe its rows),
  or ``removed``;
* ``removed``: it was ingested and committed, and all its rows have been removed from the table,
  such as by a RESTORE or DELETE;
* ``refused``: it was ingested, but Parquet files that its rows can be in are in a committer's
  quarantine: their ``delta_status`` is ``refused``, and ``refusal`` says why;
* ``quarantined``: ``dead_letter`` has the error (``timestamp`` is ISO 8601, as in the letter);
  only ``object`` if it is gone;
* ``pending``: ``pending.behind`` is ``in_flight`` (in a batch), ``retry``,
  ``late_queue``, ``requested`` (by an operator), ``min_age``, ``apart`` (its partition is not
  looked at) or ``poll`` (new);
* ``late``: it appeared after scans had passed its name, and is left out or waits for the sweep;
* ``closed``: below the floor, and no journal holds it;
* ``done``: where scans of its partition start or below, and no journal holds it;
* ``missing``: there is no such file, and nothing is known of one;
* ``ignored``: below a source's root and not one of its files;
* ``unmatched``: outside of every source's root.

``content`` is of the file as it is now, by its beginning (`content.Content`).

The journal reaches back thirty days.
"""

from blizzard_py.explain.answer import explain, explain_unmatched
from blizzard_py.explain.explanation import Explanation, Merged, TaskEvidence, lines
from blizzard_py.explain.location import Located, locate

__all__ = [
    "Explanation",
    "Located",
    "Merged",
    "TaskEvidence",
    "explain",
    "explain_unmatched",
    "lines",
    "locate",
]
