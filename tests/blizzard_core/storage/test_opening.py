"""Conversion of store errors, option names and URIs."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import azure.core.exceptions as azure
import botocore.exceptions as botocore  # type: ignore[import-untyped]  # ships no types
import pytest
from google.auth import exceptions as google_auth

from blizzard_core.errors import (
    AccessDenied,
    BucketMissing,
    Conflict,
    NotFound,
    StorageError,
    Unavailable,
)
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.objects import Patience
from blizzard_core.storage.opening import (
    delta_options,
    fsspec_arguments,
    is_same_place,
    normalize_uri,
    open_storage,
    problems_of,
)
from blizzard_core.storage.protocol import join
from blizzard_core.storage.s3 import client_arguments

google: Any = google_auth  # its classes have no types
SECRET = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"


class ClientError(Exception):
    def __init__(self, code: str, status: int = 0) -> None:
        super().__init__(code)
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class HttpResponseError(Exception):
    """As azure.core's: a code of the store if there is one, and the status."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.error_code = code if code != "no" else None
        self.status_code = status


class NoCredentialsError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ClientError("SignatureDoesNotMatch"), AccessDenied, "access denied"),
        (ClientError("SlowDown"), Unavailable, "SlowDown"),
        (ClientError("NoSuchBucket"), BucketMissing, "bucket does not exist"),
        (PermissionError("Forbidden"), AccessDenied, "access denied"),
        (FileNotFoundError("x"), NotFound, "not found"),
        (TimeoutError(), Unavailable, "timed out"),
        (NoCredentialsError(), AccessDenied, "no credentials found"),
        (OSError("connection reset"), Unavailable, "connection reset"),
        (OSError("Forbidden: b/k"), AccessDenied, "access denied"),
        (ClientError("PreconditionFailed"), Conflict, "another writer"),
        (HttpResponseError("no", 403), AccessDenied, "access denied (403)"),
        (HttpResponseError("ConditionNotMet", 412), Conflict, "another writer"),
        (HttpResponseError("ServerBusy", 503), Unavailable, "ServerBusy"),
        # What the status says is not what is wrong.
        (ClientError("InvalidObjectState", 403), Unavailable, "in an archive; restore it"),
        (HttpResponseError("BlobArchived", 409), Unavailable, "in an archive; restore it"),
        (ClientError("RequestTimeTooSkewed", 403), Unavailable, "clocks here and at the store"),
        (ClientError("QuotaExceeded", 403), Unavailable, "the store is full"),
        (ClientError("PermanentRedirect", 301), Unavailable, "set AWS_REGION"),
        (ClientError("KMS.DisabledException", 400), AccessDenied, "see that the key is enabled"),
        (ClientError("ExpiredTokenException", 400), AccessDenied, "have expired; renew them"),
        # Clients that have got no answer at all.
        (botocore.TokenRetrievalError(provider="sso", error_msg="x"), AccessDenied, "renew them"),
        (botocore.ProfileNotFound(profile="prod"), AccessDenied, "(prod) could not be found"),
        (botocore.NoRegionError(), AccessDenied, "correct AWS_PROFILE, AWS_REGION"),
        (google.DefaultCredentialsError("x"), AccessDenied, "no credentials found"),
        (azure.ServiceRequestError("Cannot connect to host a"), Unavailable, "connect to host a"),
    ],
)
def test_foreign_errors_become_ours_by_what_happened(
    error: Exception, kind: type[Exception], text: str
) -> None:
    wrapped = wrap_error("s3://b/k", error)
    assert type(wrapped) is kind
    assert text in str(wrapped)
    assert "s3://b/k" in str(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        botocore.CredentialRetrievalError(provider="process", error_msg=f"token={SECRET}"),
        botocore.ProxyConnectionError(proxy_url=f"http://u:{SECRET}@proxy:3128", error="refused"),
        botocore.HTTPClientError(error=f"Cookie: sid={SECRET}"),
        google.RefreshError("invalid_grant: Invalid JWT", {"assertion": f"eyJhbGci.{SECRET}.x"}),
        google.TransportError(f"Failed to retrieve http://metadata/?key={SECRET}"),
        OSError(f"Forbidden: b/k?key={SECRET}\nno access"),
        azure.ClientAuthenticationError(f"AADSTS7000215: Invalid client secret is {SECRET}"),
        azure.HttpResponseError(f"Operation failed\nRequestId:1\nhttps://a/c?sig={SECRET}"),
        ValueError(f"Connection string missing AccountKey={SECRET};"),
    ],
)
def test_cloud_client_errors_are_one_line_without_secrets(error: Exception) -> None:
    told = str(wrap_error("s3://b/k", error))
    assert SECRET not in told
    assert "\n" not in told
    assert len(str(wrap_error("s3://b/k", OSError("x" * 9000)))) < 1100


