"""Another spelling of a query goes on with its state, and another query does not: real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from blizzard_core.errors import ConfigError, StateError
from blizzard_core.settings.document import SESSION_ZONE, SparkSettings
from blizzard_py.app.inspection import plan
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.masters import settings
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.streaming.plans import differing
from tests.support.event_time_harness import FIELDS, TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of

Query: TypeAlias = dict[str, Any]

PLACE = "_source_file, _source_line"
SELECT = f"SELECT ts, page, bytes, {PLACE} FROM source"
WITH_ID = f"SELECT ts, id, page AS name, {PLACE} FROM source"
DISTINCT: Query = {"column": "ts", "delay": "6 seconds", "deduplicate": ["id"]}
TOKYO, BERLIN = "Asia/Tokyo", "Europe/Berlin"


@pytest.fixture
def world(tmp_path: Path, spark_engine: SparkEngine) -> EventTimeHarness:
    return EventTimeHarness(tmp_path, spark_engine)


@pytest.fixture
def compared(world: EventTimeHarness, spark_engine: SparkEngine) -> Callable[..., list[str]]:
    """Spark's comparison of two queries; see `of`."""

    def compare(before: Query, now: Query, block: Query = TUMBLING) -> list[str]:
        kept = of(world, before, block).parts.query_fingerprint
        parts = of(world, now, block).parts
        assert kept is not None
        assert parts.query_fingerprint is not None
        asked = (parts.event_time.settings, parts.branches)
        session = spark_engine.session()
        return differing(session, "pages", asked, parts.ingest, (kept, parts.query_fingerprint))

    return compare


def of(world: EventTimeHarness, query: Query, block: Query = TUMBLING) -> SourcePipeline:
    """A process of it: its aggregate ``n``, ``transform`` and ``zone``, as far as there are any."""
    world.event_time = dict(block)
    if block.get("aggregates"):
        world.event_time["aggregates"] = block["aggregates"] | {"n": query.get("n", "count(*)")}
    world.pipeline_settings = {"transform": query["transform"]} if "transform" in query else {}
    world.conf = {SESSION_ZONE: query["zone"]} if "zone" in query else {}
    return world.pipeline()


def notes(world: EventTimeHarness) -> list[str]:
    """Return the remarks of `plan`."""
    found, errors = plan(world.config())
    assert errors == []
    return found["pipelines"]["pages"]["sources"]["web"]["notes"]


@pytest.mark.promise("G-068")
@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"n": "count(*)"}, {"n": "COUNT( * )"}),
        ({"n": "count(*)"}, {"n": "count(1) -- all of them"}),
        ({"n": "sum(bytes + 1)"}, {"n": "(SUM((1 + `bytes`)))"}),
        ({"n": "max(hour(ts))"}, {"n": "MAX(EXTRACT(HOUR FROM ts))"}),
        ({"transform": SELECT}, {"transform": SELECT.lower()}),
        ({"transform": SELECT}, {"transform": f"\n{SELECT.replace(' ', '   ')}\n-- so\n"}),
        ({"transform": SELECT}, {"transform": SELECT.replace("page", "source.page AS page")}),
        ({"transform": SELECT}, {"transform": SELECT.replace("ts, page", "page, ts")}),
        ({"transform": SELECT}, {"transform": SELECT.replace("bytes", "Bytes AS BYTES")}),
        ({"transform": SELECT}, {"transform": SELECT[:-6] + "(SELECT * FROM source)"}),
        ({"transform": SELECT}, {"transform": f"WITH x AS (SELECT * FROM source) {SELECT[:-6]}x"}),
        ({"transform": "SELECT * FROM source"}, {}),
        (
            {"transform": f"{SELECT} WHERE bytes > 1 AND page = 'a'"},
            {"transform": f"{SELECT} where page='a' and (bytes>1)"},
        ),
        ({"n": "sum(bytes)"}, {"n": "sum(bytes)", "zone": BERLIN}),
        (
            {"n": "max(ts)", "transform": SELECT},
            {"n": "MAX(ts)", "transform": SELECT.lower(), "zone": TOKYO},
        ),
        ({"n": "max(hour(ts))"}, {"n": "max(hour(ts))", "zone": "Etc/UTC"}),
        (
            {"transform": f"{SELECT} WHERE ts > '2024-01-01 00:00:00'"},
            {"transform": f"{SELECT} WHERE ts > '2024-01-01 01:00:00'", "zone": BERLIN},
        ),
    ],
    ids=str,
)
def test_another_spelling_is_the_same_query(
    compared: Callable[..., list[str]], before: Query, now: Query
) -> None:
    assert compared(before, now) == []


