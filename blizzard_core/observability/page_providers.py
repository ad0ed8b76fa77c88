"""Providers of the status page's optional parts; each daemon supplies what it has.

*Peer* is the state that the other daemon saved for the same table. *History* is a target's past.
Both are read from the store, so they outlive every process. *Story* explains one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.notices import Notice

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A complete command line that is safe to paste, and the reason to run it."""

    why: str
    command: str


def no_notices(_brief: Document, _beside: CachedDocument) -> Sequence[Notice]:
    """Return no notices."""
    return ()


def no_commands(_brief: Document) -> Sequence[Command]:
    """Return no commands."""
    return ()


@dataclass(frozen=True, slots=True)
class PageProviders:
    """The providers of a status page, each of which may be missing.

    ``peer`` and ``history`` have names of targets as keys, ``story`` has URIs. ``notices`` derives
    notices from a target's overview and its peer state; ``commands`` suggests commands for a
    target.
    """

    peer: BackgroundCache | None = None
    history: BackgroundCache | None = None
    story: BackgroundCache | None = None
    notices: Callable[[Document, CachedDocument], Sequence[Notice]] = no_notices
    commands: Callable[[Document], Sequence[Command]] = no_commands

    @contextmanager
    def open(self) -> Iterator[None]:
        """Run the threads of the caches while the block runs."""
        with ExitStack() as threads:
            for lookups in (self.peer, self.history, self.story):
                if lookups is not None:
                    threads.enter_context(lookups.working())
            yield

    def commands_for(self, brief: Document) -> list[dict[str, Any]]:
        """Return the commands that help a target."""
        return [asdict(command) for command in self.commands(brief)]


NO_PROVIDERS = PageProviders()
