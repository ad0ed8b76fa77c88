"""Cross-field checks of notifications."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config
from blizzard_core.settings.queue_uri import WEBHOOK, queue_problems
from blizzard_core.settings.yaml_file import Key, SettingProblem


def notification_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    policies: dict[tuple[str, str | None], str] = {}
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.file_sources.items():
            found = source.notifications
            if found is None:
                continue
            here: Key = ("pipelines", name, "sources", source_name, "notifications")
            if pipeline.query is not None:
                yield SettingProblem(
                    here,
                    "is not for a query over event_time: files that wait for a complete scan would"
                    " have late rows; leave it out",
                )
            for text in queue_problems(found.uri, source.uri):
                yield SettingProblem((*here, "uri"), text)
            if found.uri == WEBHOOK and config.metrics is None:
                yield SettingProblem(
                    (*here, "uri"), "webhook: needs metrics.address, where POST /notify is served"
                )
            policy = policies.setdefault((found.uri, found.token), found.foreign)
            if policy != found.foreign:
                yield SettingProblem(
                    (*here, "foreign"),
                    f"is {policy} for another source with the same queue; give both the same",
                )
    for name, table in config.tables.items():
        if table.notify is not None and config.metrics is None:
            yield SettingProblem(
                ("tables", name, "notify"),
                "needs metrics.address, where Penguin serves POST /notify",
            )
