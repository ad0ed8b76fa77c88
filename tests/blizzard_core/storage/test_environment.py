"""Variables of the environment that both daemons use for a store."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from blizzard_core.storage.environment import VARIABLES, completed, variables_set
from blizzard_core.storage.opening import delta_options, open_storage
from penguin_py.__main__ import main as penguin
from tests.support.azurite_server import AzuriteServer
from tests.support.gcs_server import GcsServer
from tests.support.s3_server import S3Server

ACCOUNT, KEY, ENDPOINT = (
    f"AZURE_STORAGE_{last}" for last in ("ACCOUNT_NAME", "ACCOUNT_KEY", "ENDPOINT")
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Return an environment that names no store; AWS profiles are in ``tmp_path/aws``."""
    for name in (name for names in VARIABLES.values() for name in names):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def use_as_both_daemons(uri: str) -> None:
    """Write below the place as Blizzard does, then commit there as Penguin does."""
    storage = open_storage(uri, {})
    storage.put_atomic("x.txt", b"hello")
    assert storage.read("x.txt") == b"hello"
    options = delta_options(f"{uri}/t", {}, os.environ)
    write_deltalake(f"{uri}/t", pa.table({"a": [1]}), storage_options=options)
    assert DeltaTable(f"{uri}/t", storage_options=options).version() == 0
    assert any(
        "_delta_log" in e.path for page in storage.list_range("", None) for e in page.entries
    )


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_an_endpoint_with_a_profile_serves_both(
    s3: S3Server, environment: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    bucket = s3.new_bucket()  # the server's own client must not look for the profile
    (tmp_path / "aws").write_text("[work]\naws_access_key_id=test\naws_secret_access_key=s\n")
    environment.setenv("AWS_PROFILE", "work")
    environment.setenv("AWS_REGION", "us-east-1")
    environment.setenv(name, s3.endpoint)
    use_as_both_daemons(f"s3://{bucket}")


def test_a_connection_string_serves_both(
    azurite: AzuriteServer, environment: pytest.MonkeyPatch
) -> None:
    options = azurite.options
    environment.setenv("AZURITE_BLOB_STORAGE_URL", azurite.address)
    environment.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        f"DefaultEndpointsProtocol=http;AccountName={options[ACCOUNT]};"
        f"AccountKey={options[KEY]};BlobEndpoint={options[ENDPOINT]};",
    )
    use_as_both_daemons(f"az://{azurite.new_container()}")


def test_a_connection_string_overrides_no_other_account(
    azurite: AzuriteServer, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=b3RoZXI=;")
    storage = open_storage(f"az://{azurite.new_container()}", azurite.options)
    storage.put_atomic("x.txt", b"hello")
    assert storage.read("x.txt") == b"hello"


def test_the_emulator_of_google_serves_blizzard(
    gcs: GcsServer, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint.removeprefix("http://"))
    uri = f"gs://{gcs.new_bucket()}"
    open_storage(uri, {}).put_atomic("x.txt", b"hello")
    assert delta_options(uri, {}, os.environ) == {
        "GOOGLE_BASE_URL": gcs.endpoint,
        "GOOGLE_SKIP_SIGNATURE": "true",
    }


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({"aws_region": "x"}, {}, {"AWS_REGION": "x"}),
        ({"AWS_ENDPOINT_URL": "a"}, {"AWS_ENDPOINT_URL": "b"}, {"AWS_ENDPOINT_URL": "a"}),
        ({}, {"AWS_ENDPOINT_URL": "b", "AWS_ENDPOINT_URL_S3": "c"}, {"AWS_ENDPOINT_URL": "c"}),
        ({}, {"AWS_ENDPOINT_URL": "", "AWS_SECRET_ACCESS_KEY": "s"}, {}),
    ],
)
def test_options_of_s3_come_before_the_environment(
    given: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert completed("s3", given, environment) == expected


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {"GOOGLE_SERVICE_ACCOUNT": "/f"}, {"GOOGLE_SERVICE_ACCOUNT": "/f"}),
        ({}, {"STORAGE_EMULATOR_HOST": "default"}, {}),
        (
            {"GOOGLE_SERVICE_ACCOUNT": "/f"},
            {"STORAGE_EMULATOR_HOST": "h:1", "GOOGLE_SKIP_SIGNATURE": "true"},
            {"GOOGLE_SERVICE_ACCOUNT": "/f", "GOOGLE_BASE_URL": "http://h:1"},
        ),
    ],
)
def test_credentials_for_google_are_not_mixed(
    given: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert completed("gs", given, environment) == expected


SAS = "https://acct.blob.core.windows.net/"
CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {ACCOUNT: "a", KEY: "k"}, {ACCOUNT: "a", KEY: "k"}),
        ({ACCOUNT: "b"}, {ACCOUNT: "a", KEY: "k"}, {ACCOUNT: "b"}),
        (
            {ACCOUNT: "a", KEY: "j"},
            {KEY: "k", ENDPOINT: "e"},
            {ACCOUNT: "a", KEY: "j", ENDPOINT: "e"},
        ),
        (
            {},
            {CONNECTION: f"BlobEndpoint={SAS};SharedAccessSignature=s=1&t=2"},
            {ACCOUNT: "acct", ENDPOINT: SAS[:-1], "AZURE_STORAGE_SAS_TOKEN": "s=1&t=2"},
        ),
        (
            {},
            {CONNECTION: "AccountName=a;AccountKey=k==;EndpointSuffix=x.cn"},
            {ACCOUNT: "a", KEY: "k==", ENDPOINT: "https://a.blob.x.cn"},
        ),
        (
            {KEY: "k"},
            {"AZURE_STORAGE_USE_EMULATOR": "true"},
            {
                ACCOUNT: "devstoreaccount1",
                KEY: "k",
                ENDPOINT: "http://127.0.0.1:10000/devstoreaccount1",
            },
        ),
    ],
)
def test_accounts_of_azure_are_not_mixed(
    given: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert completed("abfss", given, environment) == expected


def test_validate_names_the_variables_but_no_value(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    (tmp_path / "c.yaml").write_text("tables: { events: { table_uri: s3://lake/events } }\n")
    done = CliRunner().invoke(penguin, ["validate", str(tmp_path / "c.yaml")])
    assert done.exit_code == 0
    assert "note: s3://: the environment sets AWS_SECRET_ACCESS_KEY" in done.output
    assert "very-secret" not in done.output
    assert variables_set("file", os.environ) == []
