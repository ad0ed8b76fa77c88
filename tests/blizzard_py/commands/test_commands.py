"""The command lines as people meet them: help, tables and pipes, completion, wrong turns."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_core.cli import SECTIONS, GuidedCommand, GuidedGroup, Trouble, print_table
from blizzard_core.errors import StorageError
from blizzard_core.settings.load import load_config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.yaml_file import load_yaml
from blizzard_py.__main__ import main as blizzard
from blizzard_py.commands.starter import sample
from blizzard_py.commands.starter.yaml_text import quoted
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.s3_server import S3Server
from tests.support.scenario import ROOT, Scenario, scenario_on

HOSTILE = "\x1b[31m[bold]x[/]\u202e"


def invoke(*arguments: str, program: click.Group = blizzard, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, arguments, input=stdin)


def on_terminal(*command: str, typed: str = "", **environment: str) -> tuple[int, str]:
    """Run a program on a pseudo-terminal; its exit code and all it printed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode() + b"\n")
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass  # how a pseudo-terminal says that the other side is gone
    os.close(ours)
    return process.wait(timeout=60), seen.decode()


# -- help --------------------------------------------------------------------


def commands_of(group: click.Group, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands_of(command, *path, name)
    return found


EVERY = [
    (program, path, command)
    for program, group in (("blizzard", blizzard), ("penguin", penguin))
    for path, command in [((), group), *commands_of(group)]
]


@pytest.mark.parametrize(
    ("program", "path", "command"), EVERY, ids=[" ".join((p, *path)) for p, path, _ in EVERY]
)
def test_every_command_teaches_with_examples_that_parse(
    program: str, path: tuple[str, ...], command: click.Command
) -> None:
    assert isinstance(command, GuidedCommand | GuidedGroup)
    main = blizzard if program == "blizzard" else penguin
    done = invoke(*path, "--help", program=main)
    assert done.exit_code == 0
    assert "Examples:" in done.output
    for example in command.examples:
        assert example in done.output
        line = re.sub(r"\s#.*| \d?[|>].*|^eval \"\$\(|\)\"\s*$", "", example.partition("  #")[0])
        words = shlex.split(line.removesuffix(')"'))
        assert words[0] == program
        parsed: click.Command = main
        rest = words[1:]
        while isinstance(parsed, click.Group):
            name, found, rest = parsed.resolve_command(click.Context(parsed), rest)
            assert found is not None, name
            parsed = found
        parsed.make_context(parsed.name, list(rest), resilient_parsing=False)


def test_help_groups_commands_by_purpose_and_forgets_none() -> None:
    for program, group in (("blizzard", blizzard), ("penguin", penguin)):
        text = invoke("--help", program=group).output
        headings = [line for line in text.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)]
        assert headings == ["Options:", "Set up:", "Run:", "Inspect:", "Repair:", "Examples:"]
        for found, path, command in EVERY:
            if found == program and path:
                assert getattr(command, "section", "") in SECTIONS
                assert re.search(rf"^  {path[0]}\s", text, re.MULTILINE), path


# -- tables, pipes, hostile text -----------------------------------------------


