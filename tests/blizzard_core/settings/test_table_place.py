"""A table's directory has one spelling for Blizzard and for deltalake, or is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pydantic import ValidationError

from blizzard_core.settings.document import Config
from blizzard_core.settings.tables import SinkSettings
from blizzard_core.storage.opening import open_storage
from tests.support.s3_server import S3Server

TAKEN = ["My Table", "a+b", "aé", "a%b", "a%zz", "a&b=c", "a,b;c"]
REFUSED = ["My%20Table", "a%2Fb", "a%25b", "%C3%A9"]
CUT = ["a#b", "a?b"]


@pytest.mark.promise("G-183")
@pytest.mark.parametrize("name", [*REFUSED, *CUT])
def test_a_uri_that_deltalake_reads_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="the log would be in another directory"):
        SinkSettings(table_uri=f"s3://lake/{name}")
    with pytest.raises(ValidationError, match=r"tables\.events\.table_uri"):
        Config.model_validate({"tables": {"events": {"table_uri": f"s3://lake/{name}"}}})


@pytest.mark.unreadable_tables  # polars takes a table object's encoded URI for a path
@pytest.mark.parametrize("name", [*TAKEN, *CUT])
def test_accepted_local_name_is_the_directory_of_the_log(tmp_path: Path, name: str) -> None:
    place = SinkSettings(table_uri=f"{tmp_path}/{name}").table_uri
    Path(place).mkdir()
    write_deltalake(place, pa.table({"id": [1]}))
    assert [found.parent.name for found in tmp_path.rglob("_delta_log")] == [name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_local_name_with_an_escape_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="Write the name as it is in the store"):
        SinkSettings(table_uri=f"{tmp_path}/{name}")


@pytest.mark.promise("G-183")
@pytest.mark.parametrize("name", TAKEN)
def test_accepted_bucket_name_is_the_prefix_of_the_log(s3: S3Server, name: str) -> None:
    place = SinkSettings(table_uri=f"s3://{s3.new_bucket()}/{name}").table_uri
    options = {**s3.options, "AWS_ALLOW_HTTP": "true"}
    write_deltalake(place, pa.table({"id": [1]}), storage_options=options)
    # Blizzard's own storage looks below the spelling itself.
    pages = open_storage(place, s3.options).list_range("_delta_log/", None)
    assert next(entry.path for page in pages for entry in page.entries).endswith("0.json")
