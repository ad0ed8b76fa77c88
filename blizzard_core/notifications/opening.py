"""Opening of a queue by its URI. Drivers are imported when one is needed."""

from __future__ import annotations

import os

from blizzard_core.notifications.protocol import Queue
from blizzard_core.settings.queue_uri import kind_of, subscription_of
from blizzard_core.storage.environment import completed
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import StorageOptions


def open_queue(uri: str, source_uri: str, options: StorageOptions) -> Queue:
    """Return the queue of a source, by the ``options`` of its store. Sends no request.

    Raises `QueueError` without usable credentials.
    """
    given = completed(scheme_of(source_uri), options, os.environ)
    kind = kind_of(uri, source_uri)
    if kind == "azure":
        from blizzard_core.notifications.azure_queue import AzureQueue  # noqa: PLC0415  # as above

        return AzureQueue(uri, given)
    if kind == "pubsub":
        from blizzard_core.notifications.pubsub import PubSubQueue  # noqa: PLC0415  # as above

        return PubSubQueue(subscription_of(uri), given, os.environ)
    from blizzard_core.notifications.sqs import SqsQueue  # noqa: PLC0415  # see the docstring

    return SqsQueue(uri, given)
