"""The settings of connections: databases, lakes and APIs that sources of a pipeline read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from blizzard_core.settings.base import MINUTE, LookBack, Options, Seconds, Settings, check_kind

DatabaseDriver = Literal["postgresql", "sqlite", "mysql", "jdbc"]
LakeDriver = Literal["delta", "iceberg", "parquet", "csv", "json"]


class WithBackward(Settings):
    """A block with a look-back: how far below its watermark a source is read again."""

    backward: LookBack | None = Field(default=None, examples=["3d"])
    """What is read again below the watermark: `3d`, `months=1`, or with `closing_day=5` all of
    last month up to and with that day, later this month."""


class DatabaseConnectionSettings(WithBackward):
    """A database. ``uri`` is the driver's own, such as ``postgresql://reader@db:5432/shop``.

    ``user`` and ``password`` are put into it, so that a password needs no quoting there.
    The account should be able to read and nothing else; sessions are read-only anyway.
    """

    driver: DatabaseDriver = Field(examples=["postgresql"])
    """What reads it: docs/reference/tables.md."""
    uri: str = Field(min_length=1, examples=["postgresql://reader@db:5432/shop"])
    """Where it is; for sqlite a path, for jdbc a `jdbc:` URL."""
    user: str | None = Field(default=None, examples=["reader"])
    """By default the one in `uri`."""
    password: str | None = Field(default=None, repr=False, examples=["${PGPASSWORD:-}"])
    """By default the one in `uri`."""
    options: Options = Field(default_factory=dict, repr=False, examples=[{"sslmode": "require"}])
    """The driver's own; for jdbc those of `spark.read.jdbc`."""

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options of whatever reads it, with the account."""
        account = {"user": self.user, "password": self.password}
        return {**self.options, **{k: v for k, v in account.items() if v is not None}}


class LakeConnectionSettings(WithBackward):
    """A folder of tables or files. A source's ``table`` is a path below ``uri``."""

    driver: LakeDriver = Field(examples=["delta"])
    """The format."""
    uri: str = Field(min_length=1, examples=["s3://lake/tables"])
    """The folder; for iceberg the catalog's address."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """For the store; what is not given comes from its standard credential chain."""
    options: Options = Field(default_factory=dict, repr=False, examples=[{"warehouse": "main"}])
    """The format's own: the catalog's properties for iceberg, the dialect for csv."""

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options of whatever reads it, with those of the store."""
        return {**self.options, "storage_options": dict(self.storage_options)}


class AuthAdvanced(Settings):
    """Settings that few token servers need."""

    scope: str | None = Field(default=None, examples=["orders.read"])
    """oauth2_client_credentials."""
    audience: str | None = Field(default=None, examples=["https://api.example.com"])
    """oauth2_client_credentials."""
    send_as: Literal["basic", "form"] = "basic"
    """oauth2_client_credentials: how the client shows itself at `token_url`."""


class AuthSettings(Settings):
    """Credentials for an API.

    ``bearer`` sends ``token``, ``basic`` ``username`` and ``password``, ``api_key`` its ``value``
    under ``name`` in a header or a parameter; ``oauth2_client_credentials`` gets its
    tokens from ``token_url``. Nothing of it is ever sent to another host.
    """

    kind: Literal["bearer", "basic", "api_key", "oauth2_client_credentials"] = Field(
        examples=["bearer"]
    )
    """What is sent."""
    token: str | None = Field(default=None, repr=False, examples=["${CRM_TOKEN:-}"])
    """bearer."""
    username: str | None = Field(default=None, examples=["reader"])
    """basic."""
    password: str | None = Field(default=None, repr=False, examples=["${CRM_PASSWORD:-}"])
    """basic."""
    name: str | None = Field(default=None, examples=["X-Api-Key"])
    """api_key: of the header or parameter."""
    value: str | None = Field(default=None, repr=False, examples=["${CRM_KEY:-}"])
    """api_key."""
    location: Literal["header", "query"] = Field(default="header", alias="in")
    """api_key: where it stands."""
    token_url: str | None = Field(default=None, examples=["https://login.example.com/token"])
    """oauth2_client_credentials."""
    client_id: str | None = Field(default=None, examples=["blizzard"])
    """oauth2_client_credentials."""
    client_secret: str | None = Field(default=None, repr=False, examples=["${CRM_SECRET:-}"])
    """oauth2_client_credentials."""
    advanced: AuthAdvanced = AuthAdvanced()
    """What few have to set."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        check_kind(self, self.kind, _AUTH)
        return self


_AUTH: Mapping[str, tuple[str, ...]] = {
    "bearer": ("token",),
    "basic": ("username", "password"),
    "api_key": ("name", "value"),
    "oauth2_client_credentials": ("token_url", "client_id", "client_secret"),
}


class HttpAdvanced(Settings):
    """Time limits of answers, and the hosts of pages."""

    timeout: Seconds = Field(default=MINUTE, gt=0)
    """For one answer, to its last byte."""
    allowed_hosts: list[str] = Field(default_factory=list, examples=[["files.example.com"]])
    """Where pages may lie besides the host of `base_url`."""


class HttpConnectionSettings(WithBackward):
    """An API. A source's ``request.path`` is below ``base_url``.

    Credentials and headers are sent to its host alone, and pages are followed to other
    hosts only where ``allowed_hosts`` names them.
    """

    driver: Literal["http"] = Field(examples=["http"])
    """JSON over HTTP."""
    base_url: str = Field(pattern=r"^https?://[^/?#]+", examples=["https://api.example.com/v2"])
    """What paths are below."""
    auth: AuthSettings | None = Field(
        default=None, examples=[{"kind": "bearer", "token": "${CRM_TOKEN:-}"}]
    )
    """Who asks; nobody without it."""
    headers: Options = Field(default_factory=dict, repr=False, examples=[{"Accept-Language": "en"}])
    """Sent with each request."""
    advanced: HttpAdvanced = HttpAdvanced()
    """What few have to set."""


def _family(data: Any) -> str:
    driver = data.get("driver") if isinstance(data, dict) else getattr(data, "driver", None)
    if driver == "http":
        return "http"
    return "lake" if driver in LakeDriver.__args__ else "database"  # type: ignore[attr-defined]  # a Literal has them


ConnectionSettings: TypeAlias = Annotated[
    Annotated[DatabaseConnectionSettings, Tag("database")]
    | Annotated[LakeConnectionSettings, Tag("lake")]
    | Annotated[HttpConnectionSettings, Tag("http")],
    Discriminator(_family),
]
