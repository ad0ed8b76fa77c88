"""Cross-field checks of replicas."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.checks.places import area_of
from blizzard_core.settings.document import Config
from blizzard_core.settings.queue_uri import WEBHOOK
from blizzard_core.settings.yaml_file import SettingProblem
from blizzard_core.storage.opening import problems_of


def replica_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    found = config.global_.replicas
    if found is None:
        return
    here = ("global", "replicas", "uri")
    wrong = list(problems_of(found.uri, found.storage_options))
    yield from (SettingProblem(here, text) for text in wrong)
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.file_sources.items():
            where = f"pipelines.{name}.sources.{source_name}"
            if not wrong and area_of(found.uri, found.storage_options).overlaps(
                area_of(source.uri, source.storage_options)
            ):
                yield SettingProblem(
                    here, f"overlaps {where}.source_uri: leases would be read as data; move it"
                )
            if source.notifications is not None and source.notifications.uri == WEBHOOK:
                yield SettingProblem(
                    ("pipelines", name, "sources", source_name, "notifications", "uri"),
                    "webhook: goes to one replica, and another one may have the source; use a"
                    " queue, or leave out global.replicas",
                )
