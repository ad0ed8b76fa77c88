"""The engine of a command or a daemon: Spark as it is configured, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from blizzard_core.errors import BlizzardError
from blizzard_core.extras import require
from blizzard_core.settings.document import Config
from blizzard_py.job import IngestJob, IngestResult

if TYPE_CHECKING:
    from blizzard_py.engines.spark.engine import SparkEngine


class NoEngine:
    """Stands in where nothing may be ingested: `plan` and `status` need no Spark."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Refuse: reaching this is a bug."""
        raise BlizzardError(f"{job.output_prefix}: this command does not ingest")

    def cancel(self, output_prefix: str) -> None:
        """Nothing runs, nothing to end."""

    def progress(self, output_prefix: str) -> float | None:
        """Nothing runs."""

    def session(self) -> NoReturn:
        """Refuse as `ingest`."""
        raise BlizzardError("this command does not ingest")


NO_ENGINE = NoEngine()


def spark_engine(config: Config, app_name: str) -> SparkEngine:
    """Spark as it is configured. Starts nothing before the first job. Raises `MissingExtra`."""
    require("spark")
    from blizzard_py.engines.spark.engine import SparkEngine  # noqa: PLC0415  # see `LazyEngine`
    from blizzard_py.engines.spark.gateway import quick_start_settings  # noqa: PLC0415  # see `LazyEngine`

    master, conf = config.spark.master, config.spark.conf
    if computes_in_driver(config):
        return SparkEngine(master, conf, app_name)
    return SparkEngine(master, quick_start_settings(conf), app_name, "tasks")


def computes_in_driver(config: Config) -> bool:
    """Return whether rows go through Spark itself, where a driver of ours may run them."""
    return any(found.driver == "jdbc" for found in config.connections.values()) or any(
        pipeline.transform is not None or pipeline.deduplicate_by or pipeline.query is not None
        for pipeline in config.pipelines.values()
    )
