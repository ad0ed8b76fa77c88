"""The extra parts of Penguin's page: commits, the sources of a table, commands."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click
import pytest

from blizzard_core.delta_json import commit_path
from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.heartbeat import source_heartbeat
from blizzard_core.observability.peer_state import source_state_path
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from penguin_py.__main__ import main
from penguin_py.activity import TableActivity
from penguin_py.page import page_providers, table_commands
from tests.support.delta_commits import commit
from tests.support.heartbeat_samples import heartbeat_of

# Commits here are single lines of a log.
pytestmark = pytest.mark.unreadable_tables

CONFIG = """
pipelines:
  events:
    sources:
      main: {{ source_uri: "{0}/raw", advanced: {{ compression: none }} }}
      other: {{ source_uri: "{0}/other", id: chosen, advanced: {{ compression: none }} }}
    sink: {{ table_uri: "{0}/lake" }}
    schema: {{ fields: [{{ name: a, type: string }}] }}
"""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(tmp_path))
    return load_config(path)


def answer(lookups: BackgroundCache | None, key: str) -> CachedDocument:
    lookups.ask(key)
    lookups.look()
    return lookups.ask(key)


def test_a_table_shows_the_sources_that_feed_it(config: Any, tmp_path: Path) -> None:
    providers = page_providers(config, "config.yaml")
    assert answer(providers.peer, "events").document == []
    lake = LocalStorage(str(tmp_path / "lake"))
    state = (
        b'{"watermark": {"state": "Active", "value": "x"}, "totals": {"rows": 7}, "in_flight": [1]}'
    )
    lake.put_atomic(source_state_path("chosen"), state)
    [told] = answer(page_providers(config, "config.yaml").peer, "events").document
    assert (told["name"], told["watermark"], told["rows"]) == ("chosen", "x", 7)
    assert told["in_flight"] == 1


def test_page_warns_of_sources_that_no_blizzard_runs(config: Any, tmp_path: Path) -> None:
    lake = LocalStorage(str(tmp_path / "lake"))
    lake.put_atomic(source_state_path("chosen"), b"{}")
    for ended in (False, True):
        beat = heartbeat_of(at=time.time(), ended=ended)
        lake.put_atomic(source_heartbeat("chosen"), beat)
        providers = page_providers(config, "config.yaml")
        found = providers.notices({}, answer(providers.peer, "events"))
        assert len(found) == ended
        assert all("chosen: Blizzard does not run" in notice.text for notice in found)


def test_a_tables_past_is_its_log(config: Any, tmp_path: Path) -> None:
    assert answer(page_providers(config, "config.yaml").history, "events").document == {
        "commits": []
    }
    lake = LocalStorage(str(tmp_path / "lake"))
    for version in range(3):
        lake.put_atomic(commit_path(version), commit(f"{version}.parquet"))
    told = answer(page_providers(config, "config.yaml").history, "events").document
    assert [each["version"] for each in told["commits"]] == [2, 1, 0]
    assert "paths" not in told["commits"][0]


def test_every_command_is_one_that_exists() -> None:
    activity = TableActivity("events", "s3://lake/events", lambda: 0.0)
    activity.stands({"events_main": {"blocked": "waits"}, "other": {"blocked": None}})
    target = activity.to_json()
    target["letters"] = [{}]
    target["pulse"]["kind"] = "ConfigError"
    told = list(table_commands("/etc/a b.yaml", target))
    assert sum("discard" in each.command for each in told) == 1
    for each in told:
        program, name, *words = shlex.split(each.command)
        assert words[0] == "/etc/a b.yaml"
        if program == "blizzard":
            continue
        found = main.commands[name]
        assert isinstance(found, click.Command)
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
