"""Files that a configuration takes secrets from, and whether they were renewed.

Secrets in files can be renewed while a daemon runs, and they are in no process's environment. A
digest of each secret shows later whether it changed. The same goes for key files, which options or
the environment name and which the clients of stores read once.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

# A secret has a line, a key of a certificate some dozens.
MAX_BYTES = 64 << 10


class SecretUnreadable(ValueError):
    """A file that a configuration names for a secret holds none; the text says why."""


class SecretFiles:
    """The files that a configuration names, each read once, with digests of what was in them."""

    def __init__(self) -> None:
        self._texts: dict[Path, str] = {}
        self._digests: dict[Path, bytes] = {}

    def text(self, name: str) -> str:
        """Return what the file holds. Raises `SecretUnreadable`."""
        path = Path(name)
        if path not in self._texts:
            self._texts[path] = secret_in(path)
            self._digests[path] = _digest(self._texts[path])
        return self._texts[path]

    def watch(self, name: str) -> None:
        """Watch a file that a client reads; a missing or unreadable file is not watched."""
        with contextlib.suppress(SecretUnreadable, ValueError):  # the latter: no path
            path = Path(name).absolute()
            self._digests.setdefault(path, _digest(secret_in(path)))

    def take(self, other: SecretFiles) -> None:
        """Take over what another one read."""
        self._texts |= other._texts
        self._digests |= other._digests

    def texts(self) -> list[str]:
        """All that was read."""
        return list(self._texts.values())

    def changed(self) -> list[str]:
        """Return the files whose content changed; a missing or unreadable file did not.

        A renewal that exchanges the folder leaves no file for a moment.
        """
        changed = []
        for path, digest in self._digests.items():
            with contextlib.suppress(SecretUnreadable):
                if _digest(secret_in(path)) != digest:
                    changed.append(str(path))
        return changed


def secret_in(path: Path) -> str:
    """Return the text of a file without its last line break. Raises `SecretUnreadable`."""
    try:
        if not path.is_file():
            raise SecretUnreadable(f"{path}: there is no such file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretUnreadable(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise SecretUnreadable(f"{path}: is larger than {MAX_BYTES >> 10} KiB")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise SecretUnreadable(f"{path}: is no text in UTF-8") from error


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
