"""An answer of an HTTP server."""

from __future__ import annotations

import http.client
import json
from typing import Any


class Answer:
    def __init__(self, port: int, path: str, method: str = "GET", **headers: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        self.status = response.status
        self.headers = response.headers
        self.body = response.read().decode()
        connection.close()

    @property
    def json(self) -> Any:
        return json.loads(self.body)
