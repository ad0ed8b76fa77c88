"""The inferred schema: found once, kept, agreed on, shown, and used by every command."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_core.errors import SchemaConflict, SchemaUnknown, StateError
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.storage.protocol import Entry
from blizzard_py.__main__ import main as blizzard
from blizzard_py.ingest.inferred_schema import InferredSchema, StoredSchema
from blizzard_py.state.state_paths import schema_path
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested
from tests.support.memory_store import MemoryStorage
from tests.support.scenario import Scenario, ndjson
from tests.support.schema_columns import column

PATH = "_blizzard/events_schema.json"


@dataclass
class Place:
    """Two stores and a pipeline's settings over them."""

    schema: dict[str, Any] = field(default_factory=lambda: {"infer": True})
    sink: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = MemoryStorage("mem://raw", lambda: 0.0)
        self.table = MemoryStorage("mem://lake", lambda: 0.0)

    def put(self, path: str, *lines: str) -> list[Entry]:
        self.source.put_atomic(path, "\n".join(lines).encode())
        return [Entry(path, 10, 0.0)]

    def view(self) -> InferredSchema:
        settings = PipelineSettings.model_validate(
            nested(
                PipelineSettings,
                {
                    "sources": {"main": {"source_uri": "mem://raw"}},
                    "sink": {"table_uri": "mem://lake", **self.sink},
                    "schema": self.schema,
                },
            )
        )
        return InferredSchema("events", settings, self.source, self.table, lambda: 12.9)


def names(fields: Sequence[Any]) -> list[tuple[str, str]]:
    return [(spec.name, spec.type) for spec in fields]


def test_schema_is_inferred_once_and_saved() -> None:
    place = Place()
    files = place.put("a.ndjson", '{"id":1,"()":2}', "junk")
    assert names(place.view().fields(files)) == [("id", "int64")]
    assert json.loads(place.table.read(PATH)) == {
        "schema_version": 1,
        "inferred_ts": 12,
        "sample": {"files": ["a.ndjson"], "records": 1, "skipped_lines": 1},
        "left_out": {"()": "a column cannot have this name"},
        "fields": [{"name": "id", "type": "int64"}],
    }
    written = place.table.read_versioned(PATH)
    later = place.put("b.ndjson", '{"other":"x"}')
    assert names(place.view().fields(later)) == [("id", "int64")]
    assert place.table.read_versioned(PATH) == written


def test_of_two_concurrent_inferences_the_first_write_wins() -> None:
    place = Place()
    first = place.put("a.ndjson", '{"a":1}')
    second = place.put("b.ndjson", '{"b":"x"}')

    class SlowerSchema(InferredSchema):
        def infer(self, files: Sequence[Entry]) -> StoredSchema:
            found = super().infer(files)
            assert names(place.view().fields(first)) == [("a", "int64")]
            return found

    late = place.view()
    late.__class__ = SlowerSchema
    assert names(late.fields(second)) == [("a", "int64")]
    assert names(place.view().fields(second)) == [("a", "int64")]


def test_declared_columns_win_and_are_not_saved() -> None:
    place = Place(
        schema={
            "infer": True,
            "unexpected_fields": "capture",
            "coerce_conflicts_to_utf8": False,
            "fields": [{"name": "Price", "type": "decimal(9,2)"}],
        },
        sink={
            "partition_by": {"prefix_template": "date=%Y-%m-%d"},
            "metadata_columns": ["_source_file"],
        },
    )
    first = '{"price":1,"date":"x","_rescued":1,"id":2,"_source_file":true}'
    files = place.put("a.ndjson", first, '{"price":"x"}')
    assert names(place.view().fields(files)) == [("Price", "decimal"), ("id", "int64")]
    assert [f["name"] for f in json.loads(place.table.read(PATH))["fields"]] == ["id"]
    place.schema["fields"].append({"name": "id", "type": "string"})
    assert names(place.view().fields(files)) == [("Price", "decimal"), ("id", "string")]


def test_files_without_a_field_are_waited_for() -> None:
    place = Place()
    files = place.put("a.ndjson", "junk", "{}", "")
    with pytest.raises(SchemaUnknown, match="no field was found in 1 file to") as caught:
        place.view().fields(files)
    assert caught.value.retryable
    assert place.table.objects == {}
    place.schema["fields"] = [{"name": "id", "type": "int64"}]
    assert names(place.view().fields(files)) == [("id", "int64")]


