"""Opening of a queue by its URI. Drivers are imported when one is needed."""

from __future__ import annotations

import os

from blizzard_core.notifications.protocol import Queue
from blizzard_core.storage.environment import completed
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import StorageOptions


def open_queue(uri: str, source_uri: str, options: StorageOptions) -> Queue:
    """Return the queue of a source, by the ``options`` of its store. Sends no request.

    Raises `QueueError` without usable credentials.
    """
    given = completed(scheme_of(source_uri), options, os.environ)
    from blizzard_core.notifications.sqs import SqsQueue  # noqa: PLC0415  # see the docstring

    return SqsQueue(uri, given)
