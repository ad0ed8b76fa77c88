"""Files written for people are complete, or not written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError
from blizzard_py.commands.starter.yaml_text import write_configuration

# A file may have half a kilobyte or one, as the shell counts, and a configuration has two.
INIT = 'ulimit -f 1; exec "$0" -m blizzard_py init c.yaml --force --source-uri raw --table-uri lake'


@pytest.mark.parametrize("before", [None, "precious: true\n"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, before: str | None) -> None:
    if before is not None:
        (tmp_path / "c.yaml").write_text(before)
    done = subprocess.run(
        ["sh", "-c", INIT, sys.executable],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "File too large" in done.stderr
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == ({} if before is None else {"c.yaml": before})


def test_a_link_and_what_is_no_file_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.yaml").write_text("old")
    (tmp_path / "c.yaml").symlink_to("real/c.yaml")
    write_configuration(tmp_path / "c.yaml", "new")
    assert (tmp_path / "c.yaml").is_symlink()
    assert (tmp_path / "real" / "c.yaml").read_text() == "new"
    write_configuration(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_configuration(tmp_path / "real" / "c.yaml" / "below", "x")
