"""Backfill: a closed range of partitions, ingested beside the live daemon. Pure.

A backfill is a source of its own with a checkpoint of its own
(``{pipeline}_{source}_backfill_{from}..{to}``) that only looks at its range; the
live watermarks are read and never written. So that no row comes twice it stays
out of what the live daemon has done or will do:

* the live daemon must have begun, or its cold start could take the range later;
* everything from where that cold start began upwards is the live daemon's. A
  range that reaches into it is refused, unless told to *replay*; then files
  that the live daemon has done are ingested again, on purpose, also those that
  a replay or ``blizzard ingest`` had brought, and those that it has still to do
  are left to it. What either has taken since is asked once files are claimed
  (`blizzard_py.sources.files.out_of_turn`);
* a file that the live daemon has settled as a late one is its, ingested or in its
  dead letters; so is one that it has still to do;
* a source without a watermark is the live daemon's as a whole, and has no ranges;
* a range that overlaps with another backfill's is refused, unless told to replay.

The same command goes on with what is not finished, and finds nothing to do once it is.
``--replay --anew`` begins over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.progress import Gap, is_new
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.source_state import SourceState, under_way

# Sorts above everything that can follow a prefix.
_LAST = "\U0010ffff"


class RangeRefused(BlizzardError):
    """The range is not the backfill's to ingest; the message says whose it is."""


@dataclass(frozen=True, slots=True)
class Range:
    """From one partition prefix to another, both included, relative to the source."""

    first: str
    last: str

    @property
    def gap(self) -> Gap:
        """Return what to list: everything that starts with ``first`` … ``last`` or lies between."""
        return Gap(self.first, self.last + _LAST)

    @property
    def slug(self) -> str:
        """A part of a file name that says the range."""
        return f"{_quoted(self.first)}..{_quoted(self.last)}"

    @classmethod
    def from_slug(cls, slug: str) -> Range | None:
        """The range of a slug, None if it is none."""
        first, dots, last = slug.partition("..")
        return cls(_unquoted(first), _unquoted(last)) if dots else None

    def holds(self, path: str) -> bool:
        """Return whether a file lies in it."""
        return order_key(self.first) < order_key(path) < order_key(self.last + _LAST)

    def overlaps(self, other: Range) -> bool:
        """Return whether a path can lie in both."""
        return order_key(self.first) <= order_key(other.last + _LAST) and order_key(
            other.first
        ) <= order_key(self.last + _LAST)


def _quoted(prefix: str) -> str:
    """A prefix as a part of a name, whatever bytes it is from and wherever it has dots."""
    text = quote(prefix, safe="=", errors="surrogateescape")
    return text.replace("..", "%2E%2E").removesuffix(".") + "%2E" * text.endswith(".")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def check_range(
    chosen: Range, live: SourceState | None, others: Iterable[Range], *, replay: bool
) -> None:
    """Raise `RangeRefused` if the range is not free, naming the remedy."""
    if order_key(chosen.first) > order_key(chosen.last):
        raise RangeRefused(f"--from {chosen.first!r} sorts above --to {chosen.last!r}")
    if live is None or live.progress.state == "Initial":
        raise RangeRefused(
            "the live daemon has not ingested anything yet, and its cold start may take this"
            " range; let it finish a first batch, which with a partition_filter that has a lookback"
            " takes nothing older"
        )
    if live.processed is not None:
        raise RangeRefused(
            "this source has no watermark (use_watermark: false) and keeps a set of names, so all"
            " of it belongs to the live daemon and no range can be replayed; `blizzard checkpoint"
            " reset` ingests everything again, and single files come again under new names"
        )
    if replay:
        return
    origin = live.origin or ""
    if not origin or order_key(chosen.last + _LAST) > order_key(f"{origin}/"):
        begins = f"everything from {origin!r} on" if origin else "the whole source"
        raise RangeRefused(
            f"{begins} belongs to the live daemon, which has ingested it or will; end the range"
            " below that, or give --replay to ingest again what it has done (rows will come twice"
            " unless they were deleted from the table)"
        )
    for other in others:
        if other != chosen and chosen.overlaps(other):
            raise RangeRefused(
                f"overlaps with the backfill from {other.first!r} to {other.last!r}; choose a"
                " range beside it, or give --replay"
            )


def check_earlier(earlier: SourceState | None, *, replay: bool) -> None:
    """Raise `RangeRefused` if a run of the range is not finished that is of the other kind."""
    if earlier is None or is_finished(earlier) or earlier.progress.state == "Initial":
        return
    if replay and not earlier.anew_ts:
        raise RangeRefused(
            "a backfill of this range without --replay is not finished; finish it first"
        )


def is_finished(state: SourceState) -> bool:
    """Return whether a backfill has done everything that it found."""
    return state.progress.state == "Idle" and not any(under_way(state))


def begins_over(earlier: SourceState, *, anew: bool) -> bool:
    """Return whether --replay ingests its range again, given the state of an earlier run.

    Who died behind the last save looks like one that has ended, and the same command must
    not double its rows: so what was replayed is replayed again only if told so (``anew``).
    """
    return is_finished(earlier) and (anew or not earlier.anew_ts)


def is_ours(live: SourceState, ledger: Ledger, path: str, *, replay: bool) -> bool:
    """Return whether a file in the range is the backfill's and not the live daemon's.

    ``ledger`` is the live daemon's, as of now.
    """
    if path in under_way(live):
        return False
    if replay:
        return not is_new(live.progress, path)
    return bool(ledger.not_settled([path]))
