"""From a URI and the ecosystem's option names to a `Storage`.

``storage_options`` takes the names that object_store and delta-rs use
(``AWS_REGION``, ``GOOGLE_SERVICE_ACCOUNT``, ``AZURE_STORAGE_ACCOUNT_NAME``, any
case), so one block serves fsspec here and deltalake in Penguin. What is not
given comes from each client's standard chain. An unknown name is an error:
clients drop what they do not know, and a typo would silently change meaning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import fsspec

from blizzard_py.core.storage import Storage, StorageOptions
from blizzard_py.core.store_local import LocalStorage
from blizzard_py.core.store_object import (
    FileSystem,
    ObjectStorage,
    S3FileSystem,
    S3Storage,
    bucket_root,
)

_S3 = frozenset({"s3", "s3a"})
_GCS = frozenset({"gs", "gcs"})
_AZURE = frozenset({"az", "abfs", "abfss"})
SCHEMES = frozenset({"", "file", "memory"}) | _S3 | _GCS | _AZURE

CONNECT_TIMEOUT_SECS = 10
READ_TIMEOUT_SECS = 60

# Option name -> path inside the fsspec constructor's arguments.
_NAMES: dict[frozenset[str], dict[str, tuple[str, ...]]] = {
    _S3: {
        "AWS_ACCESS_KEY_ID": ("key",),
        "AWS_SECRET_ACCESS_KEY": ("secret",),
        "AWS_SESSION_TOKEN": ("token",),
        "AWS_REGION": ("client_kwargs", "region_name"),
        "AWS_DEFAULT_REGION": ("client_kwargs", "region_name"),
        "AWS_ENDPOINT_URL": ("client_kwargs", "endpoint_url"),
        # http is allowed by the endpoint's own scheme here; delta-rs wants it said.
        "AWS_ALLOW_HTTP": (),
        # Conditional PUT is delta-rs's own business.
        "AWS_CONDITIONAL_PUT": (),
        "AWS_S3_ALLOW_UNSAFE_RENAME": (),
    },
    _GCS: {
        "GOOGLE_SERVICE_ACCOUNT": ("token",),
        "GOOGLE_SERVICE_ACCOUNT_PATH": ("token",),
        "GOOGLE_APPLICATION_CREDENTIALS": ("token",),
    },
    _AZURE: {
        "AZURE_STORAGE_ACCOUNT_NAME": ("account_name",),
        "AZURE_STORAGE_ACCOUNT_KEY": ("account_key",),
        "AZURE_STORAGE_SAS_TOKEN": ("sas_token",),
        "AZURE_STORAGE_CLIENT_ID": ("client_id",),
        "AZURE_STORAGE_CLIENT_SECRET": ("client_secret",),
        "AZURE_STORAGE_TENANT_ID": ("tenant_id",),
    },
}


def scheme_of(uri: str) -> str:
    """The URI's scheme in lower case; ``""`` for a plain path."""
    return uri.partition("://")[0].lower() if "://" in uri else ""


def normalize_uri(uri: str) -> str:
    """One spelling per place: absolute local paths, no trailing slash, no user part.

    ``file:///a/b/``, ``/a/b`` and ``/a/./b`` are the same place; ``s3a`` is ``s3``.
    """
    scheme = scheme_of(uri)
    if scheme in {"", "file"}:
        path = uri.partition("://")[2] if scheme else uri
        return os.path.normpath(Path(path).absolute())
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2] if scheme not in _AZURE else parts.netloc
    name = "s3" if scheme in _S3 else "gs" if scheme in _GCS else scheme
    path = "/".join(p for p in parts.path.split("/") if p)
    return f"{name}://{host}/{path}" if path else f"{name}://{host}"


def problems_of(uri: str, options: StorageOptions) -> list[str]:
    """What is wrong with a URI and its options, without touching the store."""
    scheme = scheme_of(uri)
    if scheme not in SCHEMES:
        known = ", ".join(sorted(s for s in SCHEMES if s))
        return [f"unknown scheme {scheme!r}; use a local path or one of {known}"]
    found = []
    if scheme not in {"", "file"} and not uri.partition("://")[2].strip("/"):
        found.append("names no bucket")
    if urlsplit(uri).password:
        found.append("must not carry credentials; use storage_options")
    names = _names_for(scheme)
    found += [
        f"storage option {name!r} is not known for {scheme or 'local paths'}"
        + (f"; known: {', '.join(sorted(names))}" if names else "")
        for name in options
        if name.upper() not in names
    ]
    return found


def fsspec_arguments(uri: str, options: StorageOptions) -> dict[str, Any]:
    """Constructor arguments for the fsspec file system behind ``uri``."""
    scheme = scheme_of(uri)
    arguments: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in _S3:
        arguments["config_kwargs"] = {
            "connect_timeout": CONNECT_TIMEOUT_SECS,
            "read_timeout": READ_TIMEOUT_SECS,
            "max_pool_connections": 64,
            # s3fs retries by itself, five times; two layers of five take 44 s to give up.
            "retries": {"max_attempts": 1},
        }
    elif scheme in _GCS:
        arguments["requests_timeout"] = READ_TIMEOUT_SECS
    names = _names_for(scheme)
    for name, value in options.items():
        place = names.get(name.upper(), ())
        if place:
            *outer, last = place
            target = arguments
            for key in outer:
                target = target.setdefault(key, {})
            target[last] = value
    return arguments


def open_storage(uri: str, options: StorageOptions) -> Storage:
    """The `Storage` at ``uri``. Opens no connection: a missing bucket shows on first use."""
    scheme = scheme_of(uri)
    place = normalize_uri(uri)
    if scheme in {"", "file"}:
        return LocalStorage(place)
    fs = fsspec.filesystem(scheme, **fsspec_arguments(uri, options))
    if scheme in _S3:
        return S3Storage(cast("S3FileSystem", fs), bucket_root(place), place)
    return ObjectStorage(cast("FileSystem", fs), bucket_root(place), place)


def _names_for(scheme: str) -> Mapping[str, tuple[str, ...]]:
    return next((names for schemes, names in _NAMES.items() if scheme in schemes), {})
