"""The first screen of the README, run as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blizzard_py.demo.edits import SAMPLE
from tests.support.scenario import ROOT
from tests.support.tutorial import check_output, read_steps, run_steps

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_is_short_and_starts_with_a_command() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert lines.index("make setup && source .venv/bin/activate") < 25


@pytest.mark.timeout(900)
def test_readme_quick_start_prints_the_rows_it_shows(tmp_path: Path) -> None:
    configuration = re.search(r"^```yaml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(configuration[1].splitlines()) == 10
    (tmp_path / "events.yaml").write_text(configuration[1])
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/2015-09-12.json.gz").write_bytes(SAMPLE.read_bytes())
    (step,) = read_steps(README)
    (printed,) = run_steps([step], tmp_path)
    check_output(step, printed)