@pytest.mark.promise("G-068")
@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"n": "count(*)"}, {"n": "sum(1)"}, ["aggregates"]),
        ({"n": "count(*)"}, {"n": "count(page)"}, ["aggregates"]),
        ({"n": "max(page)"}, {"n": "max('page')"}, ["aggregates"]),
        ({"n": "max(bytes)"}, {"n": "max(id)"}, ["aggregates"]),
        ({"transform": SELECT}, {"transform": f"{SELECT} WHERE bytes > 1"}, ["transform"]),
        ({"transform": SELECT}, {"transform": SELECT.replace("page", "seen, page")}, ["transform"]),
        (
            {"transform": SELECT.replace("bytes", "bytes, id AS a, bytes AS b")},
            {"transform": SELECT.replace("bytes", "bytes, id AS b, bytes AS a")},
            ["transform"],
        ),
        (
            {"transform": f"{SELECT} WHERE page = 'a'"},
            {"transform": f"{SELECT} WHERE page = 'A'"},
            ["transform"],
        ),
        (
            {"n": "max(id)", "transform": SELECT.replace("page", "page, id")},
            {"n": "max(bytes)", "transform": SELECT},
            ["transform", "aggregates"],
        ),
        (
            {"transform": SELECT.replace("page", "page, gone")},
            {"transform": SELECT, "zone": BERLIN},
            ["transform"],
        ),
        ({"n": "max(hour(ts))"}, {"n": "max(hour(ts))", "zone": BERLIN}, ["zone"]),
        ({"n": "max(hour(ts))"}, {"n": "max(day(ts))", "zone": TOKYO}, ["aggregates", "zone"]),
        ({"n": "max(CAST(ts AS DATE))"}, {"n": "max(DATE(ts))", "zone": TOKYO}, ["zone"]),
        (
            {"transform": f"{SELECT} WHERE ts > '2024-01-01'"},
            {"transform": f"{SELECT} WHERE ts > '2024-01-01'", "zone": BERLIN},
            ["zone"],
        ),
    ],
    ids=str,
)
def test_comparison_names_the_differing_parts(
    compared: Callable[..., list[str]], before: Query, now: Query, found: list[str]
) -> None:
    assert compared(before, now) == found


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (WITH_ID.replace("id, page AS name", "PAGE AS name, ID AS id"), []),
        (WITH_ID.replace("name", "NAME"), ["transform"]),  # the table's columns are these
    ],
)
def test_names_count_where_rows_are_published_as_they_are(
    compared: Callable[..., list[str]], now: str, found: list[str]
) -> None:
    assert compared({"transform": WITH_ID}, {"transform": now}, DISTINCT) == found


@pytest.mark.parametrize(
    "block",
    [
        TUMBLING | {"window": {"size": "10 seconds", "slide": "4 seconds"}},
        TUMBLING | {"window": {"gap": "4 seconds"}},
        TUMBLING | {"window": None, "mode": "complete"},
        TUMBLING | {"window": None, "group_by": ["page", "ts"]},
    ],
    ids=str,
)
def test_windows_of_each_kind_are_compared(
    compared: Callable[..., list[str]], block: Query
) -> None:
    assert compared({"n": "max(bytes)"}, {"n": "MAX( bytes )", "zone": BERLIN}, block) == []
    assert compared({"n": "max(bytes)"}, {"n": "min(bytes)"}, block) == ["aggregates"]


@pytest.mark.parametrize(("kind", "name"), [("size", "window"), ("gap", "session_window")])
def test_an_aggregate_may_use_its_window(
    compared: Callable[..., list[str]], kind: str, name: str
) -> None:
    block = TUMBLING | {"window": {kind: "5 seconds"}}
    start = {"n": f"max({name}.start)"}
    assert compared(start, {"n": f"MAX({name}.START)", "zone": BERLIN}, block) == []
    assert compared(start, {"n": f"max({name}.end)"}, block) == ["aggregates"]
    assert compared(
        {"n": f"hour({name}.start)"}, {"n": f"hour({name}.start)", "zone": BERLIN}, block
    ) == ["zone"]


def test_the_transform_of_joined_sources_is_compared(
    world: EventTimeHarness, compared: Callable[..., list[str]]
) -> None:
    world.sources = {"app": {}, "web": {}}
    sides = {"left": "app", "right": "web", "on": ["id"], "columns": {"id": "app.id"}}
    join = sides | {"lower": "0 seconds", "upper": "9 seconds"}
    block = {"column": "ts", "delay": "6 seconds", "join": join}
    assert compared({"transform": WITH_ID}, {"transform": WITH_ID.lower()}, block) == []
    assert compared(
        {"transform": WITH_ID}, {"transform": f"{WITH_ID} WHERE id > 1", "zone": TOKYO}, block
    ) == ["transform"]


def test_fields_may_have_any_name(world: EventTimeHarness, spark_engine: SparkEngine) -> None:
    odd = "event.time of `it`"
    fields = [FIELDS[0] | {"name": odd}, FIELDS[0] | {"name": "window"}, *FIELDS[2:]]
    world.event_time |= {"column": odd}
    world.pipeline_settings = {"schema": {"fields": fields}}
    kept = world.pipeline().parts.query_fingerprint
    assert kept is not None
    for text, found in (("MAX(window)", []), ("min(window)", ["aggregates"])):
        world.event_time["aggregates"] = {"n": text, "bytes": "sum(bytes)"}
        parts = world.pipeline().parts
        before = kept | {"aggregates": {"n": "max(window)", "bytes": "SUM(bytes)"}}
        assert parts.query_fingerprint is not None
        asked = (parts.event_time.settings, parts.branches)
        session = spark_engine.session()
        assert (
            differing(session, "pages", asked, parts.ingest, (before, parts.query_fingerprint))
            == found
        )


