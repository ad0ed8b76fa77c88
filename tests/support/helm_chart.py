"""Render a chart with Helm's own library, in a process of its own.

    python -m tests.support.helm_chart CHART RELEASE < VALUES

The values come as JSON. The rendered templates go out by name, also as JSON. If Helm refuses the
values its sentence goes to standard error, and the exit code is 1.

Not in the process of the tests: Go's runtime comes with signal handlers and threads of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

NAMESPACE = "blizzard"


class RefusedValuesError(Exception):
    """Helm does not render the chart with these values."""


def render(chart: Path, values: dict[str, Any], release: str = "r") -> dict[str, str]:
    """Return the text of each template by its file's name. Raises `RefusedValuesError`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.helm_chart", str(chart), release],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise RefusedValuesError(done.stderr)
    return {Path(name).name: text for name, text in json.loads(done.stdout).items()}


def objects(chart: Path, values: dict[str, Any], release: str = "r") -> list[dict[str, Any]]:
    """Return the rendered objects of all templates."""
    return [
        found
        for name, text in render(chart, values, release).items()
        if name.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found
    ]


def main() -> int:
    """Print the templates, or the sentence of the refusal."""
    import helm_python  # noqa: PLC0415  # the tests import this module without Go's runtime

    chart, release = sys.argv[1:]
    with helm_python.Chart.load(chart) as loaded:
        try:
            found = loaded.render(json.load(sys.stdin), name=release, namespace=NAMESPACE)
        except helm_python.HelmError as error:
            sys.stderr.write(str(error))
            return 1
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
