"""Failures of servers and drivers, translated to the errors of `protocol`.

A foreign error is never passed on. Its text may contain a statement with values, a row's value or a
connection string, and printing a chain of causes would print all of it. So errors are translated
outside the handler, which leaves no chain. Only the first line of the text is kept, without quoted
data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from blizzard_core.errors import AccessDenied, BlizzardError, SourceError, Unavailable
from blizzard_core.redact import MASK, redacted

T = TypeVar("T")
FaultKind = Literal["refused", "denied", "unavailable"]

_ERRORS: dict[FaultKind, type[BlizzardError]] = {
    "refused": SourceError,
    "denied": AccessDenied,
    "unavailable": Unavailable,
}
# From the first of these on, a server's text quotes statements and is cut.
_QUOTES = re.compile(r"\n|Query was:|query: |, got |near '| at line \d|\. SQLSTATE")
_LEVEL = re.compile(r"^.*?\b(?:ERROR|FATAL|PANIC):\s+|^[A-Z_]+: ", re.DOTALL)
# Texts with a quoted value: 'invalid input syntax for type integer: "…"'.
_VALUE = re.compile(r"(: ?|value )(\".*\"|'.*')", re.DOTALL)


@dataclass(frozen=True)
class ServerLabel:
    """A server as people may see it, and secrets that no message may contain."""

    name: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def error(self, kind: FaultKind, text: str, *, quotes_data: bool = False) -> BlizzardError:
        """Return the error of that kind, with the server's own text as far as it may be shown."""
        message = _QUOTES.split(_LEVEL.sub("", text.strip(), count=1).strip(), maxsplit=1)[
            0
        ].strip()
        if quotes_data:
            message = _VALUE.sub("", message)
        for secret in self.secrets:
            message = message.replace(secret, MASK) if secret else message
        return _ERRORS[kind](f"{self.name}: {redacted(message) or 'it gave no reason'}")


ErrorTranslator = Callable[[BaseException], BlizzardError | None]


def guarded(call: Callable[[], T], translate: ErrorTranslator) -> T:
    """Return the call's result; translate its error with ``translate``, without a chain.

    ``translate`` returns None for an error that is not the driver's; that error passes unchanged.
    Drivers in Rust panic with errors that are no `Exception`, so everything is caught.
    """
    try:
        return call()
    except BaseException as error:
        translated = translate(error)
        if translated is None:
            raise
    raise translated


def guarded_each(items: Iterator[T], translate: ErrorTranslator) -> Iterator[T]:
    """Yield the items of the iterator, with errors translated as in `guarded`."""
    end = object()
    while True:
        item = guarded(lambda: next(items, end), translate)
        if item is end:
            return
        yield item  # type: ignore[misc]  # anything but the mark is an item