def test_a_pipe_gets_aligned_columns_and_nothing_else(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    for command in ("plan", "status"):
        out = scenario.run("blizzard", command, str(scenario.config)).stdout
        assert out.isascii()
        assert out.isprintable() or set(out) - {"\n"} == {c for c in out if c.isprintable()}
        head, row = out.splitlines()
        assert head.index("state") == row.index("Initial")


def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    for program in ("blizzard_py", "penguin_py"):
        code, text = on_terminal(program, "plan", str(scenario.config))
        assert code == 0, text
        assert "┃" in text or "│" in text


@pytest.mark.promise("G-187")
def test_foreign_text_is_harmless_in_tables_and_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_table(("a", "b"), [[HOSTILE, None]])
    plain = capsys.readouterr().out
    shown = "\\x1b[31m[bold]x[/]\\u202e"
    assert plain == f"{'a':<{len(shown)}}  b\n{shown}  -\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("a", "b"), [[HOSTILE, None]])
    drawn = capsys.readouterr().out
    assert "\\x1b[31m[bold]x[/]\\u202e" in drawn
    assert "\u202e" not in drawn


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    path = "date=2024-01-28/hour=14/1706450400-6fa459ea-ee8a-4ca4-894e-db77e160355e.ndjson.gz"
    rows = [["events/main", path, "7"], ["events/other", None, "0"]]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(("source", "watermark", "letters"), rows)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    if width == 200:
        assert any("events/main" in line and path in line and "│" in line for line in lines)
    else:
        assert lines == [
            "events/main",
            f"  watermark  {path}",
            "  letters    7",
            "events/other",
            "  letters    0",
        ]


def test_trouble_has_a_colour_where_somebody_looks_and_wants_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [["events/main", Trouble("7")]]
    print_table(("source", "letters"), rows)
    assert capsys.readouterr().out == "source       letters\nevents/main  7\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for columns in ("200", "10"):
        monkeypatch.setenv("COLUMNS", columns)
        print_table(("source", "letters"), rows)
        assert "\x1b[31m7" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("source", "letters"), rows)
    assert "\x1b[31m" not in capsys.readouterr().out


# -- errors ------------------------------------------------------------------


def test_errors_are_one_line_and_verbose_adds_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "nowhere.yaml")
    for arguments in (
        ("plan", missing),
        ("--verbose", "plan", missing),
        ("plan", missing, "--verbose"),
    ):
        for program in (blizzard, penguin):
            done = invoke(*arguments, program=program)
            assert done.exit_code == 2
            assert done.stderr.startswith(f"error: {missing}: 1 problem")
            assert ("Traceback" in done.stderr) == ("--verbose" in arguments)

    def broken(*_: object, **_more: object) -> Any:
        raise TypeError(f"oops {HOSTILE}")

    monkeypatch.setattr("blizzard_py.app.inspection.plan", broken)
    scenario = Scenario(tmp_path, str(tmp_path))
    done = invoke("plan", str(scenario.config))
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "unexpected TypeError: oops \\x1b" in done.stderr
    assert "--verbose" in done.stderr
    assert "Traceback" in invoke("-v", "plan", str(scenario.config)).stderr


