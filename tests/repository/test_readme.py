"""The README's way to one's own data, run as it stands there, on a disk and on an S3 API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from blizzard_core.storage.opening import open_storage
from tests.support.s3_server import S3Server
from tests.support.scenario import ROOT

FILES = {
    f"{day}/{name}": f'{{"id": {day}, "at": "2026-11-0{day}T10:00:00Z", "who": null}}\n'
    f'{{"id": {day}0, "at": "2026-11-0{day}T11:00:00Z", "who": "ann", "price": 1.5}}\n'
    for day, name in ((1, "1762000000-a.ndjson"), (2, "1762086400-b.json"))
}


def commands(containing: str) -> list[str]:
    """The lines of the README's block that has this, without what is to be set there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (found,) = (block for block in blocks if containing in block)
    lines = [line for line in found.splitlines() if line and not line.startswith("export ")]
    assert {line.split()[0] for line in lines} == {"blizzard", "penguin", "python"}
    return lines


def played(lines: list[str], place: Path, **environment: str) -> str:
    """Run the commands with this package's programs and return their output; each exits with 0."""
    programs = place / "bin"
    programs.mkdir()
    for name in ("blizzard", "penguin"):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name}_py "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    whole = {**kept, "PATH": path, "PYTHONPATH": str(ROOT), **environment}
    told = ""
    for line in lines:
        done = subprocess.run(
            line, shell=True, cwd=place, env=whole, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        told += done.stdout
    return told


def rows_of(told: str) -> set[int]:
    """The ids in the list of rows that the last command prints."""
    return {int(found) for found in re.findall(r"'id': (\d+)", told.splitlines()[-1])}


@pytest.mark.timeout(900)
def test_own_files_are_in_a_table_by_the_commands_of_the_readme(tmp_path: Path) -> None:
    for path, text in FILES.items():
        target = tmp_path / "raw" / path
        target.parent.mkdir(parents=True)
        target.write_text(text)
    told = played(commands("./raw"), tmp_path)
    assert rows_of(told) == {1, 10, 2, 20}


@pytest.mark.timeout(900)
def test_readme_commands_ingest_own_files_from_an_s3_api(tmp_path: Path, s3: S3Server) -> None:
    bucket = s3.new_bucket()
    source = open_storage(f"s3://{bucket}/raw", s3.options)
    for path, text in FILES.items():
        source.put_atomic(path, text.encode())
    lines = [line.replace("BUCKET", bucket) for line in commands("s3://BUCKET")]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    exported = set(re.findall(r"(AWS_[A-Z_]+)=", text))
    given = {**s3.options, "AWS_ALLOW_HTTP": "true"}
    assert set(given) == exported
    told = played(lines, tmp_path, **given)
    assert rows_of(told) == {1, 10, 2, 20}
    # Nothing secret went into the file.
    assert s3.options["AWS_SECRET_ACCESS_KEY"] not in (tmp_path / "s3.yaml").read_text()
