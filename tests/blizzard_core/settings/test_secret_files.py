"""Secrets in files: filled in, in no message, and noticed when they are renewed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config

SECRET = "hR7mQ2zK9wLp4Xv"


def configured(folder: Path, value: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(
        f"tables: {{t: {{table_uri: 's3://lake/t', storage_options: {{AWS_REGION: '{value}'}}}}}}"
    )
    return load_config(path, {})


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """As Kubernetes mounts it: a link to a link of a folder that is exchanged as a whole."""
    for version, text in (("v1", f"{SECRET}\n"), ("v2", "another")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "key").write_text(text)
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "key").symlink_to("data/key")
    return tmp_path / "key"


def exchange(secret: Path) -> None:
    fresh = secret.with_name("fresh")
    fresh.symlink_to("v2")
    fresh.rename(secret.with_name("data"))


def test_a_secret_is_read_without_its_last_line_break_and_masked(secret: Path) -> None:
    config = configured(secret.parent, f"${{file:{secret}}}")
    assert config.tables["t"].storage_options == {"AWS_REGION": SECRET}
    assert SECRET not in redacted(f"a store says: {SECRET}")


def test_renewed_secret_counts_as_changed_and_a_deleted_one_not(secret: Path) -> None:
    config = configured(secret.parent, f"${{file:{secret}}}")
    assert config.secrets.changed() == []
    secret.with_name("data").unlink()
    assert config.secrets.changed() == []
    exchange(secret)
    assert config.secrets.changed() == [str(secret)]
    assert configured(secret.parent, f"${{file:{secret}}}").secrets.changed() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no such file"),
        ("pipe", "there is no such file"),
        ("large", "is larger than 64 KiB"),
        ("binary", "is no text in UTF-8"),
    ],
)
def test_unusable_secret_files_are_reported_with_path_and_key(
    tmp_path: Path, name: str, message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as found:
        configured(tmp_path, f"${{file:{tmp_path / name}}}")
    assert f"{tmp_path / name}: {message}" in str(found.value)
    assert "tables.t.storage_options.AWS_REGION (line 1)" in str(found.value)


def test_a_default_replaces_a_missing_secret_file(tmp_path: Path) -> None:
    config = configured(tmp_path, "${file:/nowhere/at/all:-none}")
    assert config.tables["t"].storage_options == {"AWS_REGION": "none"}
    assert config.secrets.changed() == []
    with pytest.raises(ConfigError, match=f"{tmp_path}/at/all: there is no such file"):
        configured(tmp_path, "${file:at/all}")


@pytest.mark.parametrize("named", ["option", "variable"])
def test_a_renewed_key_file_of_a_client_is_noticed(secret: Path, named: str) -> None:
    path = secret.parent / "config.yaml"
    options = f"{{google_service_account_path: '{secret}'}}" if named == "option" else "{}"
    path.write_text(f"tables: {{t: {{table_uri: 'gs://lake/t', storage_options: {options}}}}}")
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(secret)} if named == "variable" else {}
    config = load_config(path, variables)
    assert config.secrets.changed() == []
    exchange(secret)
    assert config.secrets.changed() == [str(secret)]


def test_a_key_that_is_no_file_is_nobody_elses_business(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    options = '{GOOGLE_SERVICE_ACCOUNT: \'{"type": "service_account"}\'}'
    path.write_text(f"tables: {{t: {{table_uri: 'gs://lake/t', storage_options: {options}}}}}")
    gone = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "nowhere")}
    assert load_config(path, gone).secrets.changed() == []
