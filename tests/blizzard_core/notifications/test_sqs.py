"""SQS, with messages as a bucket sends them: directly, by SNS and by EventBridge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest

from blizzard_core.notifications.protocol import Queue, QueueError
from blizzard_core.notifications.receiver import open_queue
from blizzard_core.notifications.sqs import SqsQueue
from tests.support.queue_contract import KEY, QueueContract, names_object, received
from tests.support.s3_server import S3Server


@pytest.fixture
def cloud(s3: S3Server) -> Cloud:
    return Cloud(s3)


class Cloud:
    """Queues of an account, and what sends to them."""

    def __init__(self, s3: S3Server) -> None:
        self.s3 = s3

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.s3.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        )

    def queue(self) -> tuple[str, str]:
        """Make a queue; return its URL and its name for other services."""
        sqs = self.client("sqs")
        url = sqs.create_queue(QueueName=f"raw-{uuid4().hex[:8]}")["QueueUrl"]
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return url, answer["Attributes"]["QueueArn"]


class TestSqs(QueueContract):
    @pytest.fixture(autouse=True)
    def _use(self, cloud: Cloud) -> None:
        self.cloud = cloud

    @contextmanager
    def opened(self, bodies: Sequence[bytes]) -> Iterator[Queue]:
        url, _ = self.cloud.queue()
        sqs = self.cloud.client("sqs")
        for body in bodies:
            sqs.send_message(QueueUrl=url, MessageBody=body.decode())
        queue = open_queue(url, "s3://raw", self.cloud.s3.options)
        yield queue
        queue.close()

    def broken(self) -> list[Queue]:
        url, _ = self.cloud.queue()
        away = "http://127.0.0.1:9/123456789012/raw"
        return [SqsQueue(f"{url}x", self.cloud.s3.options), SqsQueue(away, self.cloud.s3.options)]

    def test_error_names_the_remedy(self) -> None:
        url, _ = self.cloud.queue()
        queue = SqsQueue(f"{url}x", self.cloud.s3.options)
        with pytest.raises(QueueError, match=r"Check notifications\.uri"):
            queue.receive(0)


def test_bucket_sends_to_its_queue(cloud: Cloud) -> None:
    url, arn = cloud.queue()
    bucket = cloud.s3.new_bucket()
    sent = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    cloud.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [sent]}
    )
    cloud.s3.put(bucket, KEY, b"{}")
    queue = open_queue(url, f"s3://{bucket}", cloud.s3.options)
    # The first one tests the queue.
    assert [names_object(message, bucket) for message in received(queue, 2)] == [False, True]
    queue.close()


@pytest.mark.parametrize("raw", ["true", "false"])
def test_topic_passes_messages_on(cloud: Cloud, raw: str) -> None:
    url, arn = cloud.queue()
    bucket = cloud.s3.new_bucket()
    sns = cloud.client("sns")
    topic = sns.create_topic(Name=f"raw-{raw}")["TopicArn"]
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": raw}
    )
    sent = {"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}
    cloud.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"TopicConfigurations": [sent]}
    )
    cloud.s3.put(bucket, KEY, b"{}")
    queue = open_queue(url, f"s3://{bucket}", cloud.s3.options)
    assert names_object(received(queue, 2)[-1], bucket)
    queue.close()


def test_event_bridge_passes_events_on(cloud: Cloud) -> None:
    url, arn = cloud.queue()
    bucket = cloud.s3.new_bucket()
    events = cloud.client("events")
    pattern = {"source": ["aws.s3"], "detail": {"bucket": {"name": [bucket]}}}
    events.put_rule(Name=bucket, EventPattern=json.dumps(pattern), State="ENABLED")
    events.put_targets(Rule=bucket, Targets=[{"Id": "queue", "Arn": arn}])
    cloud.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    cloud.s3.put(bucket, KEY, b"{}")
    queue = open_queue(url, f"s3://{bucket}", cloud.s3.options)
    assert any(names_object(message, bucket) for message in received(queue, 1))
    queue.close()
