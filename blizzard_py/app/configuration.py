"""The configuration as Blizzard reads it: checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from blizzard_core.errors import ConfigError
from blizzard_core.settings import load
from blizzard_core.settings.document import AnySource, Config
from blizzard_core.settings.yaml_file import SettingProblem


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Return the valid configuration. Raises `ConfigError` with every problem and its line."""
    return load.load_config(path, environment, [_query_problems])


def _query_problems(config: Config) -> Iterator[SettingProblem]:
    if any(pipeline.query_sources for pipeline in config.pipelines.values()):
        # Sources of files need none of the connections.
        from blizzard_py.app.queries.problems import query_problems  # noqa: PLC0415  # see above

        yield from query_problems(config)


def source_of(config: Config, where: tuple[str, str]) -> AnySource:
    """Return a source's settings by its pipeline and name. Raises `ConfigError`."""
    pipeline = config.pipelines.get(where[0])
    source = None if pipeline is None else pipeline.sources.get(where[1])
    if source is None:
        known = ", ".join(f"{p}/{s}" for p, each in config.pipelines.items() for s in each.sources)
        problem = f"there is no {'/'.join(where)}; known: {known}"
        raise ConfigError("--pipeline, --source", [problem])
    return source
