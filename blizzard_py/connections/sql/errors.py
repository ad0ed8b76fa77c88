"""Failures of servers and drivers, as the errors of the contract.

A foreign error never travels: its text may hold a statement with values in it, a row's value
or a connection string, and whoever prints a chain of causes would print all of it. So errors
are translated outside the handler, which leaves no chain, and only the first line of the
text is kept, without what was quoted from data.
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
# What is told of a server's text: from the first of these on it quotes statements.
_QUOTES = re.compile(r"\n|Query was:|query: |, got |near '| at line \d|\. SQLSTATE")
_LEVEL = re.compile(r"^.*?\b(?:ERROR|FATAL|PANIC):\s+|^[A-Z_]+: ", re.DOTALL)
# Texts that quote a value: 'invalid input syntax for type integer: "…"'.
_VALUE = re.compile(r"(: ?|value )(\".*\"|'.*')", re.DOTALL)


@dataclass(frozen=True)
class ServerLabel:
    """A server as people may see it, and the words that no message may hold."""

    name: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def error(self, kind: FaultKind, text: str, *, quotes_data: bool = False) -> BlizzardError:
        """The error of that kind, with the server's own words as far as they can be told."""
        said = _QUOTES.split(_LEVEL.sub("", text.strip(), count=1).strip(), maxsplit=1)[0].strip()
        if quotes_data:
            said = _VALUE.sub("", said)
        for secret in self.secrets:
            said = said.replace(secret, MASK) if secret else said
        return _ERRORS[kind](f"{self.name}: {redacted(said) or 'it gave no reason'}")


ErrorTranslator = Callable[[BaseException], BlizzardError | None]


def guarded(call: Callable[[], T], translate: ErrorTranslator) -> T:
    """The call's result; its error as ``translate`` translates it, without a chain.

    ``translate`` gives None for what is not a driver's: that passes as it is. Drivers in Rust
    panic with what is no `Exception`, so everything is caught.
    """
    try:
        return call()
    except BaseException as error:
        translated = translate(error)
        if translated is None:
            raise
    raise translated


def guarded_each(items: Iterator[T], translate: ErrorTranslator) -> Iterator[T]:
    """Return what the iterator yields, its errors translated likewise."""
    end = object()
    while True:
        item = guarded(lambda: next(items, end), translate)
        if item is end:
            return
        yield item  # type: ignore[misc]  # anything but the mark is an item
