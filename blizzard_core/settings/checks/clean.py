"""Cross-field checks of the cleaning of source files."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config
from blizzard_core.settings.yaml_file import SettingProblem


def clean_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.file_sources.items():
            if source.clean is not None and pipeline.query is not None:
                yield SettingProblem(
                    ("pipelines", name, "sources", source_name, "clean"),
                    "is not for a query over event_time: rows of settled files wait in its state,"
                    " which may have to be built again from the files; leave it out",
                )
