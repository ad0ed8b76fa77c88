"""What helps where a committer has refused rows of a source, said alike wherever it is told."""

from __future__ import annotations

from blizzard_py.sources.parts import Parts

_BY_HAND = (
    "write the Parquet file anew as it fits, with its key-value metadata, and Penguin's sweep takes"
    " it (`penguin reconcile`; docs/mending.md has the lines)"
)


def way_out(parts: Parts) -> str:
    """How rows that were refused of a source get into its table after all."""
    if parts.event_time is not None:
        return (
            "`blizzard redo` cannot bring rows into windows that are published: once the table"
            f" takes them {_BY_HAND}; or compute them again by a new pipeline"
        )
    if not parts.has_files:
        return (
            "rows of a table or an API are no files that `blizzard redo` could ingest again: once"
            f" the table takes them {_BY_HAND}"
        )
    return "mend the table or the schema, then `blizzard redo CONFIG --quarantined`"
