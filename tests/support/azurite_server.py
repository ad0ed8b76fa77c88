"""Azure Blob Storage over HTTP: Azurite from npm, in a process of its own.

Its known gaps, and where they are met:

- it orders names by UTF-16 units where S3 and GCS order by bytes: `storage.azure`
  relies on no order, so nothing is worked around;
- it knows the API versions of its day and refuses newer clients:
  ``--skipApiVersionCheck``;
- it copies at once, so a copy that is still pending is not seen here;
- it has flat accounts only: folders of hierarchical ones (``hdi_isfolder``) are
  made by hand where a test needs them;
- it ignores ``startFrom`` in listings (3.37 does not): ``address`` in
  AZURITE_BLOB_STORAGE_URL has delta-rs list without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from azure.storage.blob import ContentSettings
from azure.storage.blob.aio import BlobServiceClient

_AZURITE = Path(__file__).parents[1] / "azurite/node_modules/azurite/dist/src"
# Ends with this process: it watches its standard input, which closes even on a kill.
_START = """
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
process.argv.splice(1, 0, %s);
require(process.argv[1]);
"""
_ACCOUNT = "tests"
_KEY = "dGVzdHMtb25seS1hbmQtbm8tc2VjcmV0"


@dataclass(frozen=True)
class AzuriteServer:
    endpoint: str

    @property
    def address(self) -> str:
        """The endpoint without the account."""
        return self.endpoint.rpartition("/")[0]

    @property
    def options(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }

    def new_container(self) -> str:
        """Return the name of a fresh container, so that tests share only the server."""
        name = f"container-{uuid.uuid4().hex[:12]}"

        async def create() -> None:
            async with BlobServiceClient(self.endpoint, credential=_KEY) as client:
                await client.create_container(name)

        asyncio.run(create())
        return name

    def put(self, container: str, name: str, data: bytes, encoding: str | None = None) -> None:
        """Store an object as others do, with a ``Content-Encoding`` if there is one."""

        async def put() -> None:
            async with BlobServiceClient(self.endpoint, credential=_KEY) as client:
                blob = client.get_blob_client(container, name)
                settings = ContentSettings(content_encoding=encoding)
                await blob.upload_blob(data, overwrite=True, content_settings=settings)

        asyncio.run(put())

    def put_folder(self, container: str, name: str) -> None:
        """Put the empty object that stands for a folder in accounts with a hierarchy."""

        async def put() -> None:
            async with BlobServiceClient(self.endpoint, credential=_KEY) as client:
                blob = client.get_blob_client(container, name)
                await blob.upload_blob(b"", metadata={"hdi_isfolder": "true"})

        asyncio.run(put())


@contextmanager
def azurite_server(service: str = "blob") -> Iterator[AzuriteServer]:
    """Start a service of Azurite on a free port, stop it at the end; its data is in its memory.

    ``service`` is ``blob`` or ``queue``.
    """
    program = _AZURITE / service / "main.js"
    if not program.exists():
        message = f"{program} is missing; `make setup-dev` installs it"
        raise FileNotFoundError(message)
    with subprocess.Popen(
        ["node", "-e", _START % json.dumps(str(program)), "--",
         f"--{service}Port", "0", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck",
         "--disableTelemetry"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"},
        text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            seen = []
            for line in process.stdout:
                seen.append(line)
                found = re.search(r"successfully listens on http://127\.0\.0\.1:(\d+)", line)
                if found:
                    break
            else:
                raise RuntimeError("Azurite did not start: " + "".join(seen))
            yield AzuriteServer(f"http://127.0.0.1:{found[1]}/{_ACCOUNT}")
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(timeout=60)
