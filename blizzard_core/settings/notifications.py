"""Settings of a source's notifications."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from blizzard_core.settings.base import DAY, MIN_TOKEN, Seconds, Settings
from blizzard_core.settings.queue_uri import WEBHOOK, check_queue_uri

# The time between complete scans of a source with notifications; without a watermark each costs
# a LIST for a thousand files stored.
FULL_SCAN_SECS = 3600.0
FULL_SCAN_SECS_WITHOUT_WATERMARK = DAY


class NotificationAdvanced(Settings):
    """Pace of scans, and messages of others."""

    pause: Seconds = Field(default=10, ge=0)
    """Least time between the beginnings of two scans."""
    foreign: Literal["leave", "delete"] = "leave"
    """Messages about other places: leave them in the queue, or delete them if the queue is only
    this daemon's."""


class NotificationSettings(Settings):
    """Messages of the store that say where a new file is."""

    uri: Annotated[str, AfterValidator(check_queue_uri)] = Field(
        examples=["https://sqs.eu-central-1.amazonaws.com/123456789012/events"]
    )
    """A queue of SQS, Pub/Sub or Azure Storage, or `webhook:` for `POST /notify` on
    `metrics.address`."""
    token: str | None = Field(
        default=None, min_length=MIN_TOKEN, repr=False, examples=["${file:/run/secrets/notify}"]
    )
    """The bearer token of requests to a webhook."""
    advanced: NotificationAdvanced = Field(default_factory=NotificationAdvanced)
    """Rarely needed."""

    @model_validator(mode="after")
    def _webhook_has_token(self) -> Self:
        if self.uri == WEBHOOK and self.token is None:
            raise ValueError(
                "webhook: needs token: without it anybody who reaches the address could send"
                " messages"
            )
        if self.uri != WEBHOOK and self.token is not None:
            raise ValueError("token is for webhook:; a queue takes the source's storage_options")
        return self
