"""Times in ISO text: read, moved and written without changing their form.

A text column is compared as text, so a bound must look like its values. ``T`` sorts above a space,
so a bound in the other form would skip the rest of a day. The text after the seconds (fraction,
zone) stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_FORM = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:([T ])(\d{2}:\d{2}(?::\d{2})?)((?<=:\d{2}:\d{2})\.\d{1,9})?"
    r"(Z|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class IsoText:
    """An ISO text, in parts. ``separator`` and ``clock`` are empty for a date.

    ``wall`` is date and time of day as written, without the fraction.
    """

    wall: datetime
    separator: str
    clock: str
    fraction: str
    zone: str

    @classmethod
    def of(cls, text: str) -> IsoText | None:
        """Return the text's parts, or None if it is no ISO date or time.

        Digits alone are a number.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        day, separator, clock, fraction, zone = (part or "" for part in match.groups())
        try:
            wall = datetime.fromisoformat(f"{day}T{clock}" if clock else day)
            form = cls(wall, separator, clock, fraction, zone)
            form.moment()
        except (ValueError, OverflowError):
            return None
        return form

    @property
    def is_date(self) -> bool:
        """Return whether it has no time of day."""
        return not self.separator

    @property
    def offset(self) -> timedelta:
        """Return how far its wall time is ahead of UTC; nothing if it names no zone."""
        if self.zone in {"", "Z"}:
            return timedelta()
        digits = self.zone[1:].replace(":", "").ljust(4, "0")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return -ahead if self.zone[0] == "-" else ahead

    def moment(self) -> datetime:
        """Return the instant in UTC, its fraction cut to microseconds."""
        micros = int(self.fraction[1:7].ljust(6, "0")) if self.fraction else 0
        return (self.wall.replace(microsecond=micros) - self.offset).replace(tzinfo=UTC)

    def value(self) -> datetime:
        """Return the same as `moment`, but without a zone if the text has none."""
        return self.moment() if self.zone else self.moment().replace(tzinfo=None)

    def at_wall(self, wall: datetime) -> str:
        """Return the text for another wall time (whole seconds) with the same fraction and zone."""
        day = wall.date().isoformat()
        if self.is_date:
            return day
        precision = "seconds" if self.clock.count(":") == 2 else "minutes"
        clock = wall.time().isoformat(precision)
        return f"{day}{self.separator}{clock}{self.fraction}{self.zone}"

    def at_moment(self, moment: datetime) -> str:
        """Return the text for another instant (UTC), with the same number of digits."""
        try:
            wall = moment.replace(tzinfo=None) + self.offset
        except OverflowError:
            wall = datetime.min  # noqa: DTZ901  # a wall time has no zone
        digits = len(self.fraction)
        fraction = f".{wall.microsecond:06d}000"[:digits] if digits else ""
        other = IsoText(wall, self.separator, self.clock, fraction, self.zone)
        return other.at_wall(wall)
