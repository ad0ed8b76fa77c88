"""Conflicts between parts of one configuration are refused with both keys and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blizzard_core.settings.checks.places import area_of
from tests.support.settings_documents import problems

SCHEMA = {"fields": [{"name": "a", "type": "string"}]}


def pipeline(
    sources: dict[str, Any], table: str = "/lake/events", dlq: str | None = None
) -> dict[str, Any]:
    return {
        "sources": {
            name: given if isinstance(given, dict) else {"source_uri": given}
            for name, given in sources.items()
        },
        "sink": {"table_uri": table},
        "schema": SCHEMA,
        "error_handling": {} if dlq is None else {"dlq_path": dlq},
    }


def refused(tmp_path: Path, tables: dict[str, str] | None = None, **pipelines: Any) -> list[str]:
    named = {name: {"table_uri": uri} for name, uri in (tables or {}).items()}
    return problems(tmp_path, {"pipelines": pipelines, "tables": named})


@pytest.mark.promise("G-188")
@pytest.mark.parametrize(
    ("source", "dlq"),
    [
        ("/data/raw", "/data/raw/dlq"),
        ("/data/raw", "/data/raw"),
        ("/data/raw", "/data"),
        ("/data/raw", "/data/raw/_blizzard/dlq"),
        ("/data/raw/", "file:///data//raw/./dlq/"),
        ("raw", "./raw/dlq"),
        ("/data/raw", "//data/raw/dlq"),
        ("s3://b/raw", "s3a://b//raw/dlq/"),
        ("s3://b", "s3://b/dlq"),
        ("gs://b/raw", "gcs://b/raw/_dlq"),
        ("az://c/raw", "abfss://c@account.dfs.core.windows.net/raw/dlq"),
    ],
)
def test_dead_letters_inside_a_source_are_refused(tmp_path: Path, source: str, dlq: str) -> None:
    [problem] = refused(tmp_path, events=pipeline({"main": source}, "/lake/events", dlq))
    assert problem.startswith("pipelines.events.error_handling.advanced.dlq_path (line ")
    assert "overlaps with pipelines.events.sources.main.source_uri (line " in problem
    assert problem.endswith("choose a separate place, or leave it out")


def test_the_letters_of_one_pipeline_are_no_source_of_another(tmp_path: Path) -> None:
    [problem] = refused(
        tmp_path,
        one=pipeline({"main": "/data/one"}, "/lake/one", "/letters"),
        two=pipeline({"main": "/letters/one_main"}, "/lake/two"),
    )
    assert "pipelines.two.sources.main.source_uri" in problem


@pytest.mark.parametrize(
    ("source", "dlq"),
    [
        ("/data/raw", "/data/raw-dlq"),
        ("/data/raw", "/data/RAW/dlq"),
        ("s3://b/raw", "s3://other/raw/dlq"),
        ("s3://b/raw", "gs://b/raw/dlq"),
        (
            "abfss://c@one.dfs.core.windows.net/raw",
            "abfss://c@two.dfs.core.windows.net/raw/dlq",
        ),
    ],
)
def test_neighbours_may_hold_dead_letters(tmp_path: Path, source: str, dlq: str) -> None:
    assert refused(tmp_path, events=pipeline({"main": source}, "/lake/events", dlq)) == []


def test_local_places_are_compared_behind_their_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "raw/dlq").mkdir(parents=True)
    (tmp_path / "letters").symlink_to(tmp_path / "raw/dlq")
    (tmp_path / "same").symlink_to(tmp_path / "raw")
    (tmp_path / "here").symlink_to(tmp_path)
    raw, lake = f"{tmp_path}/raw", f"{tmp_path}/lake"
    [problem] = refused(tmp_path, e=pipeline({"main": raw}, lake, f"{tmp_path}/letters"))
    assert "dlq_path" in problem
    [problem] = refused(tmp_path, e=pipeline({"main": raw, "two": f"{tmp_path}/same"}, lake))
    assert "is read by" in problem
    [problem] = refused(tmp_path, e=pipeline({"main": raw}, f"{tmp_path}/here/raw/lake"))
    assert "overlaps with the table of" in problem


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ("/data/raw/lake", True),
        ("/data/raw/_lake", True),
        ("/data", True),
        ("/", True),
        ("/data/raw", True),
        ("/data/rawer", False),
    ],
)
def test_source_inside_a_table_is_a_conflict(tmp_path: Path, table: str, refusal: bool) -> None:
    for where in ("pipelines.events.sink.table_uri", "tables.t.table_uri"):
        own = table if where.startswith("pipelines") else "s3://lake/events"
        tables = {"t": table} if where.startswith("tables") else None
        found = refused(tmp_path, tables, events=pipeline({"main": "/data/raw"}, own))
        assert len(found) == refusal
        assert all(f"overlaps with the table of {where}" in problem for problem in found)


@pytest.mark.promise("G-188")
@pytest.mark.parametrize(
    ("dlq", "refusal"),
    [
        (None, False),
        ("/lake/events/_blizzard/dlq", False),
        ("/lake/events/_blizzard/dlq/mine", False),
        ("/lake/events/_letters", False),
        ("/lake/events/.letters/x", False),
        ("/lake/letters", False),
        ("/lake", False),
        ("/lake/events", True),
        ("/lake/events/letters", True),
        ("/lake/events/letters/_hidden", True),
        ("/lake/events/_delta_log/x", True),
        ("/lake/events/_change_data/x", True),
        ("/lake/events/_penguin", True),
        ("/lake/events/_blizzard", True),
        ("/lake/events/_blizzard/staging", True),
        ("/lake/other/letters", True),
    ],
)
def test_letters_in_a_table_lie_where_no_vacuum_deletes_them(
    tmp_path: Path, dlq: str | None, refusal: bool
) -> None:
    found = refused(
        tmp_path,
        {"events": "/lake/events", "other": "/lake/other"},
        events=pipeline({"main": "/data/raw"}, "/lake/events", dlq),
    )
    assert len(found) == refusal
    for problem in found:
        assert problem.startswith("pipelines.events.error_handling.advanced.dlq_path (line ")
        assert "where a VACUUM deletes it. Leave it out" in problem


def test_a_table_inside_another_ones_directory_is_refused(tmp_path: Path) -> None:
    [problem] = refused(
        tmp_path, {"all": "/lake"}, events=pipeline({"main": "/data/raw"}, "/lake/events")
    )
    assert problem.startswith("tables.all.table_uri (line ")
    assert "overlaps with the table of pipelines.events.sink.table_uri" in problem


def test_many_sources_of_one_place_are_a_problem_each(tmp_path: Path) -> None:
    pipelines = {f"p{n}": pipeline({"main": "raw"}, f"/lake/{n}") for n in range(20)}
    assert len(refused(tmp_path, **pipelines)) == 19


def test_a_default_place_of_several_sources_is_refused(tmp_path: Path) -> None:
    pipelines = {f"p{n}": pipeline({"main": {}}, f"/lake/{n}") for n in range(3)}
    defaults = {"source": {"source_uri": "raw"}}
    [problem] = problems(tmp_path, {"defaults": defaults, "pipelines": pipelines})
    assert problem.endswith("is one place for several blocks; give each its own")


def test_invalid_dead_letter_uri_is_reported(tmp_path: Path) -> None:
    [problem] = refused(
        tmp_path, events=pipeline({"main": "/data/raw"}, "/lake", "ftp://there/dlq")
    )
    assert "error_handling.advanced.dlq_path" in problem
    assert "unknown scheme 'ftp'" in problem


def test_letters_may_lie_on_another_store_than_the_table(tmp_path: Path) -> None:
    events = pipeline({"main": "/data/raw"}, "s3://lake/events", "/var/letters")
    events["sink"]["storage_options"] = {"AWS_REGION": "us-east-1"}
    assert refused(tmp_path, events=events) == []


@pytest.mark.promise("G-188")
def test_source_id_resolves_a_conflict_of_state_names(tmp_path: Path) -> None:
    """Finding 15: ``events_eu/raw`` and ``events/eu_raw`` have one state name."""
    sources = {"raw": "/data/1"}
    eu = pipeline(sources, "/lake/eu", "/letters")
    other = {"eu_raw": {"source_uri": "/data/2"}}
    [problem] = refused(
        tmp_path, events_eu=eu, events=pipeline(other, "/lake/events", "file:///letters/")
    )
    assert "its state is named 'events_eu_raw', and so is that of" in problem
    assert "give the newer one an `id` of its own" in problem
    other["eu_raw"]["id"] = "second"
    both = {"events_eu": eu, "events": pipeline(other, "/lake/events", "/letters")}
    assert refused(tmp_path, **both) == []


def test_same_state_name_below_two_tables_is_no_conflict(tmp_path: Path) -> None:
    apart = {
        "events_eu": pipeline({"raw": "/data/1"}, "/lake/eu"),
        "events": pipeline({"eu_raw": "/data/2"}, "/lake/events"),
    }
    assert refused(tmp_path, **apart) == []


def test_a_shared_state_name_is_found_in_any_spelling_of_a_table(
    tmp_path: Path,
) -> None:
    found = refused(
        tmp_path,
        events_eu=pipeline({"raw": "/data/1"}, "s3://lake/t"),
        events=pipeline({"eu_raw": "/data/2"}, "s3a://lake//t/"),
    )
    assert any("its state is named 'events_eu_raw'" in problem for problem in found)


@pytest.mark.parametrize("second", [{"id": "x"}, {"id": "events_first"}])
def test_the_ids_of_one_pipeline_differ(tmp_path: Path, second: dict[str, str]) -> None:
    first = {"source_uri": "/data/1", **({"id": "x"} if second["id"] == "x" else {})}
    found = refused(
        tmp_path,
        events=pipeline({"first": first, "second": {"source_uri": "/data/2", **second}}),
    )
    [problem] = found
    assert problem.startswith("pipelines.events.sources.second.id (line ")


@pytest.mark.parametrize("given", ["a/b", "", "_x", "~x"])
def test_an_id_is_a_name(tmp_path: Path, given: str) -> None:
    [problem] = refused(tmp_path, events=pipeline({"main": {"source_uri": "/data/1", "id": given}}))
    assert problem.startswith("pipelines.events.sources.main.id (line ")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("s3://b/raw?versionId=1", "has a ?, a # or a line break"),
        ("s3://b/raw#1", "has a ?, a # or a line break"),
        ("az://c/raw\n", "has a ?, a # or a line break"),
        ("gs://b/raw?x", "has a ?, a # or a line break"),
        ("file://host/raw", "has a host"),
        ("file://raw", "has a host"),
    ],
)
def test_a_uri_that_means_another_place_than_it_says_is_refused(
    tmp_path: Path, uri: str, problem: str
) -> None:
    [found] = refused(tmp_path, events=pipeline({"main": uri}))
    assert problem in found


def test_local_names_may_hold_what_ends_the_path_of_a_uri(tmp_path: Path) -> None:
    assert refused(tmp_path, events=pipeline({"main": "/data/raw?x#1"})) == []


def test_a_missing_account_name_may_be_the_same_account() -> None:
    named = area_of("az://c/x", {"azure_storage_account_name": "one"})
    other = area_of("abfss://c@two.dfs.core.windows.net/x", {})
    unnamed = area_of("az://c/x/y", {})
    assert not named.overlaps(other)
    assert named.overlaps(unnamed)
    assert other.overlaps(unnamed)


@pytest.mark.promise("G-188")
@pytest.mark.parametrize(
    ("template", "depth", "told"),
    [
        ("date=%Y-%m-%d/hour=%H", 1, "must be 2"),
        ("date=%Y-%m-%d", 2, "must be 1"),
        ("date=%Y-%m-%d", 0, "must be 1"),
        ("date=%Y-%m-%d/hour=%H", 2, None),
        ("date=%Y-%m-%d", None, None),
    ],
)
def test_partitions_are_as_deep_as_the_template(
    tmp_path: Path, template: str, depth: int | None, told: str | None
) -> None:
    source = {
        "source_uri": "/data/raw",
        "partition_filter": {"prefix_template": template, "lookback": 2},
        "partition_depth": depth,
    }
    found = refused(tmp_path, events=pipeline({"main": source}))
    assert len(found) == (told is not None)
    for problem in found:
        assert problem.startswith("pipelines.events.sources.main (line ")
        assert f"advanced.partition_depth {told}, the number of components of" in problem


@pytest.mark.parametrize("template", ["/date=%Y-%m-%d", "date=%Y-%m-%d/", "date=%Y//hour=%H"])
def test_a_template_has_no_empty_components(tmp_path: Path, template: str) -> None:
    source = {"source_uri": "/data/raw", "partition_filter": {"prefix_template": template}}
    [problem] = refused(tmp_path, events=pipeline({"main": source}))
    assert "must not begin or end with / or have two in a row" in problem


def test_tables_share_a_folder_by_disjoint_patterns(tmp_path: Path) -> None:
    one, two, rest = (
        {"source_uri": "/data/raw", "include": ["tenant=1/**"]},
        {"path": "/data/./raw", "include": ["tenant={2,3}/**"]},
        {"source_uri": "/data/raw", "exclude": ["tenant={1,2,3}/**"]},
    )
    tables = {"a": one, "b": two, "c": rest}
    assert (
        refused(tmp_path, **{n: pipeline({"m": s}, f"/lake/{n}") for n, s in tables.items()}) == []
    )
    wider = {**two, "include": ["tenant=*/**"]}
    [problem] = refused(
        tmp_path, a=pipeline({"m": one}, "/lake/a"), b=pipeline({"m": wider}, "/lake/b")
    )
    assert "is read by pipelines.a.sources.m.source_uri" in problem
    assert problem.endswith("if the beginnings of their include have no name in common")
    [problem] = refused(tmp_path, a=pipeline({"m": one, "n": two}))
    assert "is read by" in problem