def test_a_refused_type_conflict_leaves_nothing_behind() -> None:
    place = Place(schema={"infer": True, "coerce_conflicts_to_utf8": False})
    files = place.put("a.ndjson", '{"a":1}', '{"a":"x"}')
    with pytest.raises(SchemaConflict, match=r"integer \(a.ndjson, line 1\)"):
        place.view().fields(files)
    assert place.table.objects == {}


def test_the_number_of_files_and_bytes_sampled_is_configurable() -> None:
    place = Place(schema={"infer": True, "sample_files": 2, "sample_bytes_per_file": 1024})
    line = '{"a":"%s"}' % ("x" * 500)
    files = [
        entry
        for name in ("1.ndjson", "2.ndjson", "3.ndjson")
        for entry in place.put(name, line, line, line)
    ]
    kept = place.view().infer(files)
    assert kept.sample == {"files": ["1.ndjson", "3.ndjson"], "records": 4, "skipped_lines": 0}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "not valid JSON"),
        (b'{"schema_version":2}', "schema_version 2 is not known"),
        (b'{"schema_version":1}', "missing required field `fields`; restore the file, or delete"),
        (
            b'{"schema_version":1,"inferred_ts":1,"left_out":{},"sample":{},"fields":[{"type":"blob"}]}',
            r"fields.type.*blob",
        ),
    ],
)
def test_an_unreadable_schema_is_an_error(content: bytes, told: str) -> None:
    place = Place()
    files = place.put("a.ndjson", '{"a":1}')
    place.table.put_atomic(schema_path("events"), content)
    with pytest.raises(StateError, match=told) as caught:
        place.view().fields(files)
    assert f"mem://lake/{PATH}" in str(caught.value)
    assert place.table.read(PATH) == content


def test_saved_schema_loads_unchanged() -> None:
    fields = (
        column("d", "decimal(38,0)"),
        column("any", "string", coerce=True),
        column("s", "struct", fields=[{"name": "l", "type": "list", "items": "json"}]),
    )
    kept = StoredSchema(fields, {"a b": "odd"}, {"files": ["x"], "records": 1}, 5)
    assert StoredSchema.from_json(json.loads(json.dumps(kept.to_json())), "x") == kept


# --- commands -------------------------------------------------------------------------------


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    found.document["pipelines"]["events"]["schema"] = {
        "infer": True,
        "unexpected_fields": "capture",
    }
    found.write_config()
    return found


def call(*arguments: str) -> Result:
    return CliRunner().invoke(blizzard, arguments)


