"""Amazon SQS, by botocore."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from botocore.config import Config  # type: ignore[import-untyped]  # ships no types
from botocore.exceptions import (  # type: ignore[import-untyped]  # ships no types
    BotoCoreError,
    ClientError,
)
from botocore.session import Session  # type: ignore[import-untyped]  # ships no types

from blizzard_core.notifications.protocol import HIDDEN_SECS, Message, QueueError
from blizzard_core.storage.protocol import StorageOptions

T = TypeVar("T")

# The most that one request receives and deletes.
_AT_ONCE = 10
_REGION = re.compile(r"(?:^|\.)sqs\.([a-z0-9-]+)\.|^([a-z0-9-]+)\.queue\.")
_DEFAULT_REGION = "us-east-1"
_PURGED_JUST_NOW = "PurgeQueueInProgress"
_REMEDIES = {
    "AccessDenied": "`blizzard notifications CONFIG` prints the rights that it needs.",
    "NonExistentQueue": "Check notifications.uri.",
    "InvalidClientTokenId": "Check the credentials in storage_options.",
    "ExpiredToken": "Renew the credentials.",
}


class SqsQueue:
    """A standard queue. A `Queue`."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        """``options`` are those of the source's store, in upper case."""
        self._url = url
        parts = urlsplit(url)
        region = _REGION.search(parts.hostname or "")
        named = None if region is None else region[1] or region[2]
        given = options.get("AWS_REGION") or options.get("AWS_DEFAULT_REGION")
        key = options.get("AWS_ACCESS_KEY_ID")
        # Parts of two identities must not mix.
        own = (
            {}
            if key is None
            else {
                "aws_access_key_id": key,
                "aws_secret_access_key": options.get("AWS_SECRET_ACCESS_KEY"),
                "aws_session_token": options.get("AWS_SESSION_TOKEN"),
            }
        )
        session = Session()
        self._client: Any = session.create_client(
            "sqs",
            region_name=named or given or session.get_config_variable("region") or _DEFAULT_REGION,
            endpoint_url=f"{parts.scheme}://{parts.netloc}",
            config=Config(connect_timeout=10, read_timeout=40, retries={"total_max_attempts": 2}),
            **own,
        )

    def receive(self, wait_secs: float) -> Sequence[Message]:
        answer = self._ask(
            lambda: self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=_AT_ONCE,
                WaitTimeSeconds=int(wait_secs),
                VisibilityTimeout=HIDDEN_SECS,
                AttributeNames=["SentTimestamp"],
            )
        )
        return [
            Message(
                each["Body"].encode("utf-8", "surrogatepass"),
                each["ReceiptHandle"],
                int(each["Attributes"]["SentTimestamp"]) / 1000,
            )
            for each in answer.get("Messages", ())
        ]

    def delete(self, handles: Sequence[str]) -> None:
        for first in range(0, len(handles), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate(handles[first : first + _AT_ONCE])
            ]
            self._ask(
                lambda entries=entries: self._client.delete_message_batch(  # type: ignore[misc]  # bound now
                    QueueUrl=self._url, Entries=entries
                )
            )

    def count(self) -> int | None:
        name = "ApproximateNumberOfMessages"
        answer = self._ask(
            lambda: self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        )
        return int(answer["Attributes"][name])

    def purge(self) -> None:
        self._ask(lambda: self._client.purge_queue(QueueUrl=self._url), _PURGED_JUST_NOW)

    def close(self) -> None:
        self._client.close()

    def _ask(self, request: Callable[[], T], allowed: str = "") -> Any:
        try:
            return request()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if allowed and allowed in code:
                return {}
            remedy = next((text for name, text in _REMEDIES.items() if name in code), "")
            reason = error.response.get("Error", {}).get("Message", "")
            raise QueueError(f"{code}: {reason.rstrip('.')}. {remedy}".strip()) from error
        except BotoCoreError as error:
            raise QueueError(str(error)) from error
