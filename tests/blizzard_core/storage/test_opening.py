"""What a store's own errors, option names and URIs become."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from blizzard_core.storage.opening import fsspec_arguments, normalize_uri, open_storage, problems_of
from blizzard_core.storage.protocol import join
from blizzard_core.storage.s3 import client_arguments


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


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
    ],
)
def test_foreign_errors_become_ours_by_what_happened(
    error: Exception, kind: type[Exception], text: str
) -> None:
    wrapped = wrap_error("s3://b/k", error)
    assert type(wrapped) is kind
    assert text in str(wrapped)
    assert "s3://b/k" in str(wrapped)


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


def test_an_azure_account_that_is_not_named_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((NotFound, AccessDenied, Unavailable), match=r"file/x\.json"):
        open_storage(str(tmp_path / "file"), {}).put_atomic("x.json", b"")