# -- completion ----------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", [blizzard, penguin])
def test_completion_prints_a_script(program: click.Group, shell: str) -> None:
    name = "blizzard" if program is blizzard else "penguin"
    done = invoke("completion", shell, program=program)
    assert done.exit_code == 0
    assert f"_{name.upper()}_COMPLETE={shell}_complete" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def completion_env(line: str) -> dict[str, str]:
    return {
        "_BLIZZARD_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def completed(line: str) -> list[str]:
    done = CliRunner().invoke(blizzard, env=completion_env(line), prog_name="blizzard")
    assert done.exit_code == 0, done.output
    return [found.partition(",")[2] for found in done.stdout.split()]


def test_names_are_completed_from_the_configuration(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document["pipelines"]["events"]["sources"]["extra"] = {"path": str(tmp_path / "e")}
    scenario.write_config()
    config = scenario.config
    done = subprocess.run(
        [sys.executable, "-m", "blizzard_py"],
        cwd=ROOT,
        env={**os.environ, **completion_env("blizzard ")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain,dlq\n" in done.stdout
    assert completed(f"blizzard replay {config} --pipeline ") == ["events"]
    assert completed(f"blizzard dlq list {config} --pipeline events --source ") == ["extra", "main"]
    assert completed(f"blizzard checkpoint show {config} --source m") == ["main"]
    assert completed("blizzard replay nowhere.yaml --pipeline ") == []


# -- dead letters --------------------------------------------------------------


@pytest.fixture(params=["local", "s3"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """One file is ingested, one was given up."""
    found = scenario_on(request.param, request)
    found.put_rows("date=2024-01-01/1.json.gz", 1)
    found.put(f"date=2024-01-01/2{HOSTILE[:5]}.json.gz", gzip.compress(b'{"id": "x"}\n'))
    found.ingest()
    return found


WHERE = ("--pipeline", "events", "--source", "main")


def test_dead_letters_are_listed_and_replayed_once(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    config = str(scenario.config)
    shown = invoke("dlq", "list", config)
    assert shown.exit_code == 0, shown.output
    assert "\\x1b[31m" in shown.stdout
    assert "\x1b" not in shown.stdout
    [letter] = map(json.loads, invoke("dlq", "list", config, "--json").stdout.splitlines())
    assert (letter["source"], letter["kind"], letter["line"]) == ("events/main", "files", None)
    assert "line 1" in letter["error"]
    assert invoke("dlq", "list", config, "--limit", "0").stdout.count("\t") == 6
    status = json.loads(invoke("status", config, "--json").stdout)
    assert status["pipelines"]["events"]["sources"]["main"]["dead_letters"]["objects"] == 1

    replay = ("replay", config, *WHERE)
    assert invoke(*replay).exit_code == 2
    assert "give --all, or which: --letter" in invoke(*replay).stderr
    assert invoke(*replay, "--all", "--stage", "parse").exit_code == 2
    assert invoke(*replay, "--since", "yesterday").exit_code == 2
    assert "No open dead letters like that." in invoke(*replay, "--stage", "late").stdout
    assert "No open dead letters like that." in invoke(*replay, "--since", "2100-01-01").stdout
    none = invoke(*replay, "--stage", "late", "--json")
    assert (json.loads(none.stdout)["files"], none.exit_code) == ([], 0)
    assert invoke("replay", config, "--refused", "--assume-named").exit_code == 2
    wrong = invoke(*replay, "--letter", "nonsense")
    assert (wrong.exit_code, "blizzard dlq list" in wrong.stderr) == (2, True)
    dry = invoke(*replay, "--all", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "1 would ingest" in dry.stdout

    failed = invoke(*replay, "--letter", letter["id"], "--json")
    again = json.loads(failed.stdout)
    assert (failed.exit_code, again["rows"]) == (1, 0), failed.output
    assert [file["state"] for file in again["files"]] == ["quarantined"]
    scenario.put_rows(f"date=2024-01-01/2{HOSTILE[:5]}.json.gz", 2, 3)
    done = invoke(*replay, "--reason", "line 1")
    assert done.exit_code == 0, done.output
    assert "2 rows of 1 file are in." in done.stdout
    assert "No open dead letters." in invoke(*replay, "--all").stdout
    assert invoke("dlq", "list", config, "--json").stdout == ""
    put_away = invoke("dlq", "list", config, "--replayed").stdout
    assert put_away.count("(replayed)") == 2
    scenario.commit()
    assert scenario.ids() == [1, 2, 3]
    # The names are back in use for what the live daemon does next.
    scenario.put_rows("date=2024-01-01/3.json.gz", 4)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, 4]


def test_listing_reports_more_letters_and_foreign_objects(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    letter = {"path": HOSTILE, "error": "e", "stage": "s", "timestamp": "2024-01-01T00:00:00+00:00"}
    lines = f"{json.dumps(letter)}\n" * 3
    scenario.table.put_atomic("_blizzard/dlq/events_main/a.ndjson", lines.encode())
    config = str(scenario.config)
    some = invoke("dlq", "list", config, "--limit", "2")
    assert len(some.stdout.splitlines()) == 3
    assert "There are more than 2" in some.stderr
    assert "There are more" not in invoke("dlq", "list", config, "--limit", "3").stderr
    scenario.table.put_atomic("_blizzard/dlq/events_main/b.ndjson", b"junk\n")
    broken = invoke("dlq", "list", config)
    assert broken.exit_code == 1
    assert "b.ndjson: line 1 is not a dead letter" in broken.stderr
    assert len(broken.stdout.splitlines()) == 4
    nobody = invoke("dlq", "list", config, "--pipeline", "x")
    assert (nobody.exit_code, "known: events/main" in nobody.stderr) == (2, True)


# -- checkpoints ---------------------------------------------------------------


def test_checkpoints_are_shown_changed_and_reset(scenario: Scenario) -> None:
    config = str(scenario.config)
    shown = invoke("checkpoint", "show", config, *WHERE)
    assert shown.exit_code == 0, shown.output
    assert "epoch 1" in shown.stdout
    assert "date=2024-01-01" in shown.stdout
    document = json.loads(invoke("checkpoint", "show", config, *WHERE, "--json").stdout)
    assert document["checkpoint"]["watermark"]["state"] == "Idle"
    assert document["backups"] == []

    change = ("checkpoint", "set", config, *WHERE, "--partition", "date=2024-01-01")
    dry = invoke(*change, "--watermark", "", "--dry-run")
    assert dry.exit_code == 1
    assert "reset it instead" in dry.stderr
    wrong = invoke(*change[:-1], "nonsense", "--watermark", "x", "--yes")
    assert (wrong.exit_code, "is no partition of this source" in wrong.stderr) == (1, True)
    dry = invoke(*change, "--watermark", "1.json.gz", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "1 passed file would be ingested" in dry.stdout
    assert "\x1b" not in dry.stdout
    unasked = invoke(*change, "--watermark", "1.json.gz")
    assert (unasked.exit_code, "--yes to confirm" in unasked.stderr) == (2, True)
    done = invoke(*change, "--watermark", "1.json.gz", "--yes")
    assert done.exit_code == 0, done.output
    assert "epoch-1.bak" in done.stdout
    assert "epoch-1.bak" in invoke("checkpoint", "show", config, *WHERE).stdout

    assert invoke("checkpoint", "reset", config, *WHERE, "--yes").exit_code == 0
    plan = json.loads(invoke("plan", config, "--json").stdout)
    assert len(plan["pipelines"]["events"]["sources"]["main"]["files"]) == 2


def test_a_reset_asks_for_the_name_on_a_terminal(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("1.json.gz", 1)
    scenario.document["pipelines"]["events"]["sink"].pop("partition_by")
    scenario.write_config()
    scenario.ingest()
    command = ("blizzard_py", "checkpoint", "reset", str(scenario.config), *WHERE)
    code, text = on_terminal(*command, typed="events")
    assert (code, "Nothing was changed" in text) == (1, True), text
    assert load(scenario)["watermark"]["state"] == "Idle"
    code, text = on_terminal(*command, typed="events/main")
    assert (code, "Changed." in text) == (0, True), text
    assert load(scenario)["watermark"]["state"] == "Initial"


def load(scenario: Scenario) -> dict[str, Any]:
    return json.loads(scenario.table.read("_blizzard/events_main_checkpoint.json"))


# -- init ----------------------------------------------------------------------


def test_init_writes_a_configuration_that_validates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("init")
    assert done.exit_code == 0, done.output
    assert "will be inferred from the first files" in done.stdout
    assert load_config(tmp_path / "blizzard.yaml").pipelines["events"].schema_.infer
    refused = invoke("init")
    assert (refused.exit_code, "--force" in refused.stderr) == (2, True)
    raw = tmp_path / "raw" / "date=2024-01-01"
    raw.mkdir(parents=True)
    rows: list[dict[str, object]] = [
        {"a": 1, "b": 1.5, "c": True, "t": "2024-01-01T00:00:00Z", "s": "x", "o": {"k": 1}},
        {"a": 2, "n": None, "m": 1, "odd name": 1},
        {"a": 3, "m": "x", "later": [1]},
    ]
    for hour, row in enumerate(rows):
        (raw / f"hour=0{hour}").mkdir()
        text = gzip.compress(json.dumps(row).encode() + b"\n")
        (raw / f"hour=0{hour}" / "1.ndjson.gz").write_bytes(text)
    again = invoke("init", "--force")
    assert "10 fields, from 3 records of 3 files." in again.stdout
    assert "Directories are named date=%Y-%m-%d/hour=%H" in again.stdout
    pipeline = load_config(tmp_path / "blizzard.yaml").pipelines["events"]
    assert {f.name: f.type for f in pipeline.schema_.fields} == {
        "a": "int64",
        "b": "float64",
        "c": "boolean",
        "t": "timestamp",
        "s": "string",
        "o": "struct",
        "n": "string",
        "m": "string",
        "odd_name": "int64",
        "later": "list",
    }
    assert [f.from_ for f in pipeline.schema_.fields if f.from_] == ["odd name"]
    assert [f.name for f in pipeline.schema_.fields if f.coerce] == ["n", "m"]
    [source] = pipeline.sources.values()
    assert isinstance(source, SourceSettings)
    assert source.partition_filter.prefix_template == "date=%Y-%m-%d/hour=%H"
    plan = invoke("plan", "blizzard.yaml")
    assert plan.exit_code == 0, plan.output


def test_init_writes_paths_that_are_right_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "1.ndjson").write_text('{"a": 1}\n')
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    done = invoke("init", "conf/a.yaml", "--source-uri", "./raw", "--table-uri", "./conf/lake")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "conf" / "a.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=./blizzard.schema.json\n")
    assert ('source_uri: "../raw"' in text, 'table_uri: "./lake"' in text) == (True, True)
    monkeypatch.chdir("/")
    for config in (tmp_path / "conf" / "a.yaml", tmp_path / "conf"):
        plan = json.loads(invoke("plan", str(config), "--json").stdout)
        [source] = plan["pipelines"]["lake"]["sources"].values()
        assert [file["path"] for file in source["files"]] == ["1.ndjson"]


def test_init_looks_at_files_from_all_over_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for day in range(1, 29):
        for hour in range(3):
            folder = tmp_path / f"raw/date=2024-01-{day:02}/hour={hour:02}"
            folder.mkdir(parents=True)
            (folder / "1.ndjson").write_text(json.dumps({"n": None if day < 28 else 1.5}))
    monkeypatch.setattr(sample, "WHOLE_FILES", 80)
    monkeypatch.setattr(sample, "SAMPLE_FILES", 8)
    assert "from 8 records of 8 files" in invoke("init").stdout
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert "from 84 records of 84 files" in invoke("init", "--force").stdout
    assert "# From all 84 records of 84 files;" in (tmp_path / "blizzard.yaml").read_text()
    [field] = load_config(tmp_path / "blizzard.yaml").pipelines["events"].schema_.fields
    assert field.type == "float64"


def test_init_proposes_columns_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for region in "eu", "us":
        file = tmp_path / f"raw/date=2024-01-28/region={region}/tenant=17/1.json"
        file.parent.mkdir(parents=True)
        file.write_text('{"id": 1, "tenant": 17}')
    assert "From folders: region." in invoke("init").stdout
    source = load_config(Path("blizzard.yaml")).pipelines["events"].file_sources["main"]
    assert source.path_columns == {"region": "string"}


def test_init_marks_what_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    rows = ({"a b": None, "o": {"k": None, "l": [None]}, "n": number} for number in range(2000))
    (tmp_path / "raw/1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "raw/2.json").write_text('{"last": 1}\n')
    (tmp_path / "raw/readme").write_text("text")
    done = invoke("init")
    assert "1 file with other names will be ignored, such as readme" in done.stdout
    text = (tmp_path / "blizzard.yaml").read_text()
    assert "coerce: true }  # null in the sample\n" in text
    assert "# null in the sample: o.k, o.l[]\n" in text
    schema = load_config(tmp_path / "blizzard.yaml").pipelines["events"].schema_
    assert [field.name for field in schema.fields] == ["a_b", "o", "n", "last"]
    assert schema.unexpected_fields == "capture"
    (tmp_path / "raw/1.json").write_text('{"n": 1}\n')
    (tmp_path / "raw/2.json").write_text('{"n": 1.5, "x": 2}\n{"n": NaN}\n')
    assert invoke("init", "--force").exit_code == 0  # a record with it can have no rest
    schema = load_config(tmp_path / "blizzard.yaml").pipelines["events"].schema_
    assert schema.unexpected_fields == "ignore"


def test_init_tracks_names_that_do_not_sort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "raw/date=2024-01-01"
    folder.mkdir(parents=True)
    (folder / "part-00000-6f9619ff-8b86-4011-b42d-00c04fc964ff.json").write_text('{"a": 1}\n')
    assert "use_watermark is false" in invoke("init").stdout
    config = load_config(tmp_path / "blizzard.yaml")
    source = config.pipelines["events"].file_sources["main"]
    assert (source.use_watermark, source.partition_filter is None) == (False, False)
    plan = invoke("plan", "blizzard.yaml")
    assert (plan.exit_code, "do not sort" in plan.output) == (0, False)
    text = (tmp_path / "blizzard.yaml").read_text()
    (tmp_path / "blizzard.yaml").write_text(text.replace("use_watermark: false", ""))
    for command in ("plan", "validate"):
        assert "date=2024-01-01/: file names do not sort" in invoke(command, "blizzard.yaml").output


def test_init_reads_a_sample_on_s3(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.options.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{s3.new_bucket()}"
    scenario = Scenario(tmp_path, place, s3.options)
    scenario.put("1.json", b'{"odd: {": 1, "odd\\nname: [": 1, "": 1, "x": 1}\n')
    path = tmp_path / "my c.yaml"
    done = invoke("init", str(path), "--source-uri", f"{place}/raw", "--table-uri", f"{place}/t")
    assert done.exit_code == 0, done.output
    fields = load_config(path).pipelines["t"].schema_.fields
    assert [(field.name, field.from_) for field in fields] == [("odd:", "odd: {"), ("x", None)]
    assert "left out: odd?name: [: a column cannot have this name" in path.read_text()
    assert "left out: '': a column cannot have this name" in path.read_text()
    assert f"`blizzard validate '{path}'`" in done.output


def test_init_takes_options_of_a_store(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.new_bucket()
    s3.put(bucket, "raw/1.ndjson", b'{"id": 1}')
    monkeypatch.setenv("RAW_KEY", s3.options["AWS_SECRET_ACCESS_KEY"])
    monkeypatch.setenv("RAW_ID", s3.options["AWS_ACCESS_KEY_ID"])
    secrets = {"AWS_SECRET_ACCESS_KEY": "${RAW_KEY}", "AWS_ACCESS_KEY_ID": "${RAW_ID}"}
    options = {**s3.options, **secrets}
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    path = tmp_path / "x.yaml"
    places = ("--source-uri", f"s3://{bucket}/raw", "--table-uri", f"s3://{bucket}/lake")
    done = invoke("init", str(path), *places, *given)
    assert done.exit_code == 0, done.output
    assert "test-secret" not in path.read_text()
    pipeline = load_config(path).pipelines["lake"]
    assert [each.name for each in pipeline.schema_.fields] == ["id"]
    assert pipeline.sources["main"].storage_options == s3.options == pipeline.sink.storage_options


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("AWS_SECRET_ACCESS_KEY=hush", "must not stand on a command line"),
        ("AWS_SECRET_ACCESS_KEY=${NOT_SET}", "NOT_SET is not set"),
        ("AWS_REGION", "takes NAME=VALUE"),
    ],
)
def test_init_refuses_wrong_options_of_a_store(tmp_path: Path, option: str, says: str) -> None:
    found = invoke("init", str(tmp_path / "x.yaml"), "--storage-option", option)
    assert found.exit_code == 2
    assert says in found.stderr
    assert "hush" not in found.stderr


def test_init_tells_what_it_cannot_use(tmp_path: Path) -> None:
    path = str(tmp_path / "c.yaml")
    wrong = invoke("init", path, "--source-uri", "ftp://x/y")
    assert (wrong.exit_code, "unknown scheme" in wrong.stderr) == (2, True)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "1.json").write_text("not json")
    odd = invoke(
        "init", path, "--source-uri", str(tmp_path / "raw"), "--table-uri", f"{tmp_path}/t"
    )
    assert (odd.exit_code, Path(path).exists()) == (2, False)
    assert "no record of 1.json can be read" in odd.stderr
    (tmp_path / "raw" / "1.json").rename(tmp_path / "raw" / "1.dat")
    source = str(tmp_path / "raw")
    other = invoke("init", path, "--source-uri", source, "--table-uri", f"{tmp_path}/t", "--force")
    assert "what is there, 1.dat for one, has another name: .ndjson, .jsonl" in other.stdout
    file = invoke(
        "init", path, "--source-uri", f"{source}/1.dat", "--table-uri", f"{tmp_path}/t", "--force"
    )
    assert "1.dat: is a file, and not a directory; name the one it is in" in file.stderr
    assert invoke("validate", path).exit_code == 0
    unwritable = invoke("init", "/proc/nowhere/c.yaml")
    assert (unwritable.exit_code, "cannot be written" in unwritable.stderr) == (2, True)


# -- validate --------------------------------------------------------------------


def test_validate_says_what_of_an_s3_server_only_a_start_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.yaml"
    table: dict[str, Any] = {"table_uri": "s3://lake/t"}
    config.write_text(yaml.safe_dump({"tables": {"t": table}}))
    assert invoke("validate", str(config), program=penguin).stderr == ""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert (
        "is tried with the first write" in invoke("validate", str(config), program=penguin).stderr
    )
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    table["storage_options"] = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    config.write_text(yaml.safe_dump({"tables": {"t": table}}))
    assert (
        "is tried with the first write" in invoke("validate", str(config), program=penguin).stderr
    )


def test_status_of_a_source_out_of_reach_still_tells_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    scenario.ingest()

    def refuse(*_arguments: object) -> Any:
        raise StorageError(f"out of reach {HOSTILE}")

    monkeypatch.setattr("blizzard_py.sources.files.watermark_files.backlog", refuse)
    done = invoke("status", str(scenario.config))
    assert done.exit_code == 8  # nothing commits
    assert "Idle" in done.stdout
    assert "lag is not known: out of reach \\x1b" in done.stderr


# -- wrong turns of a new user ---------------------------------------------------

GOOD = """\
pipelines:
  events:
    sources:
      main: { source_uri: ./raw }
    sink: { table_uri: ./lake/events }
    schema: { fields: [ { name: id, type: int64 } ] }
"""


@pytest.mark.promise("G-218")
@pytest.mark.parametrize(
    ("text", "remedies"),
    [
        (GOOD.replace("]", ""), ["is not YAML: line", "expected ',' or ']'"]),
        (GOOD.replace("./raw", "${RAW}"), ['put quotes around "${VAR}"']),
        ("\tpipelines: {}\n", ["line 1, column 1", "indent with spaces, not tabs"]),
        ("", ["must be a mapping with at least `pipelines` or `tables`"]),
        (GOOD.replace("./raw", "'${RAW_IS_NOT_SET}'"), ["variable RAW_IS_NOT_SET is not set"]),
        (
            GOOD.replace("./raw", "./raw, poll_intervall: often"),
            ["main.poll_intervall (line 4): unknown key; did you mean poll_interval?"],
        ),
        (
            GOOD.replace("name: id", "nam: id"),
            [
                "fields[0].nam (line 6): unknown key; did you mean name?",
                "name (line 6): is required",
            ],
        ),
        (GOOD.replace("./raw", "./raw, poll_interval: often"), ["must be a duration"]),
        (
            GOOD.replace("int64", "integer"),
            ["fields[0].type (line 6): there is no type 'integer'", "int32, int64"],
        ),
        (
            GOOD.replace("    schema", "    shema"),
            ["did you mean schema?", "schema (line 2): is req"],
        ),
        (
            GOOD.replace("./raw", "./lake/events/raw"),
            ["overlaps with the table", "use separate places"],
        ),
        (
            GOOD.replace("./lake/events", "./raw/t"),
            ["overlaps with the table", "use separate places"],
        ),
        (GOOD.replace("./raw", "ftp://h/raw"), ["unknown scheme 'ftp'", "s3"]),
        (GOOD.replace("./raw", "s3://"), ["names no bucket"]),
    ],
)
def test_a_wrong_configuration_is_answered_with_the_remedy(
    tmp_path: Path, text: str, remedies: list[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(text)
    for program in (blizzard, penguin):
        done = invoke("validate", str(config), program=program)
        assert done.exit_code == 2
        for remedy in remedies:
            assert remedy in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.promise("G-218")
def test_places_that_are_not_there_are_answered_with_the_remedy(
    tmp_path: Path, s3: S3Server
) -> None:
    absent = invoke("plan", str(tmp_path / "nowhere.yaml"))
    assert (absent.exit_code, "`blizzard init` writes" in absent.stderr) == (2, True)

    scenario = Scenario(tmp_path, str(tmp_path))
    no_source = invoke("plan", str(scenario.config))
    assert no_source.exit_code == 1
    assert "raw: no such directory; create it, or correct the path" in no_source.stderr

    (tmp_path / "raw").write_text("a file")
    a_file = invoke("validate", str(scenario.config))
    assert a_file.exit_code == 2
    assert "raw is a file, and not a directory; name the one it is in" in a_file.stderr

    (tmp_path / "raw").unlink()
    (tmp_path / "raw").mkdir()
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(StorageError, match="choose another directory"):
        scenario.table.put_if("x", b"", None)

    bucket = Scenario(tmp_path, "s3://there-is-none/base", s3.options)
    for program in (blizzard, penguin):
        no_bucket = invoke("plan", str(bucket.config), program=program)
        assert no_bucket.exit_code == 1
        assert "the bucket does not exist; create it, or correct the URI" in no_bucket.stderr
        # A bucket that is gone is no source that has not begun.
        no_bucket = invoke("status", str(bucket.config), program=program)
        assert no_bucket.exit_code == 1
        assert "the bucket does not exist; create it, or correct the URI" in no_bucket.stderr


def test_records_are_replayed_after_the_schema_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    scenario = Scenario(tmp_path, str(tmp_path))
    good = [{"id": number, "text": "t"} for number in range(40)]
    long = "x" * 100_000  # longer than a letter holds
    rows = [*good, {"id": 40, "text": 7}, {"id": 41, "text": [long]}, {"id": "bad for ever"}]
    scenario.put("date=2024-01-01/1.json", "".join(f"{json.dumps(r)}\n" for r in rows).encode())
    scenario.ingest()
    config = str(scenario.config)
    listed = invoke("dlq", "list", config, "--json").stdout.splitlines()
    assert [(r["kind"], r["line"]) for r in map(json.loads, listed)] == [
        ("records", 41),
        ("records", 42),
        ("records", 43),
    ]
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    fields[1] |= {"coerce": True}
    scenario.write_config()
    done = invoke("replay", config, *WHERE, "--all", "--json")
    assert done.exit_code == 1, done.output  # one failed again
    told = json.loads(done.stdout)
    assert (told["rows"], told["failed_again"]) == (2, 1)
    [left] = map(json.loads, invoke("dlq", "list", config, "--json").stdout.splitlines())
    # Of the source's file; which line it was there the replay's own file does not say.
    assert (left["path"].endswith("/raw/date=2024-01-01/1.json"), left["line"]) == (True, None)
    assert invoke("run", str(config), "--once", program=penguin).exit_code == 0
    assert scenario.ids() == list(range(42))
    uri = str(tmp_path / "raw/date=2024-01-01/1.json")
    assert "2 more rows by replays" in invoke("explain", config, uri).stdout


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f4c1/é",
        "a\u2028\x85\ufeff\x7f",
        "\\ud83d\\ude00",
        "\\\U0001f600",
        "$${X} ${Y}",
        '"',
        "$HOME $$HOME",
    ],
)
def test_text_quoted_by_init_loads_unchanged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"a: {quoted(text)}\n")
    assert load_yaml(path, {}).data == {"a": text}


def test_schema_of_config_prints_a_schema() -> None:
    done = invoke("schema-of-config")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {"defaults", "pipelines", "tables"} <= found["properties"].keys()
