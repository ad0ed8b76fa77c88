"""Watermarks kept by somebody else: any object with two methods, which only see text.

That such a provider never touches a time is the reference's contract: it stores what it is
given and gives it back.
"""

from __future__ import annotations

from typing import Any, Protocol

from blizzard_core.errors import WatermarkError
from blizzard_py.columns.compare import Watermark
from blizzard_py.columns.notation import serialize, stored


class Provider(Protocol):
    """Keeps one text for each id."""

    def get_watermark(self, id: str, /) -> str | None:  # noqa: A002  # the reference's name
        """The text that was kept; None if there is none."""

    def update_watermark(self, id: str, text: str, /, **ids: Any) -> Any:  # noqa: A002  # as above
        """Keep the text. ``ids`` tell what wrote it: `job_id` and `dataflow_run_id` at least."""


def load(provider: Provider, id: str) -> dict[str, Any] | None:  # noqa: A002  # the documented name
    """The stored watermark; None if nothing is stored.

    Raises `WatermarkError` for whatever the provider raises, and if the text cannot be read.
    """
    try:
        return stored(provider.get_watermark(id))
    except WatermarkError:
        raise
    except Exception as error:  # anything: the provider is foreign code
        raise WatermarkError(f"Failed to load watermark {id!r}: {error}") from error


def save(
    provider: Provider,
    id: str,  # noqa: A002  # as above
    wm: Watermark | None,
    *,
    job_id: Any = None,
    dataflow_run_id: Any = None,
    **ids: Any,
) -> None:
    """Have the provider keep the watermark. All ids are handed on to it, those that are None too.

    Raises `WatermarkError` for whatever the provider raises, and, before it is asked, if the
    watermark cannot be written.
    """
    text = serialize(wm)
    try:
        provider.update_watermark(id, text, job_id=job_id, dataflow_run_id=dataflow_run_id, **ids)
    except WatermarkError:
        raise
    except Exception as error:  # anything: the provider is foreign code
        raise WatermarkError(f"Failed to save watermark {id!r}: {error}") from error
