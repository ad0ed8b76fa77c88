"""Settings of connections to databases, lakes and APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias
from urllib.parse import unquote

from pydantic import Discriminator, Field, Tag, model_validator

from blizzard_core.settings.base import MINUTE, LookBack, Options, Seconds, Settings, check_kind

DatabaseDriver = Literal["postgresql", "sqlite", "mysql", "jdbc"]
LakeDriver = Literal["delta", "iceberg", "parquet", "csv", "json", "avro", "orc", "xml", "excel"]
BoundKind = Literal["settled", "clock", "version", "max", "rows"]

# The read bounds of each driver; docs/reference/tables.md says what each can miss.
_DATABASE_BOUNDS: Mapping[DatabaseDriver, tuple[BoundKind, ...]] = {
    "postgresql": ("settled", "clock", "max"),
    "sqlite": ("clock", "max"),
    "mysql": ("clock", "max"),
    "jdbc": ("clock", "max"),
}
_LAKE_BOUNDS: Mapping[LakeDriver, tuple[BoundKind, ...]] = {
    "delta": ("version", "max", "clock"),
    "iceberg": ("version", "max", "clock"),
    "parquet": ("max", "rows", "clock"),
    **dict.fromkeys(("csv", "json", "avro", "orc", "xml", "excel"), ("rows",)),
}
# The formats of drivers that read files of a folder, the default first.
_LAKE_FORMATS: Mapping[LakeDriver, tuple[str, ...]] = {
    "csv": ("csv",),
    "json": ("ndjson", "json"),
    "avro": ("avro",),
    "orc": ("orc",),
    "xml": ("xml",),
    "excel": ("excel",),
    "parquet": ("parquet",),
}


class WithBackward(Settings):
    """A block with a look-back below the watermark."""

    backward: LookBack | None = Field(default=None, examples=["3d"])
    """Re-read this far: `3d`, `months=1`; with `closing_day=5` all of last month until the 5th."""


class DatabaseConnectionSettings(WithBackward):
    """A database. Use an account that can only read; sessions are read-only as well."""

    driver: DatabaseDriver = Field(examples=["postgresql"])
    """See docs/reference/tables.md."""
    uri: str = Field(min_length=1, examples=["postgresql://reader@db:5432/shop"])
    """The driver's own URI; for sqlite a path, for jdbc a `jdbc:` URL."""
    user: str | None = Field(default=None, examples=["reader"])
    """Default: the one in `uri`."""
    password: str | None = Field(default=None, repr=False, examples=["${PGPASSWORD:-}"])
    """Default: the one in `uri`; needs no quoting here."""
    options: Options = Field(default_factory=dict, repr=False, examples=[{"sslmode": "require"}])
    """The driver's options; for jdbc those of `spark.read.jdbc`."""

    source_kind: ClassVar[str] = "table"
    formats: ClassVar[tuple[str, ...]] = ()
    has_queries: ClassVar[bool] = True
    needs_split_column: ClassVar[bool] = True
    storage_options: ClassVar[Mapping[str, str]] = {}

    @property
    def bounds(self) -> tuple[BoundKind, ...]:
        """The read bounds that it supports."""
        return _DATABASE_BOUNDS[self.driver]

    @property
    def secret_values(self) -> Iterator[str | None]:
        """The passwords, as written and as meant."""
        yield self.password
        address, at, _ = self.uri.rpartition("@")
        if at:
            written = address.partition("://")[2].partition(":")[2]
            yield from (written, unquote(written))

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options of its reader, with the account."""
        account = {"user": self.user, "password": self.password}
        return {**self.options, **{k: v for k, v in account.items() if v is not None}}


class LakeConnectionSettings(WithBackward):
    """A folder of tables or files. A source's `table` is a path below `uri`."""

    driver: LakeDriver = Field(examples=["delta"])
    """The format."""
    uri: str = Field(min_length=1, examples=["s3://lake/tables"])
    """The folder; for iceberg the catalog's address."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Options of the store."""
    options: Options = Field(default_factory=dict, repr=False, examples=[{"warehouse": "main"}])
    """Catalog properties, for iceberg."""

    @model_validator(mode="after")
    def _options_are_used(self) -> Self:
        if self.options and self.driver != "iceberg":
            raise ValueError(
                f"options: not used by driver {self.driver}; leave it out, and give options of"
                " files in format of the source"
            )
        return self

    source_kind: ClassVar[str] = "table"
    has_queries: ClassVar[bool] = False
    needs_split_column: ClassVar[bool] = False
    secret_values: ClassVar[tuple[str, ...]] = ()

    @property
    def bounds(self) -> tuple[BoundKind, ...]:
        """The read bounds that it supports."""
        return _LAKE_BOUNDS[self.driver]

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options of its reader, with those of the store."""
        return {**self.options, "storage_options": dict(self.storage_options)}

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that its files may have, the default first; none if it has no choice."""
        return _LAKE_FORMATS.get(self.driver, ())


