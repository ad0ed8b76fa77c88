"""The installed wheel without the repository: base packages alone, then all of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from blizzard_core.extras import EXTRAS
from tests.support.scenario import ROOT

# From the attribution beside the data: rows, sum of added, sum of delta, users, robots.
FACTS = (39_244, 9_385_573, 8_991_275, 10_531, 15_420)

COPIED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")
PACKAGES = ("blizzard_core", "blizzard_py", "penguin_py")
DEPENDENCIES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "dependencies"
]
CONFIG = """
pipelines:
  events:
    sources: { main: { source_uri: ./raw } }
    sink: { table_uri: ./lake }
    schema: { fields: [{ name: id, type: int64 }] }
tables:
  events: { table_uri: ./lake, advanced: { foreign_min_age: 0 } }
"""
# Prints each command with its exit code; what it says on stderr as well.
BASE_COMMANDS = """
import importlib.util, os, sys
os.dup2(1, 2)
for module in ("pyspark", "pandas", "s3fs", "gcsfs", "httpx", "wasmtime"):
    assert importlib.util.find_spec(module) is None, module
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
for group, expected, *arguments in (
    (penguin, 0, "validate", "config.yaml"),
    (penguin, 0, "run", "config.yaml", "--once"),
    (penguin, 0, "status", "config.yaml"),
    (blizzard, 0, "status", "config.yaml"),
    (blizzard, 0, "plan", "config.yaml"),
    (blizzard, 0, "explain", "config.yaml", "raw/1.ndjson"),
    (blizzard, 2, "validate", "config.yaml"),
    (blizzard, 2, "run", "config.yaml", "--once"),
    (blizzard, 2, "demo", "demo"),
):
    try:
        group(arguments)
    except SystemExit as end:
        sys.stdout.flush()
        print(arguments[0], end.code)
        assert end.code == expected, (arguments, end.code)
"""


def run(*command: str | Path, cwd: Path, path: str | None = None) -> str:
    """Run a command without the repository in its environment; return its output."""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | ({} if path is None else {"PATH": path}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def link_base_packages(folder: Path) -> None:
    """Link what a wheel without extras depends on, as it is installed here, into a folder."""
    waiting = [requirement.name for requirement in map(Requirement, DEPENDENCIES)]
    seen: set[str] = set()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or [] if ".." not in file.parts}:
            link = folder / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))
        needed = map(Requirement, found.requires or [])
        waiting += [
            each.name
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    assert {"pyarrow", "deltalake"} <= seen
    assert not {"pyspark", "pandas", "s3fs", "gcsfs"} & seen


def check_base_commands(python: Path, place: Path) -> None:
    """Run Penguin and the commands that need no extra, all in one process."""
    folder = place / "base"
    (folder / "raw").mkdir(parents=True)
    (folder / "raw/1.ndjson").write_text('{"id": 1}\n')
    (folder / "lake").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "lake/1.parquet")
    (folder / "config.yaml").write_text(CONFIG)
    told = run(python, "-c", BASE_COMMANDS, cwd=folder)
    assert "plan 0" in told
    assert "validate 2" in told
    assert told.count("ingestion needs pyspark, which is not installed; run: pip install") == 3
    assert "Traceback" not in told
    assert DeltaTable(folder / "lake").to_pyarrow_table().to_pydict() == {"id": [1]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, since a build writes beside its sources."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in COPIED:
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *offline, "-w", place, source, cwd=place)
    (found,) = place.glob("*.whl")
    return found


def test_the_wheel_holds_the_three_packages_and_nothing_twice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = {name for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in set(names) - metadata} == set(PACKAGES)
    assert any(name.endswith("/NOTICE") for name in metadata)
    for suffix in ("page.html", "scan.wasm", "edits.yaml", ".json.gz"):
        assert sum(name.endswith(suffix) for name in names) == 1, suffix
    modules = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules - set(names) == set()


def test_long_description_has_no_relative_link(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    urls = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]*)\)", text)
    relative = re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) == len(relative)
    assert [link for link in links if not link.startswith("https://")] == []
    tag = f"v{metadata['Version']}"
    pages = re.compile(rf"{re.escape(urls['Repository'])}/(?:blob|raw)/{tag}/([^#]*)")
    found = [match[1] for link in links if (match := pages.match(link))]
    assert "docs/picture.svg" in found
    assert [page for page in found if not (ROOT / page).exists()] == []
    assert f"]({urls['Repository']}/raw/{tag}/docs/picture.svg)" in text
    assert set(metadata.get_all("Provides-Extra", [])) == {*EXTRAS, "all", "dev"}


@pytest.mark.timeout(600)
def test_an_installed_wheel_has_both_commands_and_plays_the_demo(
    wheel: Path, tmp_path: Path
) -> None:
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=empty)
    python = environment / "bin" / "python"
    offline = ("--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel, cwd=empty)
    (found,) = environment.glob("lib/python3*/site-packages")
    link_base_packages(found)
    check_base_commands(python, tmp_path)
    # What its extras depend on is what is installed here; a line in a .pth adds a folder, and not
    # what that folder's own .pth files lead to, such as the repository.
    (found / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    place = run(python, "-c", "import blizzard_py; print(blizzard_py.__file__)", cwd=empty)
    assert place.startswith(str(environment))

    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for program in ("blizzard", "penguin"):
        assert re.search(r"version \d", run(program, "--version", cwd=empty, path=path))
    told = run("blizzard", "demo", cwd=empty, path=path)
    assert "39,244 rows, each exactly once" in told
    lake = empty / "blizzard-demo/lake/wikipedia"
    version = DeltaTable(lake).version()
    again = re.findall(r"^  (blizzard|penguin) (.*?) +# ", told, re.MULTILINE)
    assert len(again) == 4
    for program, arguments in again:
        run(program, *arguments.split(), cwd=empty, path=path)
    assert [p.name for p in empty.iterdir()] == ["blizzard-demo"]
    # Running them again has changed nothing, and other engines read what the attribution says.
    table = DeltaTable(lake)
    assert table.version() == version
    counts = """select count(*), sum(added), sum("delta"), count(distinct "user"),
                count(*) filter ("isRobot") from edits"""
    with duckdb.connect() as db:
        db.register("edits", table.to_pyarrow_dataset())
        assert db.execute(counts).fetchone() == FACTS
    frame = pl.read_delta(table.table_uri)
    assert (frame.height, frame["added"].sum(), frame["user"].n_unique()) == (
        FACTS[0],
        FACTS[1],
        FACTS[3],
    )