def shown(scenario: Scenario) -> dict[str, Any]:
    done = call("schema", str(scenario.config), "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["pipelines"]["events"]


def rows(scenario: Scenario) -> list[dict[str, Any]]:
    folder = scenario.folder / "lake/events"
    return [
        row
        for file in sorted(folder.glob("date=*/*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]


def test_an_empty_source_waits_and_the_first_files_decide(scenario: Scenario) -> None:
    (scenario.folder / "raw").mkdir()
    config = str(scenario.config)
    scenario.ingest()
    assert (shown(scenario)["origin"], shown(scenario)["fields"]) == ("unknown", [])
    assert "nothing to infer" in call("schema", config).stdout
    assert not (scenario.folder / "lake/events" / PATH).exists()

    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson({"id": 1, "u": {"n": "a"}, "v": 1}))
    scenario.put("date=2024-01-02/1.ndjson.gz", ndjson({"id": 2, "u": None, "v": "x", "date": 1}))
    before = shown(scenario)
    assert before["origin"] == "sample"
    assert not (scenario.folder / "lake/events" / PATH).exists()
    plan = json.loads(call("plan", config, "--json").stdout)
    assert len(plan["pipelines"]["events"]["sources"]["main"]["files"]) == 2
    assert call("status", config).exit_code == 0

    scenario.ingest()
    after = shown(scenario)
    assert (after["origin"], after["fields"]) == ("inferred", before["fields"])
    assert after["sample"]["records"] == 2
    uri = str(scenario.folder / "raw/date=2024-01-01/1.ndjson.gz")
    assert json.loads(call("explain", config, uri, "--json").stdout)["verdict"] == "ingested"

    scenario.put("date=2024-01-03/1.ndjson.gz", ndjson({"id": 3, "new": [1], "v": {"k": 1}}))
    scenario.ingest()
    assert shown(scenario) == after
    assert rows(scenario) == [
        {"id": 1, "u": {"n": "a"}, "v": "1", "_rescued": None},
        {"id": 2, "u": None, "v": "x", "_rescued": '{"date":1}'},
        {"id": 3, "u": None, "v": '{"k":1}', "_rescued": '{"new":[1]}'},
    ]


def test_schema_command_prints_valid_fields(scenario: Scenario) -> None:
    record = {"id": 1, "any": None, "s": {"é": [1.5]}, "big": 2**64, "e\u202evil": 1, "n: [": "x"}
    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson(record, {"id": 2, "()": 1}))
    found = shown(scenario)
    done = call("schema", str(scenario.config))
    assert "# events: as it would be inferred now" in done.stdout
    assert "# left out: '()': a column cannot have this name" in done.stdout
    assert "\u202e" not in done.stdout
    pasted = yaml.safe_load(done.stdout)
    assert pasted == {"fields": found["fields"]}
    scenario.document["pipelines"]["events"]["schema"] = pasted
    scenario.write_config()
    declared = shown(scenario)
    assert (declared["origin"], declared["fields"]) == ("declared", found["fields"])
    scenario.ingest()
    [first, _] = rows(scenario)
    assert first == {"id": 1, "any": None, "s": {"é": [1.5]}, "big": 2**64, "n:_[": "x"}


def test_errors_name_the_pipeline_and_the_others_are_shown(scenario: Scenario) -> None:
    events = scenario.document["pipelines"]["events"]
    scenario.document["pipelines"]["other"] = {
        **events,
        "sources": {"main": {"source_uri": str(scenario.folder / "nowhere")}},
        "sink": {"table_uri": str(scenario.folder / "lake/other")},
    }
    scenario.write_config()
    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson({"id": 1}))
    done = call("schema", str(scenario.config), "--json")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: other: ")
    assert json.loads(done.stdout)["pipelines"]["events"]["fields"] == [
        {"name": "id", "type": "int64"}
    ]


def test_two_sources_of_a_pipeline_have_the_same_columns(scenario: Scenario) -> None:
    sources = scenario.document["pipelines"]["events"]["sources"]
    sources["second"] = {"source_uri": str(scenario.folder / "raw2")}
    scenario.write_config()
    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson({"id": 1}))
    second = scenario.folder / "raw2/date=2024-01-01"
    second.mkdir(parents=True)
    (second / "1.ndjson.gz").write_bytes(ndjson({"name": "x"}))
    scenario.ingest()
    found = rows(scenario)
    assert len(found) == 2
    assert found[0].keys() == found[1].keys()
    kept = json.loads((scenario.folder / "lake/events" / PATH).read_bytes())
    assert len(kept["fields"]) == 1


def test_lost_batch_runs_again_with_the_saved_schema(scenario: Scenario) -> None:
    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson({"id": 1}))
    scenario.ingest()
    kept = (scenario.folder / "lake/events" / PATH).read_bytes()
    state = scenario.folder / "lake/events/_blizzard/events_main_checkpoint.json"
    document = json.loads(state.read_bytes())
    scenario.put("date=2024-01-02/1.ndjson.gz", ndjson({"id": 2, "x": 1}))
    size = (scenario.folder / "raw/date=2024-01-02/1.ndjson.gz").stat().st_size
    document["in_flight"] = [
        {
            "batch": "0190",
            "attempt": 1,
            "phase": "running",
            "started_ts": 1.0,
            "seen_ts": 1.0,
            "files": [{"path": "date=2024-01-02/1.ndjson.gz", "size": size, "modified": 1.0}],
        }
    ]
    state.write_text(json.dumps(document))
    scenario.ingest()
    assert [(row["id"], row["_rescued"]) for row in rows(scenario)] == [(1, None), (2, '{"x":1}')]
    assert (scenario.folder / "lake/events" / PATH).read_bytes() == kept


def test_a_backfill_has_the_columns_of_the_live_daemon(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    scenario.put("date=2024-01-09/1.ndjson.gz", ndjson({"id": 9}))
    scenario.main_source["partition_filter"] = {"prefix_template": "date=%Y-%m-%d", "lookback": 1}
    scenario.write_config()
    today = dt.datetime.now(dt.UTC)
    scenario.put(f"date={today:%Y-%m-%d}/1.ndjson.gz", ndjson({"id": 1, "v": "x"}))
    scenario.ingest()
    arguments = ("--pipeline", "events", "--source", "main")
    chosen = ("--from", "date=2024-01-09", "--to", "date=2024-01-09")
    done = call("backfill", str(scenario.config), *arguments, *chosen)
    assert done.exit_code == 0, done.stderr
    assert rows(scenario) == [
        {"id": 9, "v": None, "_rescued": None},
        {"id": 1, "v": "x", "_rescued": None},
    ]
