"""A real S3 API over HTTP: moto's server, in a process of its own.

Known gaps of moto that tests must not lean on: it answers 500 to keys that XML
cannot carry (U+FFFF), lists at once what was just put, and never throttles. It looks at the
condition of a PUT and then stores, with room for another one in between; here it has none.

Not in a thread of this process: delta-rs keeps the interpreter locked during some
requests, and a server behind the same lock would never answer them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # ships no types

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class S3Server:
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options for a table or source on this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }

    def new_bucket(self) -> str:
        """Return the name of a fresh bucket, so that tests share only the server."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.make_bucket(name)
        return name

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket of that name."""
        with self._client() as client:
            client.create_bucket(Bucket=name)

    def keep_versions(self, bucket: str) -> None:
        with self._client() as client:
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )

    def put(self, bucket: str, name: str, data: bytes, encoding: str | None = None) -> None:
        """Store an object as others do, with a ``Content-Encoding`` if there is one."""
        more = {} if encoding is None else {"ContentEncoding": encoding}
        with self._client() as client:
            client.put_object(Bucket=bucket, Key=name, Body=data, **more)

    def drop_bucket(self, name: str) -> None:
        """Remove the bucket with all that is in it."""
        with self._client() as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                for item in page.get("Contents", ()):
                    client.delete_object(Bucket=name, Key=item["Key"])
            client.delete_bucket(Bucket=name)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        )
        yield client
        client.close()


@contextmanager
def s3_server(**environment: str) -> Iterator[S3Server]:
    """Start the server, stop it at the end; ``environment`` is for moto's own settings."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield S3Server(f"http://127.0.0.1:{port}")
        finally:
            process.stdin.close()
            process.wait(timeout=60)