def test_a_query_that_cannot_be_computed_is_refused_with_its_key(
    compared: Callable[..., list[str]],
) -> None:
    with pytest.raises(ConfigError, match=r"pages\.event_time: 1 problem\s.*`nothing_such`"):
        compared({"n": "count(*)"}, {"n": "max(nothing_such)"})


@pytest.mark.promise("G-068")
def test_a_respelled_query_goes_on_with_its_state(world: EventTimeHarness) -> None:
    oracle = Oracle(TUMBLING)
    steps: list[Query] = [
        {"transform": SELECT},
        {"transform": SELECT.lower(), "n": "COUNT(*) /* id */", "zone": BERLIN},
    ]
    for number, query in enumerate(steps):
        worker = of(world, query)
        assert len(notes(world)) == (0, 3)[number]
        rows = [row(101 + number, bytes_=number + 1), row(104, "b")]
        oracle.add_batch({world.put(rows): rows})
        world.drain(worker)
        worker.close()
        assert notes(world) == []  # from now on it is spelled so
    rows = [row(150)]
    oracle.add_batch({world.put(rows): rows})
    world.drain()
    assert windows_of(world.table()) == oracle.emitted
    assert world.stream().query == world.pipeline().parts.query_fingerprint


def test_plans_are_compared_once_for_a_changed_spelling(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("blizzard_py.streaming.plans.differing", lambda *given: asked.append(given))
    world.put([row(101)])
    world.drain()
    world.drain()
    assert asked == []
    worker = of(world, {"n": "COUNT(*)"})
    for _ in range(3):  # nothing is there to be done, so the kept spelling stays
        world.drain(worker)
    assert len(asked) == 1
    worker.close()


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"n": "sum(1)"}, r"event_time\.aggregates\.n was 'count\(\*\)' and is 'sum\(1\)'\)"),
        ({"transform": f"{SELECT} WHERE id > 1"}, r"transform was absent and is 'SELECT ts, .*'\)"),
    ],
)
def test_another_query_is_refused_until_its_state_is_forgotten(
    world: EventTimeHarness, now: Query, said: str
) -> None:
    world.put([row(101, id_=2)])
    world.drain()
    worker = of(world, now)
    world.put([row(103, id_=2)])
    [note] = notes(world)  # who has no Spark refuses nothing
    assert note.endswith("the next start asks Spark whether that is the same query")
    for _ in range(2):
        with pytest.raises(StateError, match=said + "; set it back.* reset --event-time"):
            world.drain(worker)
    worker.close()
    assert world.stream().batch == 1
    world.forget()
    world.drain()
    assert world.stream().query == world.pipeline().parts.query_fingerprint


@pytest.mark.promise("G-068")
def test_another_zone_is_refused_where_the_query_goes_by_it(world: EventTimeHarness) -> None:
    hours = {"n": "max(hour(ts))"}
    of(world, hours)
    world.put([row(101)])
    world.drain()
    world.put([row(102)])
    of(world, hours | {"zone": BERLIN})
    said = r"\(spark\.conf: spark\.sql\.session\.timeZone was 'UTC' and is 'Europe/Berlin'\); set"
    with pytest.raises(StateError, match=said):
        world.drain()
    of(world, hours | {"zone": "Etc/UTC"})
    world.drain()
    assert world.stream().query["zone"] == "Etc/UTC"


def test_a_checkpoint_without_a_zone_takes_it_over(world: EventTimeHarness) -> None:
    of(world, {"n": "max(hour(ts))"})
    world.put([row(101)])
    world.drain()
    path = world.root / "table" / world.pipeline().checkpoint_path
    document = json.loads(path.read_text())
    del document["stream"]["query"]["zone"]  # as an earlier release has kept it
    path.write_text(json.dumps(document))
    world.put([row(150)])
    of(world, {"n": "max(hour(ts))", "zone": BERLIN})
    world.drain()
    assert world.stream().query["zone"] == BERLIN
    assert [one["n"] for one in world.table()] == [14]


@pytest.mark.promise("G-068")
def test_aggregates_in_another_order_are_refused(world: EventTimeHarness) -> None:
    world.put([row(101)])
    world.drain()
    # Spark would go on with a count as the sum, and with the sum as a count.
    world.event_time["aggregates"] = {"bytes": "sum(bytes)", "n": "count(*)"}
    world.put([row(150)])
    with pytest.raises(StateError, match=r"aggregates were n, bytes and are bytes, n"):
        world.drain()


@pytest.mark.parametrize("conf", [{}, {SESSION_ZONE: BERLIN}])
def test_the_zone_of_the_configuration_is_that_of_sessions(conf: dict[str, str]) -> None:
    assert settings("local[1]", conf)[SESSION_ZONE] == SparkSettings(conf=conf).zone


def test_queries_run_in_the_zone_of_the_configuration(spark_engine: SparkEngine) -> None:
    assert spark_engine.session().newSession().conf.get(SESSION_ZONE) == SparkSettings().zone