class AuthAdvanced(Settings):
    """Options of two kinds."""

    location: Literal["header", "query"] = Field(default="header", alias="in")
    """For `api_key`: where to send it."""
    scope: str | None = Field(default=None, examples=["orders.read"])
    """Requested scope."""
    audience: str | None = Field(default=None, examples=["https://api.example.com"])
    """Requested audience."""
    send_as: Literal["basic", "form"] = "basic"
    """The client's way to authenticate at `token_url`."""


class AuthSettings(Settings):
    """Credentials of an API. They are never sent to another host."""

    kind: Literal["bearer", "basic", "api_key", "oauth2_client_credentials"] = Field(
        examples=["bearer"]
    )
    """Decides which keys below are required."""
    token: str | None = Field(default=None, repr=False, examples=["${CRM_TOKEN:-}"])
    """For `bearer`, and the key for `api_key`."""
    username: str | None = Field(default=None, examples=["reader"])
    """For `basic`."""
    password: str | None = Field(default=None, repr=False, examples=["${CRM_PASSWORD:-}"])
    """For `basic`."""
    name: str | None = Field(default=None, examples=["X-Api-Key"])
    """For `api_key`: name of the header or parameter."""
    token_url: str | None = Field(default=None, examples=["https://login.example.com/token"])
    """For `oauth2_client_credentials`."""
    client_id: str | None = Field(default=None, examples=["blizzard"])
    """For `oauth2_client_credentials`."""
    client_secret: str | None = Field(default=None, repr=False, examples=["${CRM_SECRET:-}"])
    """For `oauth2_client_credentials`."""
    advanced: AuthAdvanced = Field(default_factory=AuthAdvanced)
    """Rarely needed."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        check_kind(self, self.kind, _AUTH)
        return self


_AUTH: Mapping[str, tuple[str, ...]] = {
    "bearer": ("token",),
    "basic": ("username", "password"),
    "api_key": ("name", "token"),
    "oauth2_client_credentials": ("token_url", "client_id", "client_secret"),
}


class HttpAdvanced(Settings):
    """Timeout and hosts."""

    timeout: Seconds = Field(default=MINUTE, gt=0)
    """Time limit of one response, to its last byte."""
    allowed_hosts: list[str] = Field(default_factory=list, examples=[["files.example.com"]])
    """Other hosts to which links to next pages may lead."""


class HttpConnectionSettings(WithBackward):
    """An API. Credentials and headers are sent to its host only."""

    driver: Literal["http"] = Field(examples=["http"])
    """JSON over HTTP."""
    base_url: str = Field(pattern=r"^https?://[^/?#]+", examples=["https://api.example.com/v2"])
    """A source's `request.path` is below it."""
    auth: AuthSettings | None = Field(
        default=None, examples=[{"kind": "bearer", "token": "${CRM_TOKEN:-}"}]
    )
    """Credentials; default: none."""
    headers: Options = Field(default_factory=dict, repr=False, examples=[{"Accept-Language": "en"}])
    """Sent with each request."""
    advanced: HttpAdvanced = Field(default_factory=HttpAdvanced)
    """Rarely needed."""

    source_kind: ClassVar[str] = "http"
    formats: ClassVar[tuple[str, ...]] = ()
    has_queries: ClassVar[bool] = False
    needs_split_column: ClassVar[bool] = False
    bounds: ClassVar[tuple[BoundKind, ...]] = ("clock",)
    options: ClassVar[Mapping[str, str]] = {}
    storage_options: ClassVar[Mapping[str, str]] = {}

    @property
    def secret_values(self) -> Iterator[str | None]:
        """The credentials, and the values of all headers."""
        auth = self.auth
        if auth is not None:
            yield from (auth.token, auth.password, auth.client_secret)
        yield from self.headers.values()


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
