"""What is asked of a connection, and how rows are told that it gives again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blizzard_core.errors import SourceError
from blizzard_py.connections.protocol import Connection, Split
from blizzard_py.reading import Access, BoundKind, Nulls


@dataclass(frozen=True, slots=True)
class Asking:
    """A source's settings as far as they decide what is read.

    ``columns`` are the watermark's (none: the connection's own versions), ``backward`` the
    look-back in force, with which ``new_only`` keeps rows apart that were published, by
    ``key`` and ``columns``. ``bound`` is None where the connection's default counts.
    With ``ends_before`` a window leaves its end itself out: an API is told where to end.
    """

    connection: Connection
    access: Access
    columns: tuple[str, ...]
    bound: BoundKind | None = None
    settle_secs: float = 60.0
    nulls: Nulls = "first"
    backward: Mapping[str, int] = field(default_factory=dict)
    new_only: bool = False
    key: tuple[str, ...] = ()
    split: Split = field(default_factory=Split)
    ends_before: bool = False

    @property
    def bound_kind(self) -> BoundKind:
        """Where windows end. Asks the connection if nothing is configured.

        Raises `SourceError` if it has no default for these columns.
        """
        found = self.bound or self.connection.default_bound
        if found is None:
            raise SourceError(
                f"watermark.bound is required: there is no default for the types of"
                f" {', '.join(self.columns)}; `blizzard validate` tells which there are"
            )
        return found