def test_login_error_includes_the_error_code() -> None:
    azures = azure.ClientAuthenticationError("AADSTS7000215: Invalid client secret provided")
    assert "AADSTS7000215" in str(wrap_error("az://c/k", azures))
    assert "invalid_grant" in str(wrap_error("gs://c/k", google.RefreshError("invalid_grant: x")))


@pytest.mark.parametrize("variable", ["AWS_WEB_IDENTITY_TOKEN_FILE", "credential_process"])
def test_a_missing_file_of_the_client_is_no_missing_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A checkpoint that is missing means a beginning; a token that is missing means nothing."""
    missing = str(tmp_path / "missing")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if variable == "credential_process":
        (tmp_path / "config").write_text(f"[profile p]\ncredential_process={missing}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "p")
    else:
        monkeypatch.setenv(variable, missing)
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x")
    region = f"r{len(variable)}"  # of its own, since equal options share a client
    storage = open_storage("s3://b/x", {"AWS_REGION": region, "AWS_ENDPOINT_URL": "http://[::1]:9"})
    for ask in (
        lambda: storage.stat("a"),
        lambda: storage.read_versioned("a"),
        lambda: storage.put_if("a", b"", None),
        lambda: storage.put_if("a", b"", "1"),
        lambda: storage.delete("a"),
        lambda: list(storage.list_range("", None)),
    ):
        with pytest.raises(AccessDenied, match=f"there is no {re.escape(missing)}"):
            ask()


def test_a_missing_object_differs_from_a_missing_client_file() -> None:
    gone = os.strerror(errno.ENOENT)
    as_adlfs = FileNotFoundError(errno.ENOENT, gone, "container/x/a")
    assert type(wrap_error("az://container/x/a", as_adlfs)) is NotFound
    tool = FileNotFoundError(errno.ENOENT, gone, "tool")
    assert type(wrap_error("s3://b/x/a", tool)) is AccessDenied
    here = FileNotFoundError(errno.ENOENT, gone, "/data/a")
    assert type(wrap_error("/data/a", here)) is NotFound


@pytest.mark.parametrize("key", [f"/missing/{SECRET[:4]}.json", '{"private_key": "' + SECRET * 200])
def test_a_key_file_that_is_not_there_is_not_sent_to_google(key: str) -> None:
    with pytest.raises(AccessDenied, match="there is no key file") as error:
        open_storage("gs://b/x", {"GOOGLE_SERVICE_ACCOUNT": key})
    assert SECRET not in str(error.value)
    assert ("/missing/" in str(error.value)) == key.startswith("/")


def test_a_key_file_that_is_none_is_named_without_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(f"{SECRET} is no JSON")
    with pytest.raises(AccessDenied, match="these credentials cannot be used") as error:
        open_storage("gs://b/x", {"GOOGLE_SERVICE_ACCOUNT": str(tmp_path / "key.json")})
    assert SECRET not in str(error.value)


def test_wrong_credentials_are_denied_and_not_shown() -> None:
    assert "geheim" not in repr(open_storage("s3://b/x", {"AWS_SECRET_ACCESS_KEY": "geheim"}))


def test_option_names_are_translated_for_fsspec() -> None:
    arguments = fsspec_arguments(
        "s3://b/x",
        {
            "AWS_ACCESS_KEY_ID": "k",
            "aws_secret_access_key": "s",
            "AWS_REGION": "r",
            "AWS_ENDPOINT_URL": "http://e",
            "AWS_ALLOW_HTTP": "true",
        },
    )
    assert (arguments["key"], arguments["secret"]) == ("k", "s")
    assert arguments["client_kwargs"] == {"region_name": "r", "endpoint_url": "http://e"}
    assert arguments["use_listings_cache"] is False
    assert client_arguments(Patience())["read_timeout"] == 60
    assert fsspec_arguments("gs://b", {"GOOGLE_SERVICE_ACCOUNT": "f"})["token"] == "f"
    assert fsspec_arguments("gs://b", {"GOOGLE_SKIP_SIGNATURE": "true"})["token"] == "anon"
    assert fsspec_arguments("az://b", {"AZURE_STORAGE_ACCOUNT_NAME": "n"})["account_name"] == "n"
    named = fsspec_arguments("abfss://c@account.dfs.core.windows.net/x", {})
    assert named["account_name"] == "account"


def test_missing_azure_account_raises_an_error_with_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    with pytest.raises(StorageError, match="set AZURE_STORAGE_ACCOUNT_NAME"):
        open_storage("az://container/x", {})


def test_one_spelling_per_place() -> None:
    assert normalize_uri("s3a://b//x/") == "s3://b/x"
    assert normalize_uri("S3://b") == "s3://b"
    assert normalize_uri("file:///a/../b/") == "/b"
    assert normalize_uri("//a//b") == normalize_uri("file:////a/b") == "/a/b"
    assert normalize_uri("gcs://b/x") == "gs://b/x"
    assert normalize_uri("abfss://c@account.dfs/x/") == "abfss://c@account.dfs/x"
    assert Path(normalize_uri("relative/x")).is_absolute()
    assert join("", "a/", "/b") == "a/b"
    assert problems_of("gs://b/x", {}) == []


@pytest.mark.parametrize(
    ("spellings", "place"),
    [
        (["s3://b/x/", "s3a://b/x", "s3n://b//x//", "s3://b/./x", "s3://b/a/../x"], "s3://b/x"),
        (["gs://b/x", "gcs://b/x/", "gs://b//x"], "gs://b/x"),
        (["az://c/x/", "az://c/./x", "az://c//y/../x"], "az://c/x"),
        (["/a/b", "/a/b/", "//a//b", "file:/a/b", "file:///a/b/", "FILE:/a/c/../b"], "/a/b"),
    ],
)
def test_spellings_of_a_place_become_one(spellings: list[str], place: str) -> None:
    for uri in spellings:
        assert problems_of(uri, {}) == []
        assert normalize_uri(uri) == place
        assert normalize_uri(normalize_uri(uri)) == place
        assert is_same_place(uri, place)
        assert not is_same_place(uri, f"{place}y")


def test_azure_places_differ_by_their_accounts() -> None:
    named = "abfss://c@one.dfs.core.windows.net/x"
    assert is_same_place(named, "abfs://c@one.dfs.core.windows.net//x/")
    assert is_same_place(named, "az://c/x")
    assert not is_same_place(named, "abfss://c@two.dfs.core.windows.net/x")
    assert not is_same_place(named, "az://c/y")
    assert not is_same_place("az://c/x", "s3://c/x")


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("s3:/bucket/x", "write s3://bucket/path"),
        ("GS:bucket", "write GS://bucket/path"),
        ("~/lake", "begins with ~"),
        ("s3:///x", "names no bucket"),
    ],
)
def test_a_place_that_nobody_means_is_refused(uri: str, told: str) -> None:
    """It would be a folder of this machine, right where a daemon was started."""
    [problem] = problems_of(uri, {})
    assert told in problem


@pytest.mark.parametrize("uri", ["./~", "a:b", "/s3:/x", "file:/x", "./s3:/x"])
def test_odd_folders_may_be_meant(uri: str) -> None:
    assert problems_of(uri, {}) == []


@pytest.mark.parametrize("uri", ["s3://b/..", "s3://b/a/../../x", "az://c/../x"])
def test_a_uri_that_leads_above_its_bucket_is_refused(uri: str) -> None:
    assert any("above its bucket" in problem for problem in problems_of(uri, {}))


@pytest.mark.parametrize(
    ("endpoint", "address", "told"),
    [
        ("http://127.0.0.1:10000/devstoreaccount1", None, True),
        ("http://localhost:10000/devstoreaccount1/", None, True),
        ("http://azurite:7/acct", "http://azurite:7/", True),
        ("https://127.0.0.1:10000/acct", None, False),
        ("http://azurite:7/acct", None, False),
        ("http://azurite:7/acct", "http://azurite:8", False),
        ("http://127.0.0.1:10000", None, False),
        ("https://acct.blob.core.windows.net", "http://azurite:7", False),
        (None, "http://azurite:7", False),
    ],
)
def test_delta_options_enable_the_emulator_for_its_endpoints(
    endpoint: str | None, address: str | None, told: bool
) -> None:
    options = {} if endpoint is None else {"AZURE_STORAGE_ENDPOINT": endpoint}
    environment = {} if address is None else {"AZURITE_BLOB_STORAGE_URL": address}
    found = delta_options("az://c/x", options, environment)
    assert (found.get("AZURE_STORAGE_USE_EMULATOR") == "true") is told
    assert "AZURE_STORAGE_USE_EMULATOR" not in delta_options("s3://c/x", {}, environment)


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((NotFound, AccessDenied, Unavailable), match=r"file/x\.json"):
        open_storage(str(tmp_path / "file"), {}).put_atomic("x.json", b"")
