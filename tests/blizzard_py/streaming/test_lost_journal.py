"""A query over event time whose journal lost an object: mended, and its state is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.errors import StateError
from blizzard_core.settings.document import Config
from blizzard_py.__main__ import main
from blizzard_py.app.engine import NoEngine
from blizzard_py.app.wiring import context_of, owner_context
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.state import checkpoint_document
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of
from tests.support.flat_settings import nested
from tests.support.stream_deaths import drain_and_die

ONE: dict[str, dict[str, Any]] = {"web": {}}
TWO: dict[str, dict[str, Any]] = {"web": {}, "app": {}}
WEB = ("--pipeline", "pages", "--source", "web")


def world_of(
    folder: Path, engine: SparkEngine, sources: dict[str, dict[str, Any]], grace: int = 0
) -> tuple[EventTimeHarness, Oracle]:
    """Two batches with windows open at their end."""
    own: dict[str, Any] = {"grace_period": f"{grace}s", "late_files": "ingest"}
    sources = dict.fromkeys(sources, own)
    world, oracle = EventTimeHarness(folder, engine, sources=sources), Oracle(TUMBLING, sources)
    for second in (100, 112):
        put(world, oracle, second)
    world.drain()
    return world, oracle


def put(world: EventTimeHarness, oracle: Oracle, second: float) -> None:
    """Bring a file of each source, for one batch."""
    files = {world.put(some, name): some for name in world.sources for some in [[row(second)]]}
    oracle.add_batch(files, whose=world.whose)


def step(world: EventTimeHarness, oracle: Oracle, second: float) -> None:
    """A batch of a new process."""
    oracle.restart()
    put(world, oracle, second)
    world.drain()


def lose(world: EventTimeHarness, source: str, *, everything: bool = False) -> None:
    objects = sorted((world.root / f"table/_blizzard/journal/pages_{source}").iterdir())
    for path in objects if everything else objects[:1]:
        path.unlink()


def rebuild(
    world: EventTimeHarness, source: str = "web", done_before: str | None = None
) -> list[str]:
    job = Rebuild(owner_context(world.config(), ("pages", source)), source)
    found = job.plan(done_before)
    assert job.write(found) is not None
    return list(found.by_operator)


def goes_on(world: EventTimeHarness, oracle: Oracle) -> None:
    """Check that the rows equal brute force: no loss, and no file twice."""
    for own in world.sources.values():
        own["late_sweep_interval"] = "1ms"  # each process looks for files that came late
    step(world, oracle, 145)
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert windows_of(world.table()) == oracle.emitted
    assert world.late() == oracle.late
    assert world.packs() == world.stream().objects


@pytest.mark.promise("G-067")
@pytest.mark.parametrize(("grace", "everything"), [(0, True), (300, False)])
def test_a_rebuild_keeps_what_the_query_remembers(
    tmp_path: Path, spark_engine: SparkEngine, grace: int, *, everything: bool
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, ONE, grace)
    before = world.stream()
    lose(world, "web", everything=everything)
    with pytest.raises(StateError, match="or accept what the checkpoint has passed"):
        world.drain()
    assert rebuild(world) == ["0001.ndjson", "0002.ndjson"][: 1 + everything]
    assert world.stream() == before
    goes_on(world, oracle)
    assert rebuild(world) == []  # nothing is left to mend


def test_a_batch_that_is_being_published_goes_on(tmp_path: Path, spark_engine: SparkEngine) -> None:
    world, oracle = world_of(tmp_path, spark_engine, ONE)
    rows = [row(130)]
    files = {world.put(rows): rows}
    assert drain_and_die(world, "6-published")
    oracle.restart()
    oracle.add_batch(files)
    lose(world, "web", everything=True)
    assert rebuild(world) == ["0001.ndjson", "0002.ndjson"]
    goes_on(world, oracle)


@pytest.mark.promise("G-067")
def test_a_source_of_several_is_mended_with_the_others(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, TWO)
    lose(world, "app")
    lose(world, "web", everything=True)
    with pytest.raises(StateError, match="or accept what the checkpoint has passed"):
        world.drain()
    assert sorted(rebuild(world, "app")) == [
        "app:0002.ndjson",
        "web:0001.ndjson",
        "web:0003.ndjson",
    ]
    goes_on(world, oracle)


@pytest.mark.promise("G-067")
def test_names_in_grace_that_only_the_journal_had_need_a_word(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_document, "INLINE_NAMES", 0)
    world, oracle = world_of(tmp_path, spark_engine, TWO, 300)
    for name in TWO:
        lose(world, name)
    with pytest.raises(StateError, match="that the checkpoint counts"):
        world.drain()
    with pytest.raises(EditRefused, match="which the checkpoint needs, is missing"):
        rebuild(world)
    assert rebuild(world, "web", "0005") == ["web:0001.ndjson"]
    with pytest.raises(EditRefused, match=r"pages/app: .* is missing"):
        rebuild(world, "web")
    assert rebuild(world, "app", "0005") == ["app:0002.ndjson"]
    goes_on(world, oracle)


@pytest.mark.promise("G-067")
def test_rebuild_rejects_a_stale_damaged_or_missing_checkpoint(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    world, oracle = world_of(tmp_path, spark_engine, ONE)
    path = tmp_path / "table/_blizzard/pages_web_checkpoint.json"
    older = path.read_bytes()
    step(world, oracle, 130)
    newest = path.read_bytes()
    for content, why in ((older, "is stale"), (b"{", "is damaged"), (None, "is gone")):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        for word in (None, "0009"):
            with pytest.raises(EditRefused, match=f"{why}.* a new pipeline"):
                rebuild(world, done_before=word)
        assert (path.read_bytes() if path.exists() else None) == content
    path.write_bytes(newest)
    goes_on(world, oracle)


def test_a_source_with_a_shared_checkpoint_gets_none_of_its_own(tmp_path: Path) -> None:
    world = EventTimeHarness(tmp_path, NoEngine(), sources=TWO)
    for name in TWO:
        with pytest.raises(EditRefused, match="shares its checkpoint"):
            Rebuild(context_of(world.config(), ("pages", name), NoEngine())).plan("0009")
    assert not (tmp_path / "table").exists()


def test_the_command_says_what_it_takes_for_done(tmp_path: Path, spark_engine: SparkEngine) -> None:
    world, oracle = world_of(tmp_path, spark_engine, ONE)
    lose(world, "web")
    config = tmp_path / "config.yaml"
    document = world.config().model_dump(
        mode="json", by_alias=True, include={"pipelines", "spark"}, exclude_defaults=True
    )
    config.write_text(yaml.safe_dump(nested(Config, document), sort_keys=False))
    told = CliRunner().invoke(main, ["checkpoint", "rebuild", str(config), *WEB, "--yes"])
    assert told.exit_code == 0, told.output
    assert "1 of these only because you, or the checkpoint that was there, say so" in told.output
    goes_on(world, oracle)
    story = CliRunner().invoke(
        main, ["explain", str(config), str(world.raw("web") / "0001.ndjson"), "--json"]
    )
    assert json.loads(story.stdout)["verdict"], story.output
