"""A program that runs as another user and tries to reach a daemon: ``-I`` this file.

Started as root it becomes the user nobody before it reads its input. Standard input is a JSON
object (`pids`, `ports`, `sockets`, `folders`, `secrets`). Standard output is one with all that was
`found` and all that was `tried`, so that an empty `found` proves something. It uses the standard
library only.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # loaded while the installation can still be read
import json
import os
import pwd
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

# Silence is an answer; a machine that is busy must not look like it.
_WAIT_SECS = 10.0
_PRIVATE = ("environ", "mem", "maps", "io", "auxv")
_LINKS = ("cwd", "root", "exe")
_BROADCASTS = 12
# Spark's framing: its length with these eight bytes, then the message's type.
_CHUNK_REQUEST, _RPC_REQUEST, _RPC_RESPONSE, _STREAM_REQUEST = 0, 3, 4, 6
_OPEN_BLOCKS = 0


def main() -> None:
    asked = json.load(sys.stdin)
    _become_nobody()
    found: list[str] = []
    tried: list[str] = []
    for what, text in _all(asked):
        tried.append(what)
        found += [f"{what}: {secret}" for secret in asked["secrets"] if secret.encode() in text]
        if text.startswith(b"OPEN "):
            found.append(f"{what}: {text[:60]!r}")
    json.dump({"found": found, "tried": tried, "uid": os.geteuid()}, sys.stdout)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def _all(asked: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    for pid in asked["pids"]:
        yield from _process(pid)
    tries = [each for port in asked["ports"] for each in _port(port)]
    # All at once: what stays silent is waited for once.
    with ThreadPoolExecutor(max(1, len(tries))) as pool:
        answers = pool.map(lambda each: each[1](), tries)
        yield from zip((what for what, _ in tries), answers, strict=True)
    for path in asked["sockets"]:
        yield f"socket {path}", _connected(path)
    for folder in asked["folders"]:
        yield from _files(Path(folder))


def _process(pid: int) -> Iterator[tuple[str, bytes]]:
    proc = Path("/proc") / str(pid)
    yield f"{proc}/cmdline", proc.joinpath("cmdline").read_bytes()
    for name in _PRIVATE:
        with contextlib.suppress(OSError), proc.joinpath(name).open("rb") as stream:
            # That of a process which is ending opens, and is empty.
            text = stream.read(1 << 16)
            yield f"{proc}/{name}", b"OPEN " + text if text else b""
    for name in _LINKS:
        with contextlib.suppress(OSError):
            yield f"{proc}/{name}", b"OPEN " + os.fsencode(proc.joinpath(name).readlink())
    with contextlib.suppress(OSError):
        yield f"{proc}/fd", b"OPEN " + repr(list(proc.joinpath("fd").iterdir())).encode()


def _port(port: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for path in ("/", "/metrics", "/health", "/environment/", "/json/"):
        request = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode()
        yield f"port {port} GET {path}", partial(_answer, port, request)
    # What pyspark's own end would send, without the token and with a wrong one.
    for first in ("", "A\nwrong\ne\n"):
        call = f"{first}c\nz:java.lang.System\ngetenv\nsPATH\ne\n".encode()
        yield f"port {port} py4j", partial(_called, port, call)
    for name in ("/files/blizzard.zip", "/jars/x.jar"):
        frame = _frame(_STREAM_REQUEST, _text(name))
        yield f"port {port} stream {name}", partial(_answer, port, frame)
    for number in range(_BROADCASTS):
        block = f"broadcast_{number}_piece0"
        yield f"port {port} broadcast {number}", partial(_block, port, block)


def _called(port: int, call: bytes) -> bytes:
    answer = _answer(port, call)
    yes = any(line.startswith(b"!y") for line in answer.splitlines())
    return b"OPEN " + answer if yes else answer


def _block(port: int, block: str) -> bytes:
    """Return the answer of the block manager behind the port, if there is one, for a block."""
    body = bytes([_OPEN_BLOCKS]) + _text("app") + _text("driver") + struct.pack(">i", 1)
    body += _text(block)
    opened = _frame(_RPC_REQUEST, struct.pack(">qi", 1, len(body)) + body)
    with contextlib.suppress(OSError), _dialled(port) as connection:
        connection.sendall(opened)
        answer = b""
        # The head of the answer, then what names the stream that the block will be.
        while len(answer) < 21 + 13 and (part := connection.recv(1 << 16)):
            answer += part
        if len(answer) < 21 + 13 or answer[8] != _RPC_RESPONSE:
            return answer
        stream = answer[22:30]
        connection.sendall(_frame(_CHUNK_REQUEST, stream + struct.pack(">i", 0)))
        return b"OPEN " + _rest(connection)
    return b""


def _frame(kind: int, message: bytes) -> bytes:
    return struct.pack(">qb", len(message) + 9, kind) + message


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def _answer(port: int, request: bytes) -> bytes:
    with contextlib.suppress(OSError), _dialled(port) as connection:
        connection.sendall(request)
        return _rest(connection)
    return b""


def _dialled(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), _WAIT_SECS)


def _rest(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(OSError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def _connected(path: str) -> bytes:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return b"OPEN socket"
    return b""


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield f"file {root}/{name}", Path(root, name).read_bytes()


if __name__ == "__main__":
    main()
