"""Files of other formats through both daemons: killed, replayed, and read by a second engine."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import orc

from tests.support.scenario import Scenario, scenario_on

IDS = list(range(1, 31))


def csv(*ids: int) -> bytes:
    """Records of which each fills two lines."""
    return ("id;text\n" + "".join(f'{number};"t\n{number}"\n' for number in ids)).encode()


def document(*ids: int) -> bytes:
    return json.dumps({"data": [{"id": number, "text": "t"} for number in ids]}, indent=1).encode()


def xml(*ids: int) -> bytes:
    rows = "".join(f"<event><id>{number}</id><text>t</text></event>" for number in ids)
    return f"<events>{rows}</events>".encode()


def avro(*ids: int) -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
    target = io.BytesIO()
    rows = [{"id": number, "text": "t"} for number in ids]
    fastavro.writer(target, {"type": "record", "name": "event", "fields": fields}, rows)
    return target.getvalue()


def columnar(write: Callable[..., None], *ids: int) -> bytes:
    target = io.BytesIO()
    write(pa.table({"id": ids, "text": ["t"] * len(ids)}), target)
    return target.getvalue()


def row_groups(*ids: int) -> bytes:
    """Records in a row group that is worth copying, with texts that do not compress."""
    text = [random.Random(number).randbytes(300_000).hex() for number in ids]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    target = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "text": text}, schema), target, compression="zstd")
    return target.getvalue()


FORMATS: dict[str, tuple[dict[str, str], Callable[..., bytes]]] = {
    "csv": ({"type": "csv", "delimiter": ";"}, csv),
    "json": ({"type": "json", "records": "data"}, document),
    "xml": ({"type": "xml", "row_tag": "event"}, xml),
    "avro": ({"type": "avro"}, avro),
    "parquet": ({"type": "parquet"}, partial(columnar, pq.write_table)),
    "orc": ({"type": "orc"}, partial(columnar, orc.write_table)),
    "copy.parquet": ({"type": "parquet", "row_groups": "copy"}, row_groups),
}
POINTS = ("2-ingested", "3-prepared", "4-one-renamed")
# Every point with one format, and every format with one point; both stores with streams and ranges.
# Behind the commit point nothing of a format is left to do, so copies die before it as well.
CASES = [
    *(("csv", point, store) for point, store in zip(POINTS, ("s3", "local", "s3"), strict=True)),
    *((name, "3-prepared", "local") for name in ("xml", "avro", "orc")),
    *((name, "3-prepared", "s3") for name in ("json", "parquet")),
    *(("copy.parquet", point, "s3") for point in POINTS[:2]),
]


@pytest.fixture
def scenario(request: pytest.FixtureRequest, store: str) -> Scenario:
    return scenario_on(store, request)


def fill(scenario: Scenario, name: str) -> None:
    """Put two files of each of three days, the second one packed if the format allows it."""
    settings, content = FORMATS[name]
    packs = not name.endswith(("parquet", "orc"))
    scenario.main_source["format"] = settings
    scenario.write_config()
    for day in (1, 2, 3):
        ids = range(10 * day - 9, 10 * day + 1)
        scenario.put(f"date=2024-01-0{day}/a.{name}", content(*ids[:5]))
        more = content(*ids[5:])
        path = f"date=2024-01-0{day}/b.{name}"
        scenario.put(f"{path}.gz" if packs else path, gzip.compress(more) if packs else more)


@pytest.mark.parametrize(("name", "point", "store"), CASES)
@pytest.mark.promise("G-019")
def test_rows_come_once_after_a_kill(scenario: Scenario, name: str, point: str) -> None:
    fill(scenario, name)
    scenario.kill_at(f"DIRECT:{point}", "blizzard")
    scenario.commit()
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == IDS
    if name == "copy.parquet":
        uri = f"{scenario.place}/raw/date=2024-01-02/b.{name}"
        found = scenario.run("blizzard", "explain", str(scenario.config), uri).stdout
        assert "; 1 of 1 row groups were copied" in found


@pytest.mark.parametrize("point", [*POINTS, "1-planned"])
@pytest.mark.promise("G-019")
def test_a_new_column_has_the_type_of_its_file_after_a_kill(tmp_path: Path, point: str) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document["pipelines"]["events"]["schema"]["evolve"] = "add"
    scenario.main_source["format"] = "parquet"
    scenario.write_config()
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
    new = {"price": [Decimal("1.50"), None], "at": pa.array([at, None], pa.timestamp("us", "UTC"))}
    for day, more in ((1, {}), (2, new), (3, {})):
        target = io.BytesIO()
        pq.write_table(pa.table({"id": [2 * day, 2 * day + 1], **more}), target)
        scenario.put(f"date=2024-01-0{day}/a.parquet", target.getvalue())
    scenario.kill_at(f"DIRECT:{point}", "blizzard")
    scenario.ingest()
    scenario.commit()
    table = DeltaTable(f"{tmp_path}/lake/events").to_pyarrow_table(columns=["id", "price", "at"])
    assert table.schema.field("price").type == pa.decimal128(3, 2)
    found = table.sort_by("id").to_pylist()
    assert [row["id"] for row in found] == [2, 3, 4, 5, 6, 7]
    assert [row["price"] for row in found] == [None, None, Decimal("1.50"), None, None, None]
    assert [row["at"] for row in found] == [None, None, at, None, None, None]


def test_spark_reads_csv_and_its_letters_come_again(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document["pipelines"]["events"]["error_handling"] = {"max_bad_fraction": 1}
    fill(scenario, "csv")
    scenario.put("date=2024-01-03/c.csv", b'id;text\n"1.031";x\n1.032;y\nno;z\n')
    scenario.once("blizzard")
    scenario.commit()
    assert scenario.ids() == IDS
    scenario.main_source["format"] = {**FORMATS["csv"][0], "thousands": ".", "decimal": ","}
    scenario.write_config()
    letters = scenario.run("blizzard", "dlq", "list", str(scenario.config), "--json")
    [letter] = {json.loads(line)["id"] for line in letters.stdout.splitlines()}
    chosen = ("--pipeline", "events", "--source", "main", "--letter", letter)
    scenario.call("blizzard", "replay", str(scenario.config), *chosen)
    scenario.commit()
    assert scenario.ids() == [*IDS, 1031, 1032]
    queue = tmp_path / "lake/events/_blizzard/dlq/events_main"
    [waiting] = queue.glob("*.records.ndjson")
    found = json.loads(waiting.read_text())
    assert (found["raw"], found["header"]) == ("no;z", "id;text")
