"""Missing packages are named with the command that installs them."""

from __future__ import annotations

import pickle
import sys
from typing import get_args

import pytest

from blizzard_core.errors import ConfigError, MissingExtra
from blizzard_core.extras import (
    EXTRAS,
    extra_of_driver,
    extra_of_format,
    extra_of_scheme,
    install_command,
    is_installed,
    optional_module,
    require,
)
from blizzard_core.settings.connections import DatabaseDriver, LakeDriver
from blizzard_core.settings.formats import FORMATS
from blizzard_core.storage.opening import SCHEMES, open_storage

S3_MISSING = "S3 needs s3fs, which is not installed; run: pip install 'blizzard-penguin[s3]'"


@pytest.fixture
def without_s3fs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)


@pytest.mark.usefixtures("without_s3fs")
def test_missing_package_is_one_sentence_with_the_command() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("s3")
    assert str(caught.value) == S3_MISSING
    assert isinstance(caught.value, ConfigError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == S3_MISSING
    with pytest.raises(MissingExtra, match=r"^S3 needs s3fs, .*\[s3\]'$"):
        optional_module("s3fs", "s3")


@pytest.mark.usefixtures("without_s3fs")
@pytest.mark.parametrize("uri", ["s3://raw/a", "s3a://raw/a", "s3n://raw/a"])
def test_store_without_its_client_names_the_extra(uri: str) -> None:
    with pytest.raises(MissingExtra) as caught:
        open_storage(uri, {})
    assert str(caught.value) == S3_MISSING


def test_installed_packages_pass() -> None:
    for name in EXTRAS:
        require(name)
    assert optional_module("fastavro", "avro").__name__ == "fastavro"


def test_parts_of_a_missing_package_are_not_installed() -> None:
    assert not is_installed("no_such_package.part")
    assert not is_installed("s3fs.no_such_part")


def test_extras_install_with_one_command() -> None:
    assert install_command(["spark", "s3"]) == "pip install 'blizzard-penguin[spark,s3]'"


def test_names_of_extras_are_those_of_the_configuration() -> None:
    drivers = {*get_args(DatabaseDriver), *get_args(LakeDriver), "http"}
    formats = {name for each in FORMATS for name in get_args(each.model_fields["type"].annotation)}
    for extra in EXTRAS.values():
        assert set(extra.schemes) <= SCHEMES
        assert set(extra.drivers) <= drivers
        assert set(extra.formats) <= formats
    local = {"", "file"}
    assert {scheme for scheme in SCHEMES if extra_of_scheme(scheme) is None} == local
    assert extra_of_driver("delta") is None
    assert extra_of_format("ndjson") is None
