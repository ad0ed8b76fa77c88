"""Uploads end, whatever a store does. The bound that the stores' clients lack.

All of them go by aiohttp, whose time-out between bytes begins when the last byte of a request was
sent. A store that takes no more of a body, or does not say whether it may be sent at all (S3's
``100 Continue``), would be waited for without end, and with it whoever holds a save.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from blizzard_core.storage.objects import Patience

T = TypeVar("T")

# What is slower does not go on: 13 minutes for a part of 50 MiB.
SLOWEST_BYTES_A_SEC = 64 << 10


async def bounded(sending: Awaitable[T], size: int, patience: Patience) -> T:
    """What an upload of so many bytes answers. Raises `TimeoutError` if it takes too long."""
    limit_secs = patience.connect_secs + patience.read_secs + size / SLOWEST_BYTES_A_SEC
    return await asyncio.wait_for(sending, limit_secs)
