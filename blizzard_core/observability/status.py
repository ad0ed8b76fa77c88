"""A daemon's view of itself: the status document, health, readiness.

The document is ``/status.json``; the status page is drawn from it and from its parts. Foreign text
in it is escaped as for a terminal, so a name cannot reorder or hide the text beside it.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from blizzard_core.observability.activity import Activity
from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.health import HealthReport, alive, ready
from blizzard_core.observability.metrics import BUILD
from blizzard_core.observability.notices import Notice, worst
from blizzard_core.observability.page_file import page_id
from blizzard_core.observability.posts import Posts, Recipient
from blizzard_core.text import printable

DISTRIBUTION = "blizzard-penguin"

# The keys of the other daemon's state in an overview.
_BRIEF_PEER_KEYS = (
    "name",
    "life",
    "version",
    "rows",
    "updated",
    "saved",
    "in_flight",
    "blocked_groups",
    "odd",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A complete command line that is safe to paste, and the reason to run it."""

    why: str
    command: str


@dataclass(frozen=True, slots=True)
class PageProviders:
    """The optional parts of a status page; each daemon supplies what it has.

    ``peer`` is the state that the other daemon saved for the same table, ``history`` a target's
    past; both have names of targets as keys. They are read from the store, so they outlive every
    process. ``story`` explains the file of a URI. ``notices`` derives notices from a target's
    overview and its peer state; ``commands`` suggests commands for a target.
    """

    peer: BackgroundCache | None = None
    history: BackgroundCache | None = None
    story: BackgroundCache | None = None
    notices: Callable[[Mapping[str, Any], CachedDocument], Sequence[Notice]] = (
        lambda _brief, _peer: ()
    )
    commands: Callable[[Mapping[str, Any]], Iterable[Command]] = lambda _target: ()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Run the threads of the caches while the block runs."""
        with ExitStack() as threads:
            for cache in (self.peer, self.history, self.story):
                if cache is not None:
                    threads.enter_context(cache.working())
            yield


class Panel:
    """All targets of one daemon and its page providers; ``clock`` gives epoch seconds.

    ``penguin_page`` is the address of Penguin's page if this one shows it, too. ``recipients``
    take what is posted to ``/notify``.
    """

    def __init__(
        self,
        daemon: str,
        activities: Sequence[Activity],
        clock: Callable[[], float],
        providers: PageProviders = PageProviders(),
        penguin_page: str | None = None,
        recipients: Sequence[Recipient] = (),
    ) -> None:
        self._activities = tuple(activities)
        self._clock = clock
        self._started = clock()
        self._build = {
            "daemon": daemon,
            "version": version(DISTRIBUTION),
            "python": platform.python_version(),
        }
        self._page = page_id()
        self.providers = providers
        self.penguin_page = penguin_page
        self.posts = Posts(recipients) if recipients else None
        BUILD.info(self._build)

    def alive(self) -> HealthReport:
        """Return whether the loops turn; see `blizzard_core.observability.health`."""
        return alive(tuple(a.pulse for a in self._activities), self._clock())

    def ready(self) -> HealthReport:
        """Return whether the loops do their work."""
        return ready(tuple(a.pulse for a in self._activities), self._clock())

    def to_json(self) -> dict[str, Any]:
        """Return the status document: plain data without NaN, foreign text escaped."""
        return self._document([activity.to_json() for activity in self._activities])

    def overview(self) -> dict[str, Any]:
        """Return `to_json` with less detail per target, plus the state of the other daemon."""
        return self._document([self._add_peer(a.brief(), whole=False) for a in self._activities])

    def target(self, name: str) -> dict[str, Any] | None:
        """Return one target's status with helpful commands; None if there is no such target."""
        found = self._named(name)
        if found is None:
            return None
        document = self._add_peer(found.to_json(), whole=True)
        commands = [asdict(command) for command in self.providers.commands(document)]
        return self._document([{**document, "commands": commands}])

    def past(self, name: str) -> dict[str, Any] | None:
        """Return a target's history as far as it was read; None if there is none."""
        if self._named(name) is None or self.providers.history is None:
            return None
        found: dict[str, Any] = escaped(self.providers.history.ask(name).to_json())
        return found

    def story(self, uri: str) -> dict[str, Any] | None:
        """Return the story of a file as far as it is known. Raises `Busy`."""
        if self.providers.story is None:
            return None
        found: dict[str, Any] = escaped(self.providers.story.ask(uri).to_json())
        return found

    def _named(self, name: str) -> Activity | None:
        return next((each for each in self._activities if each.name == name), None)

    def _add_peer(self, document: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        if self.providers.peer is None:
            return document
        cached = self.providers.peer.ask(document["name"])
        more = self.providers.notices(document, cached)
        if more:
            notices = [*document["notices"], *map(asdict, more)]
            level = worst([Notice(each["level"], "") for each in notices])
            document = {**document, "notices": notices, "level": level}
        peer_document = cached.to_json()
        if not whole and cached.document is not None:
            peer_document["document"] = [
                {k: each[k] for k in _BRIEF_PEER_KEYS} for each in cached.document
            ]
        return {**document, "beside": peer_document}

    def _document(self, targets: list[dict[str, Any]]) -> dict[str, Any]:
        document: dict[str, Any] = escaped(
            {
                **self._build,
                "page": self._page,
                "now": self._clock(),
                "started": self._started,
                "health": self.alive().to_json(),
                "readiness": self.ready().to_json(),
                "tables_too": self.penguin_page is not None,
                "stories": self.providers.story is not None,
                "targets": targets,
            }
        )
        return document


def escaped(value: Any) -> Any:
    """Return plain data with printable text and finite numbers."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {printable(str(key)): escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escaped(item) for item in value]
    return value
