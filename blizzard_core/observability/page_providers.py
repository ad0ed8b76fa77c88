"""Parts of a page besides the daemon's own view; each daemon gives what it has.

*Beside* is what the other daemon has written down of the same table, *past* is a target's history;
both are in the store, so they outlive every process. *Story* is what became of one file.
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
    """A command line to copy, whole and safe to paste, and ``why`` one would."""

    why: str
    command: str


def no_notices(_brief: Document, _beside: CachedDocument) -> Sequence[Notice]:
    """Nothing follows."""
    return ()


def no_commands(_brief: Document) -> Sequence[Command]:
    """Nothing to run."""
    return ()


@dataclass(frozen=True, slots=True)
class PageProviders:
    """The providers of a status page, each of which may be missing.

    ``beside`` and ``past`` have the names of targets as keys, ``story`` URIs. ``notices`` says
    what follows from a target's brief and what is beside it, ``commands`` what helps a target.
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
