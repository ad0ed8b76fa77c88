"""The tutorials in docs/start, run as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from blizzard_core.storage.opening import open_storage
from tests.support.own_process import free_port
from tests.support.s3_server import S3Server
from tests.support.scenario import ROOT
from tests.support.tutorial import (
    Step,
    check_output,
    process_for_steps,
    read_steps,
    run_steps_together,
)

FILES = {
    f"{day}/{name}": f'{{"id": {day}, "at": "2026-11-0{day}T10:00:00Z", "who": null}}\n'
    f'{{"id": {day}0, "at": "2026-11-0{day}T11:00:00Z", "who": "ann", "price": 1.5}}\n'
    for day, name in ((1, "1762000000-a.ndjson"), (2, "1762086400-b.json"))
}
ON_S3 = "## The same on S3"


def read_page(name: str) -> str:
    return (ROOT / "docs/start" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """Yield the socket of one process for all tutorials, with one JVM."""
    with process_for_steps() as place:
        yield place


@pytest.mark.timeout(1800)
def test_files_tutorial_runs_as_written(tmp_path: Path, commands: Path) -> None:
    # The tutorial copies its data out of a checkout.
    data = tmp_path / "blizzard_py/demo/data"
    data.parent.mkdir(parents=True)
    data.symlink_to(ROOT / "blizzard_py/demo/data")
    steps = read_steps(read_page("files.md").partition(ON_S3)[0])
    assert len(steps) == 10
    for step, printed in zip(steps, run_steps_together(steps, tmp_path, commands), strict=True):
        check_output(step, printed)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", ["tables.md", "apis.md", "event-time.md"])
def test_tutorial_runs_as_written(page: str, tmp_path: Path, commands: Path) -> None:
    port = str(free_port())
    steps = [
        Step(step.commands.replace("8000", port), step.output.replace("8000", port))
        for step in read_steps(read_page(page))
    ]
    assert len(steps) >= 6
    for step, printed in zip(steps, run_steps_together(steps, tmp_path, commands), strict=True):
        check_output(step, printed)


@pytest.mark.timeout(900)
def test_s3_commands_of_the_files_tutorial_run(tmp_path: Path, s3: S3Server) -> None:
    bucket = s3.new_bucket()
    source = open_storage(f"s3://{bucket}/raw", s3.options)
    for path, text in FILES.items():
        source.put_atomic(path, text.encode())
    section = read_page("files.md").partition(ON_S3)[2]
    (step,) = read_steps(section)
    variables = {**s3.options, "AWS_ALLOW_HTTP": "true"}
    assert set(variables) == set(re.findall(r"(AWS_[A-Z_]+)=", step.commands))
    commands = re.sub(r"^export .*\n", "", step.commands, flags=re.MULTILINE)
    step = Step(commands.replace("BUCKET", bucket), "")
    # A process of its own: Spark's have the variables of their JVM's start.
    with process_for_steps(**variables) as commands:
        (printed,) = run_steps_together([step], tmp_path, commands, **variables)
    found = re.findall(r"'id': (\d+)", printed.splitlines()[-1])
    assert {int(number) for number in found} == {1, 10, 2, 20}
    assert s3.options["AWS_SECRET_ACCESS_KEY"] not in (tmp_path / "s3.yaml").read_text()
