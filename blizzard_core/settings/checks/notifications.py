"""Cross-field checks of notifications and replicas."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.checks.places import area_of
from blizzard_core.settings.document import Config
from blizzard_core.settings.store_use import WEBHOOK, queue_problems
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.opening import problems_of


def notification_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    policies: dict[tuple[str, str | None], str] = {}
    for place, pipeline, source in config.file_sources():
        found = source.notifications
        if found is None:
            continue
        here: Key = (*place, "notifications")
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
        policy = policies.setdefault((found.uri, found.token), found.advanced.foreign)
        if policy != found.advanced.foreign:
            yield SettingProblem(
                (*here, "advanced", "foreign"),
                f"is {policy} for another source with the same queue; give both the same",
            )
    for name, table in config.tables.items():
        if table.notify is not None and config.metrics is None:
            yield SettingProblem(
                ("tables", name, "notify"),
                "needs metrics.address, where Penguin serves POST /notify",
            )


def replica_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    found = config.global_.replicas
    if found is None:
        return
    here, options = ("global", "replicas", "uri"), found.advanced.storage_options
    wrong = list(problems_of(found.uri, options))
    yield from (SettingProblem(here, text) for text in wrong)
    for place, _, source in config.file_sources():
        where = ".".join(place)
        if not wrong and area_of(found.uri, options).overlaps(
            area_of(source.uri, source.storage_options)
        ):
            yield SettingProblem(
                here, f"overlaps {where}.source_uri: leases would be read as data; move it"
            )
        if source.notifications is not None and source.notifications.uri == WEBHOOK:
            yield SettingProblem(
                (*place, "notifications", "uri"),
                "webhook: goes to one replica, and another one may have the source; use a"
                " queue, or leave out global.replicas",
            )
