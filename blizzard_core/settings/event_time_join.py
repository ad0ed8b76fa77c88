"""The settings of a join: two sources of a pipeline, matched by fields and by time.

What one key may be is checked here; what it makes of the rest of a configuration is in
`blizzard_core.settings.event_time_join_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from blizzard_core.settings.base import Settings
from blizzard_core.settings.durations import signed_micros, whole_millis

JoinType = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]
# The shorter words that Spark and SQL have for the same.
_SHORT = {
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "outer": "full_outer",
    "semi": "left_semi",
}


def _spelled_out(text: Any) -> Any:
    return _SHORT.get(text, text) if isinstance(text, str) else text


def _bound(text: str) -> str:
    return whole_millis(text, signed_micros(text))


Bound = Annotated[str, AfterValidator(_bound)]

# What the example configuration shows.
EXAMPLE = {"left": "main", "right": "erp", "on": ["user"]}


class JoinSettings(Settings):
    """Rows of two sources that belong together: the same ``on``, and times that are near enough.

    A row of ``right`` matches one of ``left`` if its time lies between that one's plus ``lower``
    and that one's plus ``upper``, both included; either may be below nothing (``-5 minutes``).
    Both are required, or rows would be kept for ever. A null in ``on`` matches nothing. Each pair
    is published once, with the batch that brings the later of the two; a row without a match by
    an outer join, once the watermark says that none will come.
    """

    left: str = Field(min_length=1, examples=["main"])
    """The source whose time `lower` and `upper` count from."""
    right: str = Field(min_length=1, examples=["erp"])
    """The other source of the pipeline."""
    type: Annotated[JoinType, BeforeValidator(_spelled_out)] = "inner"
    """Pairs; with rows of one side or both that have no match; or rows of left that have one."""
    on: list[str] = Field(min_length=1, examples=[["user"]])
    """Fields of both sides that have to be equal."""
    lower: Bound = Field(examples=["0 seconds"])
    """So long after that of the left row the right one's time is at least."""
    upper: Bound = Field(examples=["5 minutes"])
    """So long after that of the left row the right one's time is at most."""
    columns: dict[str, str] = Field(
        min_length=1, examples=[{"user": "main.user", "seen": "main.time", "done": "erp.time"}]
    )
    """Column of the table: source and field."""

    @property
    def lower_us(self) -> int:
        """The lower bound in microseconds."""
        return signed_micros(self.lower)

    @property
    def upper_us(self) -> int:
        """The upper bound in microseconds."""
        return signed_micros(self.upper)

    def taken(self, place: str) -> tuple[str, str] | None:
        """Source and field of ``web.id``; None if it begins with neither source."""
        # Names of sources may have dots, so of two that fit the longer one is meant.
        for source in sorted({self.left, self.right}, key=len, reverse=True):
            field = place.removeprefix(f"{source}.")
            if field not in {place, ""}:
                return source, field
        return None

    def fields(self) -> dict[str, set[str]]:
        """The fields of each source that are compared or published."""
        found = {self.left: set(self.on), self.right: set(self.on)}
        for source, field in self.placed(self.columns.values()):
            found[source].add(field)
        return found

    def placed(self, places: Iterable[str]) -> list[tuple[str, str]]:
        """Source and field of each that has them."""
        return [at for at in map(self.taken, places) if at is not None]
