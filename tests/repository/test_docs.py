"""The documents that can be held against the code are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import BaseModel

from blizzard_core import limits
from blizzard_core.settings.document import Config
from blizzard_core.settings.formats import FORMATS
from blizzard_core.settings.json_schema import config_schema, description
from blizzard_core.settings.load import models_in
from blizzard_core.settings.schema import FieldSettings, TypeSettings
from blizzard_core.settings.sources import SourceRangeSettings
from blizzard_core.settings.store_use import NotificationSettings
from blizzard_core.settings.tables import PartitionColumn
from blizzard_core.settings.units import FileUnits, UnitSettings
from blizzard_core.storage.environment import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    S3_SCHEMES,
    VARIABLES,
)
from tests.repository import settings_reference
from tests.repository.limits_reference import LimitLine, named_limits
from tests.repository.settings_reference import configuration_reference, example_configuration
from tests.support.scenario import ROOT

TESTS = ROOT / "tests"
DOCS = ROOT / "docs/reference"


def test_generated_pages_are_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert settings_reference.main(["--check"]) is None
    for folder in ("docs/reference", "configs"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    settings_reference.main([])
    assert settings_reference.main(["--check"]) is None
    Path("docs/reference/configuration.md").write_text("an older one")
    told = settings_reference.main(["--check"])
    assert told == "docs/reference/configuration.md: not what the settings say; run `make docs`"


def blocks(model: type[BaseModel]) -> set[type[BaseModel]]:
    """Return the model and all models in it."""
    found, left = set(), [model]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [m for f in one.model_fields.values() for m, _ in models_in(f.annotation)]
    return found


def test_every_key_has_a_description_and_a_default_or_example() -> None:
    models = blocks(Config)
    assert {"SourceSettings", "TypeSettings", "VacuumSettings"} <= {m.__name__ for m in models}
    for model in models:
        for name in model.model_fields:
            told = description(model, name)
            assert told.endswith("."), f"{model.__name__}.{name} needs a docstring: {told!r}"
    shown = example_configuration()
    for model in models - {PartitionColumn, TypeSettings, FieldSettings, *FORMATS}:
        for name, field in model.model_fields.items():
            assert re.search(rf"^[ #]*{field.alias or name}:", shown, re.MULTILINE), name
    assert "null #" not in shown
    assert ": null" not in shown


# Keys of a table or an API that go with another kind than the one that is shown.
ANOTHER_KIND = {"query", "body", "next", "bound", "end_on"}


def test_commented_keys_of_the_example_are_valid() -> None:
    """Every line that shows a key, without its mark, but for what goes instead of another."""
    models = blocks(Config)
    keys = {f.alias or name for model in models for name, f in model.model_fields.items()}
    keys -= ANOTHER_KIND
    key = re.compile(rf"( *)# ((?:# )? *(?:{'|'.join(keys)}):(?: |$).*)")
    lines = []
    for line in example_configuration().splitlines():
        text = line
        if "# For offset, page and cursor: " in line:  # not of kind none
            continue
        while (commented := key.fullmatch(text)) is not None:
            text = f"{commented[1]}{commented[2]}"
        if not text.lstrip().startswith(("#", "columns:")):
            lines.append(text)
    document = yaml.safe_load("\n".join(lines).replace("${BUCKET:-", "").replace("}/", "/"))
    assert [*jsonschema.Draft202012Validator(config_schema()).iter_errors(document)] == []
    document["connections"]["lake"]["driver"] = "iceberg"  # the one with options
    for source in document["pipelines"]["events"]["sources"].values():
        if "notifications" in source:  # instead of a budget, and of a queue with a token
            NotificationSettings.model_validate({**source.pop("notifications"), "token": None})
        if "range" in source.get("advanced", {}):  # instead of the lookback
            SourceRangeSettings.model_validate(source["advanced"].pop("range"))
        if "cooldown" in source.get("units", {}) and "source_uri" in source:
            FileUnits.model_validate(source.pop("units"))  # instead of the watermark as well
        elif "units" in source:  # instead of the watermark that is shown
            assert UnitSettings.model_validate(source.pop("units")).range is not None
    config = Config.model_validate(document)
    assert config.tables["events"].vacuum is not None
    assert config.pipelines["events"].sources["main"].advanced.partition_depth == 2


def key_paths(page: str) -> set[str]:
    """Return the keys of the reference, each with its block."""
    return {
        f"{block}.{key}"
        for section in f"## ``{page}".split("\n## `")
        for block in [section.partition("`")[0]]
        for line in re.findall(
            r"^(?:\| `\w+` \||Blocks described below: .*)", section, re.MULTILINE
        )
        for key in re.findall(r"`(\w+)`", line)
    }


def test_the_reference_has_few_keys_outside_advanced() -> None:
    known = key_paths(configuration_reference())
    assert len(known) > 240
    parts = [path.split(".") for path in known]
    assert len([p for p in parts if "advanced" not in p and "format" not in p[:-1]]) <= 180


def test_the_reference_has_every_key_its_type_default_and_remark() -> None:
    text = configuration_reference()
    for line in (
        "## `pipelines.NAME.sources.NAME.advanced.checkpoint`",
        '| `poll_interval` | duration, > 0 | `"1m"` | Time between polls. |',
        '| `order_guard` | `warn` `fail` `off` | `"warn"` | Reaction to names that',
        "| `total_concurrency` | whole number, ≥ 1, ≤ 256 | `8` |",
        '| `grace_period` | duration, ≥ 0 or `auto` | `"5m"` |',
        "| `table_uri` | text | **required** |",
    ):
        assert line in text


@cache
def files_of_tests() -> tuple[Path, ...]:
    return tuple(TESTS.rglob("test_*.py"))


@cache
def defined_in(file: str) -> frozenset[str]:
    (path,) = (path for path in files_of_tests() if path.name == file)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef))


def test_every_row_of_the_threat_model_names_a_test() -> None:
    text = (ROOT / "docs/design/threat-model.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.endswith("| what holds | test |")
    ]
    assert len(rows) > 30
    for row in rows:
        found = re.findall(r"`(test_\w+\.py)::(\w+)`", row)
        assert found, row
        for file, name in found:
            assert name in defined_in(file), f"{file}::{name}"


# --- guides ----------------------------------------------------------------------------------


def test_script_of_the_guide_finds_a_person(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/delete-rows.md").read_text("utf-8")
    found = re.search(r"```python\n(# find\.py.*?)```", guide, re.DOTALL)
    (tmp_path / "find.py").write_text(found[1], "utf-8")
    table = pa.table({"user": ["a@b", "zoe@b", "c@b"] * 99, "deep": [[{"x": "deep@b"}]] * 297})
    place = tmp_path / "lake/_blizzard/dlq"
    place.mkdir(parents=True)
    pq.write_table(table, tmp_path / "lake/1.parquet", compression="zstd", write_statistics=False)
    (place / "1.records.ndjson").write_text('{"raw": "zoe@b"}\n')
    (place / "2.records.ndjson").write_text('{"raw": "a@b"}\n')
    for word, objects in (("zoe@b", 2), ("deep@b", 1), ("nobody@b", 0)):
        command = [sys.executable, str(tmp_path / "find.py"), str(tmp_path / "lake"), word]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == objects, word


# --- object stores ---------------------------------------------------------------------------


def test_the_page_of_stores_has_each_variable_in_its_row() -> None:
    text = (DOCS / "object-stores.md").read_text("utf-8")
    rows = re.findall(r"^\| (S3|GCS|Azure): .*", text, re.MULTILINE)
    assert len(rows) == 6
    for store, schemes in (("S3", S3_SCHEMES), ("GCS", GCS_SCHEMES), ("Azure", AZURE_SCHEMES)):
        found = re.findall(rf"^\| {store}: (.*)", text, re.MULTILINE)
        assert set(re.findall(r"`([A-Z][A-Z0-9_]+)`", " ".join(found))) == set(VARIABLES[schemes])


# --- metrics ---------------------------------------------------------------------------------


def test_metrics_for_users_of_the_original_exist() -> None:
    text = (ROOT / "docs/guides/move-from-original.md").read_text("utf-8")
    rows = re.findall(r"^\| (`(?:blizzard|penguin)_.*) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) > 10
    known = set(re.findall(r"^\| `(\w+)", (DOCS / "metrics.md").read_text("utf-8"), re.MULTILINE))
    for theirs, ours in rows:
        names = theirs if ours.startswith("the same name") else ours
        assert known.issuperset(re.findall(r"`((?:blizzard|penguin)_\w+)`", names)), theirs


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", list(named_limits()), ids=lambda bound: bound.name)
def test_every_limit_names_an_existing_test_and_key(bound: LimitLine) -> None:
    file, _, name = bound.test.partition("::")
    assert name in defined_in(file)
    assert bound.value > 0
    if bound.key:
        section, _, key = bound.key.rpartition(".")
        text = configuration_reference().partition(f"## `{section}`\n")[2]
        row = next(line for line in text.splitlines() if line.startswith(f"| `{key}` |"))
        assert f"| `{bound.value}` |" in row


def test_every_limit_is_used_by_the_code() -> None:
    """Each name of the module is imported and used by a module of the product."""
    names = {name for name, value in vars(limits).items() if name.isupper() and type(value) is int}
    assert len(names) == len(list(named_limits())) > 30
    taken: set[str] = set()
    for package in ("blizzard_core", "blizzard_py", "penguin_py"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            imported = {
                alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module == limits.__name__
                for alias in node.names
            }
            used = {
                node.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            taken |= imported & used
    assert names - taken == set()
