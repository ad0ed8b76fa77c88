"""The API that `make demo-units` reads: answers to surveys, of which the last days still change.

Each day brings new answers, some of which arrive days late; others are corrected or withdrawn.
Nothing in an answer tells that it has changed: who wants to know reads its days again.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SURVEYS = ("north", "south", "west")
OPENED = datetime(2023, 1, 1, tzinfo=UTC)
# An answer is settled so many days after it was given: no longer than `grace`.
SETTLED_DAYS = 3
_A_DAY = (20, 60)
_CHANGES_A_DAY = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as the API gives it."""

    id: int
    survey: str
    answered_at: datetime
    score: int
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the answer as the API sends it."""
        return {
            "id": self.id,
            "survey": self.survey,
            "answered_at": self.answered_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "score": self.score,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """Answers of one day: new ones, those for earlier days, corrected and withdrawn ones."""

    new: int = 0
    late: int = 0
    corrected: int = 0
    withdrawn: int = 0

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            self.new + other.new,
            self.late + other.late,
            self.corrected + other.corrected,
            self.withdrawn + other.withdrawn,
        )


class Surveys:
    """All current answers, with a count of the requests. Thread-safe."""

    def __init__(self, seed: int = 15) -> None:
        self._chance = random.Random(seed)
        self._answers: dict[int, Answer] = {}
        self._next = 0
        self._lock = threading.Lock()
        self.requests = 0
        self.sent = 0

    def live(self, day: datetime) -> Changes:
        """Play a day from its midnight to the next."""
        with self._lock:
            done = Changes()
            for survey in SURVEYS:
                for _ in range(self._chance.randint(*_A_DAY)):
                    is_late = self._chance.random() < 0.08
                    back = self._chance.randint(1, SETTLED_DAYS) if is_late else 0
                    self._add(survey, max(OPENED, day - timedelta(days=back)))
                    done += Changes(new=1, late=int(is_late))
            since = day - timedelta(days=SETTLED_DAYS)
            open_ = [one for one in self._answers.values() if since <= one.answered_at < day]
            for one in self._chance.sample(open_, min(len(open_), _CHANGES_A_DAY)):
                if self._chance.random() < 0.3:
                    del self._answers[one.id]
                    done += Changes(withdrawn=1)
                else:
                    self._correct(one)
                    done += Changes(corrected=1)
            return done

    def recount(self, survey: str, first: datetime, end: datetime) -> int:
        """Score a survey's answers of a past time again; return their number."""
        with self._lock:
            found = [
                one
                for one in self._answers.values()
                if one.survey == survey and first <= one.answered_at < end
            ]
            for one in found:
                self._correct(one)
            return len(found)

    def answers(
        self, first: datetime | None = None, end: datetime | None = None, survey: str = ""
    ) -> list[Answer]:
        """Return a survey's current answers of a time, in the order in which they came."""
        with self._lock:
            return [
                one
                for one in self._answers.values()
                if (not survey or one.survey == survey)
                and (first is None or one.answered_at >= first)
                and (end is None or one.answered_at < end)
            ]

    def ask(self, survey: str, first: str, end: str) -> bytes:
        """Count a request and return the API's answer."""
        ends = (datetime.fromisoformat(first), datetime.fromisoformat(end))
        found = self.answers(*ends, survey)
        with self._lock:
            self.requests += 1
            self.sent += len(found)
        return json.dumps({"answers": [one.to_json() for one in found]}).encode()

    def _add(self, survey: str, day: datetime) -> None:
        self._next += 1
        at = day + timedelta(seconds=self._chance.randrange(86_400))
        score = self._chance.randint(0, 10)
        self._answers[self._next] = Answer(self._next, survey, at, score, f"answer {self._next}")

    def _correct(self, one: Answer) -> None:
        score = (one.score + self._chance.randint(1, 10)) % 11
        self._answers[one.id] = replace(one, score=score, text=f"{one.text}, corrected")


@contextmanager
def served(surveys: Surveys) -> Iterator[int]:
    """Serve ``/surveys/ID/answers?from=…&to=…`` on a port of this machine, which is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body need not wait until its head is acknowledged

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts, query = url.path.strip("/").split("/"), parse_qs(url.query)
            known = len(parts) == 3 and parts[::2] == ["surveys", "answers"]
            status, body = 404, b'{"error": "there is no such survey"}'
            if known and parts[1] in SURVEYS:
                status, body = 200, surveys.ask(parts[1], query["from"][0], query["to"][0])
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
            """Log nothing: requests are counted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="surveys", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
