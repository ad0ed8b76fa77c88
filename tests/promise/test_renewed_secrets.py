"""A secret renewed in its file: both daemons end, to be started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core import daemon
from blizzard_core.errors import RENEWED
from blizzard_core.settings.load import load_config
from blizzard_py.app.daemon import run_daemon as blizzard
from penguin_py.app import run_daemon as penguin


@pytest.mark.parametrize("run", [blizzard, penguin], ids=["blizzard", "penguin"])
def test_daemon_ends_with_4_and_the_next_has_the_new_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setattr(daemon, "RENEWAL_SECS", 0)
    secret = tmp_path / "secret"
    secret.write_text("first-one")
    (tmp_path / "raw").mkdir()
    (tmp_path / "table").mkdir()
    document = {
        "pipelines": {
            "events": {
                "sources": {"main": {"source_uri": str(tmp_path / "raw")}},
                "sink": {"table_uri": str(tmp_path / "table")},
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
            }
        },
        "spark": {"conf": {"spark.x.password": f"${{file:{secret}}}"}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    config = load_config(path)
    assert config.spark.conf == {"spark.x.password": "first-one"}
    secret.write_text("second-one\n")
    assert run(config, once=False) == RENEWED
    assert load_config(path).spark.conf == {"spark.x.password": "second-one"}
