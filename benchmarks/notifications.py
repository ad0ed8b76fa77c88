"""The time from a PUT to the save that begins its batch, with notifications of S3 by SQS.

    python -m benchmarks.notifications            # 30 files, a second apart

The whole pipeline runs against moto's S3 and SQS over HTTP, with an engine that only counts lines.
Exits with 1 if the median is above `GOAL_SECS`. The delay of Amazon's own delivery comes on top.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import boto3  # type: ignore[import-untyped]  # ships no types

from blizzard_core.log import configure
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.notifications import Notifications, with_inbox
from blizzard_py.app.workers import source_pipeline
from blizzard_py.job import IngestJob, IngestResult
from tests.support.pipeline_harness import LineEngine, PipelineHarness
from tests.support.s3_server import S3Server, s3_server

PARTITIONS = 24
GOAL_SECS = 0.3


def queue_of(s3: S3Server, bucket: str) -> str:
    """Make a queue to which a bucket sends; return its URL."""

    def client(service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=s3.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",  # moto takes any
            region_name="us-east-1",
        )

    url: str = client("sqs").create_queue(QueueName=bucket)["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:{url.split('/')[-2]}:{bucket}"
    sent = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [sent]}
    )
    return url


def measure(files: int, gap: float) -> list[float]:
    """Return the seconds of each file from its PUT to the beginning of its job."""
    configure("ERROR")
    begun: dict[str, float] = {}
    with s3_server() as s3:
        bucket = s3.new_bucket()
        uri = f"s3://{bucket}"
        world = PipelineHarness(
            source_uri=uri,
            storage_options=s3.options,
            notifications={"uri": queue_of(s3, bucket), "advanced": {"pause": "100ms"}},
        )
        source = open_storage(uri, s3.options)

        class Engine(LineEngine):
            def ingest(self, job: IngestJob) -> IngestResult:
                # The save that began the batch has just landed.
                begun.update(dict.fromkeys((file.path for file in job.files), time.monotonic()))
                return super().ingest(job)

        lake = open_storage(f"s3://{s3.new_bucket()}", s3.options)
        world.engine = Engine(source, lake)  # type: ignore[arg-type]  # any storage will do
        parts = world.parts()
        parts = replace(
            parts,
            engine=world.engine,
            stores=replace(parts.stores, source=source, sink=lake),
            clock=time.time,
            monotonic=time.monotonic,
        )
        parts = with_inbox(parts)
        worker = source_pipeline(parts)
        for number in range(PARTITIONS):
            s3.put(bucket, f"date=2026-10-{number + 1:02d}/0.ndjson", b"x")
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                if not worker.cycle(stop):
                    worker.rest(worker.poll_interval_secs, stop)

        thread = threading.Thread(target=work)
        put: dict[str, float] = {}
        with Notifications([parts]).receiving():
            thread.start()
            time.sleep(5)
            for number in range(files):
                path = f"date=2026-10-{number % PARTITIONS + 1:02d}/{number + 1}.ndjson"
                put[path] = time.monotonic()
                s3.put(bucket, path, b"x")
                time.sleep(gap)
            time.sleep(2)
            stop.set()
            thread.join()
    return [begun[path] - at for path, at in put.items() if path in begun]


def main() -> int:
    """Measure, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--gap", type=float, default=1.0)
    options = parser.parse_args()
    times = sorted(measure(options.files, options.gap))
    median = statistics.median(times)
    print(  # a command
        f"{len(times)} of {options.files} files: median {median:.2f} s,"
        f" p95 {times[len(times) * 95 // 100]:.2f} s, most {times[-1]:.2f} s"
    )
    return int(len(times) < options.files or median > GOAL_SECS)


if __name__ == "__main__":
    sys.exit(main())
