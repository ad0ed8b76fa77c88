"""The receivers of a daemon: one for each queue, shared by all sources that name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import WEBHOOK, NotificationSettings
from blizzard_core.threads import in_background
from blizzard_py.sources.context import SourceContext

if TYPE_CHECKING:
    # Most sources have no notifications.
    from blizzard_core.notifications.inbox import HintInbox
    from blizzard_core.notifications.protocol import Queue
    from blizzard_core.notifications.receiver import Receiver
    from blizzard_core.notifications.webhook import WebhookQueue


# How long an end waits for the receivers.
_STOP_SECS = 2.0


def with_inbox(parts: SourceContext) -> SourceContext:
    """Return the parts with an inbox, if the source has notifications and reads them."""
    source = parts.source.as_files
    if source is None or source.notifications is None or parts.once or parts.members:
        return parts
    from blizzard_core.notifications.inbox import HintInbox  # noqa: PLC0415  # see above

    if parts.activity is None:
        return replace(parts, hints=HintInbox(source.uri, parts.monotonic))
    view = parts.activity.notifications
    inbox = HintInbox(source.uri, parts.monotonic, view.hinted)
    view.show(inbox)
    return replace(parts, hints=inbox)


class Notifications:
    """The queues of sources, and the threads that read them."""

    def __init__(self, sources: Sequence[SourceContext]) -> None:
        """Open nothing: a thread opens its queue when it begins to read."""
        self.webhooks: list[WebhookQueue] = []
        self._receivers: list[Receiver] = []
        if not sources:
            return
        from blizzard_core.notifications.receiver import (  # noqa: PLC0415  # see above
            Receiver,
            open_queue,
        )
        from blizzard_core.notifications.webhook import WebhookQueue  # noqa: PLC0415  # see above

        for settings, source, inboxes in _by_queue(sources):
            if settings.uri == WEBHOOK:
                queue = WebhookQueue(settings.token or "")
                self.webhooks.append(queue)
                opens = partial(_same, queue)
            else:
                opens = partial(open_queue, settings.uri, source.uri, source.storage_options)
            owns = settings.advanced.foreign == "delete" or settings.uri == WEBHOOK
            self._receivers.append(Receiver(settings.uri, opens, inboxes, owns_queue=owns))

    def receiving(self) -> AbstractContextManager[None]:
        """Return the threads, which run while it is entered."""
        if not self._receivers:
            return nullcontext()
        runs = [receiver.run for receiver in self._receivers]
        return in_background("notifications", *runs, secs=_STOP_SECS)


def _by_queue(
    sources: Sequence[SourceContext],
) -> Iterator[tuple[NotificationSettings, SourceSettings, list[HintInbox]]]:
    found: dict[
        tuple[str, str | None], tuple[NotificationSettings, SourceSettings, list[HintInbox]]
    ] = {}
    for parts in sources:
        settings = parts.files.notifications
        if settings is not None and parts.hints is not None:
            same = found.setdefault((settings.uri, settings.token), (settings, parts.files, []))
            same[2].append(parts.hints)
    yield from found.values()


def _same(queue: Queue) -> Queue:
    return queue
