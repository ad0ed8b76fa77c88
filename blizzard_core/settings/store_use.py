"""Settings of a source's use of its store: budgets of LIST requests, queues, cleaning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from blizzard_core.settings.base import DAY, MIN_TOKEN, Seconds, Settings, Uri, format_seconds
from blizzard_core.storage.environment import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from blizzard_core.storage.opening import scheme_of

# The share of a budget that frequent scans of few ranges get; complete scans get the rest.
HOT_SHARE = 0.7
# A complete scan must be paid in this time, unless the time between them is configured.
LONGEST_SECS = 6 * 3600.0
# Of a month of 30 days.
MONTH_HOURS = 720
_COST = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) *(?:([A-Za-z]{3}) */ *month|requests? */ *hour)", re.IGNORECASE
)


def _parts(text: str) -> tuple[float, str]:
    """Return the amount and its currency, "" for requests of an hour. Raises `ValueError`."""
    found = _COST.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(
            "must be an amount above 0, a currency and /month, such as 5 USD/month, or requests,"
            " such as 1400 requests/hour"
        )
    return float(found[1]), (found[2] or "").upper()


def _cost(text: str) -> str:
    _parts(text)
    return text


ListCost = Annotated[str, AfterValidator(_cost)]


def currency_of(text: str) -> str:
    """Return the currency of a cost, "" if it is a number of requests."""
    return _parts(text)[1]


def budget_of(text: str, price: float) -> float:
    """Return the requests of an hour that a cost pays; ``price`` is that of 1,000."""
    amount, currency = _parts(text)
    return amount / price * 1000 / MONTH_HOURS if currency else amount


def cost_of(lists_per_hour: float, price: float) -> float:
    """Return the cost of a month; ``price`` is that of 1,000 requests."""
    return lists_per_hour * MONTH_HOURS * price / 1000


def least_budget(ranges: int, interval: float | None) -> int:
    """Return the least budget, as requests of an hour, that pays complete scans of so many ranges.

    ``interval`` is the configured time between them in seconds; then they get the larger share.
    The hour of a complete scan also pays for frequent scans of one range.
    """
    secs, share = (LONGEST_SECS, 1 - HOT_SHARE) if interval is None else (interval, HOT_SHARE)
    needed = 3600 * ranges / (secs * share)
    # A request a range is left over, or half of a small budget; other scans get a part of that.
    beside = HOT_SHARE / 2 if interval is None else 1 / 2
    least = (ranges + 1) / (1 - beside)
    return math.ceil(max(least, min(2 * needed, needed + ranges + 1)))


QueueKind: TypeAlias = Literal["sqs", "pubsub", "azure", "webhook"]

WEBHOOK = "webhook:"
_PUBSUB = re.compile(r"pubsub://projects/([^/]+)/subscriptions/([^/]+)")
_AZURE_HOST = re.compile(r"\.queue\.")
_STORES: dict[QueueKind, frozenset[str]] = {
    "sqs": S3_SCHEMES,
    "pubsub": GCS_SCHEMES,
    "azure": AZURE_SCHEMES,
}
_FORMS = (
    "must be https://sqs.REGION.amazonaws.com/ACCOUNT/NAME,"
    " pubsub://projects/PROJECT/subscriptions/NAME,"
    " https://ACCOUNT.queue.core.windows.net/NAME, or webhook:"
)


def check_queue_uri(uri: str) -> str:
    """Return the one spelling of the URI: sources that name a queue in two would be two readers.

    Raises `ValueError`, without quoting it.
    """
    if uri == WEBHOOK or _PUBSUB.fullmatch(uri):
        return uri
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.count("/") < 1:
        raise ValueError(_FORMS)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must not carry credentials; the source's storage_options have them")
    if len(parts.path) < 2 or parts.path.endswith("/"):
        raise ValueError(_FORMS)
    host = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80")
    return f"{parts.scheme}://{host}{parts.path}"


def kind_of(uri: str, source_uri: str) -> QueueKind:
    """Return the kind of a valid URI.

    An address of an emulator does not tell; then the source's store decides.
    """
    if uri == WEBHOOK:
        return "webhook"
    if uri.startswith("pubsub:"):
        return "pubsub"
    host = urlsplit(uri).hostname or ""
    if "amazonaws." in host:
        return "sqs"
    if _AZURE_HOST.search(host):
        return "azure"
    return "azure" if scheme_of(source_uri) in AZURE_SCHEMES else "sqs"


def queue_problems(uri: str, source_uri: str) -> Iterator[str]:
    """Yield the reasons why a source cannot use a queue of a valid URI."""
    kind = kind_of(uri, source_uri)
    if kind == "sqs" and uri.endswith(".fifo"):
        yield "is a FIFO queue, which S3 sends no notifications to; use a standard queue"
    stores = _STORES.get(kind)
    if stores is not None and scheme_of(source_uri) not in stores:
        names = ", ".join(sorted(stores))
        yield f"is a queue for stores of {names}; use the queue of the source's store, or webhook:"


def subscription_of(uri: str) -> str:
    """Return the full name of a Pub/Sub subscription."""
    return uri.removeprefix("pubsub://")


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


# The least `after`: a deleted file does not come back, an archived one does. A tagged file has to
# wait for the lifecycle rule as well.
_LEAST = {"archive": DAY, "delete": 7 * DAY, "tag": DAY}
# One tag is enough: a rule of a bucket can name a prefix and an age beside it.
_TAG = "blizzard=ingested"
_DISK = ""


class CleanSettings(Settings):
    """Archive, delete or tag source files once their rows have been in the table for some time."""

    mode: Literal["archive", "delete", "tag"] = Field(examples=["archive"])
    """Copy files to the archive and remove them, only remove them, or tag them
    `blizzard=ingested` for a rule of the bucket (Google Cloud Storage: `customTime`)."""
    after: Seconds = Field(default=30 * DAY)
    """Time since the rows were seen in the table; at least 7d to delete, 1d to archive or tag."""
    archive_uri: Uri | None = Field(default=None, examples=["s3://archive/events"])
    """Directory for the copies, in the same kind of store, with the source's `storage_options`."""
    dry_run: bool = True
    """Touch no file, and report the number of files that would be cleaned. By false you confirm
    that nothing else reads these files, or that it needs none this old."""

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        least = _LEAST[self.mode]
        if self.after < least:
            raise ValueError(
                f"after must be at least {format_seconds(least)} with mode: {self.mode}"
            )
        if (self.archive_uri is None) == (self.mode == "archive"):
            raise ValueError("give archive_uri with mode: archive, and only then")
        return self

    @property
    def put_tag(self) -> str:
        """The tag that files get; empty if they are removed."""
        return _TAG if self.mode == "tag" else ""


def clean_problem(uri: str, clean: CleanSettings) -> str | None:
    """Return why a source at this URI cannot be cleaned so; None if it can."""
    scheme = scheme_of(uri)
    if clean.put_tag and _kind(scheme) == _DISK:
        return (
            "clean.mode: tag is not for local disks, whose files have no tags; use archive or"
            " delete"
        )
    if clean.archive_uri is not None and _kind(scheme_of(clean.archive_uri)) != _kind(scheme):
        return (
            "clean.archive_uri must be in the same kind of store as the source, whose"
            " storage_options open it"
        )
    return None


def _kind(scheme: str) -> str:
    """Return one name for all spellings of a kind of store."""
    same = (frozenset({_DISK, "file"}), S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES)
    return next((min(kind) for kind in same if scheme in kind), scheme)
