"""Opening of a `Storage` from a URI and the usual option names.

``storage_options`` takes the names of object_store and delta-rs (``AWS_REGION``,
``GOOGLE_SERVICE_ACCOUNT``, ``AZURE_STORAGE_ACCOUNT_NAME``, any case), so one block serves fsspec
here and deltalake in Penguin. Missing options come from each client's standard chain. An unknown
name is an error: clients ignore unknown options, so a typo would silently change the meaning.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from blizzard_core.errors import AccessDenied, StorageError
from blizzard_core.extras import extra_of_scheme, require
from blizzard_core.redact import redacted
from blizzard_core.storage.environment import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    S3_SCHEMES,
    completed,
    is_emulator,
)
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.objects import Patience, bucket_root
from blizzard_core.storage.protocol import Storage, StorageOptions
from blizzard_core.text import shortened

T = TypeVar("T")

# Unused clients are dropped, and with them the credentials in their keys.
_clients: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_one_at_a_time = threading.Lock()
# Another thread may hold the lock at a fork; the child must be able to take it.
os.register_at_fork(after_in_child=_one_at_a_time._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  # as logging does it


def shared(make: partial[T]) -> T:
    """Return the cached result of ``make``, calling it if no holder of the result is left."""
    # A forked process lacks the threads of its parent's clients.
    key = (os.getpid(), make.func, make.args, _frozen(make.keywords))
    with _one_at_a_time:
        found: T | None = _clients.get(key)
        if found is None:
            found = _clients[key] = make()
        return found


def _frozen(value: Any) -> Any:
    """Convert a value to a hashable one."""
    if isinstance(value, dict):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    return value


SCHEMES = frozenset({"", "file"}) | S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES

# Option name -> path inside the fsspec constructor's arguments.
_NAMES: dict[frozenset[str], dict[str, tuple[str, ...]]] = {
    S3_SCHEMES: {
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
    GCS_SCHEMES: {
        "GOOGLE_SERVICE_ACCOUNT": ("token",),
        "GOOGLE_SERVICE_ACCOUNT_PATH": ("token",),
        "GOOGLE_APPLICATION_CREDENTIALS": ("token",),
        "GOOGLE_BASE_URL": ("endpoint_url",),
        # "true" means no credentials: see fsspec_arguments.
        "GOOGLE_SKIP_SIGNATURE": (),
    },
    AZURE_SCHEMES: {
        "AZURE_STORAGE_ACCOUNT_NAME": ("account_name",),
        "AZURE_STORAGE_ACCOUNT_KEY": ("account_key",),
        "AZURE_STORAGE_SAS_TOKEN": ("sas_token",),
        "AZURE_STORAGE_CLIENT_ID": ("client_id",),
        "AZURE_STORAGE_CLIENT_SECRET": ("client_secret",),
        "AZURE_STORAGE_TENANT_ID": ("tenant_id",),
        # adlfs has no place for an endpoint over http: see store_azure.make_file_system.
        "AZURE_STORAGE_ENDPOINT": (),
        "AZURE_ALLOW_HTTP": (),
    },
}
# By scheme: the option with the endpoint, and the one that tells delta-rs that http is meant.
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")} | dict.fromkeys(
    ("az", "abfs", "abfss"), ("AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP")
)


def scheme_of(uri: str) -> str:
    """Return the URI's scheme in lower case; ``""`` for a plain path."""
    if uri[:6].lower() == "file:/":  # Hadoop writes one slash
        return "file"
    return uri.partition("://")[0].lower() if "://" in uri else ""


def normalize_uri(uri: str) -> str:
    """Return the one spelling of a place: absolute path, no trailing slash, no user part.

    ``file:///a/b/``, ``file:/a/b``, ``/a/b`` and ``/a/./b`` are the same place; ``s3a`` is ``s3``.
    """
    scheme = scheme_of(uri)
    if scheme in {"", "file"}:
        path = _local_path(uri)
        # POSIX leaves open what two slashes at the beginning mean, and Python keeps them.
        return f"/{os.path.normpath(Path(path).absolute()).lstrip('/')}"
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2] if scheme not in AZURE_SCHEMES else parts.netloc
    name = "s3" if scheme in S3_SCHEMES else "gs" if scheme in GCS_SCHEMES else scheme
    path = "/".join(_resolved(parts.path)[0])
    return f"{name}://{host}/{path}" if path else f"{name}://{host}"


def is_same_place(one: str, other: str) -> bool:
    """Return whether two URIs that nothing is wrong with are spellings of one place.

    An Azure account that only one of them names may stand in the options of the other.
    """
    if scheme_of(one) not in AZURE_SCHEMES or scheme_of(other) not in AZURE_SCHEMES:
        return normalize_uri(one) == normalize_uri(other)
    roots = {azure_root(bucket_root(normalize_uri(uri))) for uri in (one, other)}
    accounts = {azure_account(uri) for uri in (one, other)} - {None}
    return len(roots) == 1 and len(accounts) < 2


def _local_path(uri: str) -> str:
    rest = uri[len("file:") :] if scheme_of(uri) else uri
    return rest[2:] if scheme_of(uri) and rest.startswith("//") else rest


def _resolved(path: str) -> tuple[list[str], bool]:
    """Return a key's components without empty ones and dots, and whether ``..`` leaves the bucket.

    delta-rs resolves a table's URI so, and both daemons have to mean one place.
    """
    found: list[str] = []
    is_outside = False
    for part in path.split("/"):
        if part == "..":
            is_outside |= not found
            del found[-1:]
        elif part not in {"", "."}:
            found.append(part)
    return found, is_outside


def problems_of(uri: str, options: StorageOptions) -> list[str]:
    """Return what is wrong with a URI and its options, without touching the store."""
    scheme = scheme_of(uri)
    if scheme not in SCHEMES:
        known = ", ".join(sorted(s for s in SCHEMES if s))
        return [f"unknown scheme {scheme!r}; use a local path or one of {known}"]
    found = [] if scheme else _odd_path(uri)
    if scheme not in {"", "file"} and not uri.partition("://")[2].partition("/")[0]:
        found.append("names no bucket")
    if scheme == "file" and not _local_path(uri).startswith("/"):
        found.append("has a host; a local path is written /data/raw or file:///data/raw")
    if scheme not in {"", "file"} and set("?#\t\r\n") & set(uri):
        # A URI's path ends at the first two, and parsers drop the others.
        found.append("has a ?, a # or a line break; choose a place without it")
    try:
        has_password = bool(urlsplit(uri).password)
    except ValueError:  # a bracket that is not closed, digits that no standard knows
        return [*found, "is no URI; write scheme://bucket/path, or a local path"]
    if scheme not in {"", "file"} and _resolved(urlsplit(uri).path)[1]:
        found.append("leads above its bucket by ..; write the place without it")
    if has_password:
        found.append("must not carry credentials; use storage_options")
    names = _names_for(scheme)
    found += [
        f"storage option {name!r} is not known for {scheme or 'local paths'}"
        + (f"; known: {', '.join(sorted(names))}" if names else "")
        for name in options
        if name.upper() not in names
    ]
    return found


def _odd_path(path: str) -> list[str]:
    """Return the problems of a path without a scheme that would be a local folder by mistake."""
    head, colon, _ = path.partition(":")
    if not path.strip():
        return ["is empty; name a place"]
    if colon and head.lower() in SCHEMES:
        return [f"is a local path as it stands; write {head}://bucket/path"]
    if path.startswith("~"):
        return ["begins with ~, which only shells know; write the whole path, or ${HOME}"]
    return []


def fsspec_arguments(uri: str, options: StorageOptions) -> dict[str, Any]:
    """Return constructor arguments for the fsspec file system of ``uri``."""
    scheme = scheme_of(uri)
    arguments: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    names = _names_for(scheme)
    for name, value in options.items():
        place = names.get(name.upper(), ())
        if place:
            *outer, last = place
            target = arguments
            for key in outer:
                target = target.setdefault(key, {})
            target[last] = value
    account = azure_account(uri)
    if account:
        arguments.setdefault("account_name", account)
    if (option(options, "GOOGLE_SKIP_SIGNATURE") or "").lower() == "true":
        arguments["token"] = "anon"  # noqa: S105  # gcsfs' word for none
    return arguments


def open_source(uri: str, options: StorageOptions, *, versions: bool = False) -> Storage:
    """Open files that others write: links to directories are not followed.

    A table's own directories may be links to another disk; no rows are duplicated by that. With
    ``versions`` listings have those of the files, which takes some 80 bytes each.
    """
    if scheme_of(uri) in {"", "file"}:
        return LocalStorage(normalize_uri(uri), follow=False, versions=versions)
    return open_storage(uri, options, versions=versions)


def is_local_file(uri: str) -> bool:
    """Return whether a place on a local disk is a file, and so no source."""
    return scheme_of(uri) in {"", "file"} and Path(normalize_uri(uri)).is_file()


def open_private(uri: str, options: StorageOptions) -> Storage:
    """Open a private place: on a local disk other users may not read it."""
    if scheme_of(uri) in {"", "file"}:
        return LocalStorage(normalize_uri(uri), private=True)
    return open_storage(uri, options)


def open_storage(
    uri: str, options: StorageOptions, patience: Patience | None = None, *, versions: bool = False
) -> Storage:
    """Open the `Storage` at ``uri``. Makes no connection: a missing bucket shows on first use.

    ``versions`` as for `open_source`. The clients of GCS and Azure take a second to import; who
    uses neither does not wait. Raises `MissingExtra` if the store's client is not installed.
    """
    scheme = scheme_of(uri)
    place = normalize_uri(uri)
    if scheme in {"", "file"}:
        return LocalStorage(place, versions=versions)
    if extra := extra_of_scheme(scheme):
        require(extra.name)
    patience = patience or Patience()
    options = _with_environment(uri, options, os.environ)
    arguments = fsspec_arguments(uri, options)
    root = bucket_root(place)
    if scheme in S3_SCHEMES:
        from blizzard_core.storage import s3 as store_s3  # noqa: PLC0415  # see above

        s3 = shared(partial(store_s3.make_file_system, patience, **arguments))
        return store_s3.S3Storage(s3, root, place, versions=versions)
    if scheme in GCS_SCHEMES:
        from blizzard_core.storage import gcs as store_gcs  # noqa: PLC0415  # see above

        _check_key_file(place, arguments.get("token"))
        try:
            gcs = shared(partial(store_gcs.make_file_system, patience, **arguments))
        except Exception as error:  # Google's, of JSON, of HTTP: and their texts may hold the key
            raise AccessDenied(
                f"{place}: these credentials cannot be used ({type(error).__name__}); give the"
                " key file of a service account in GOOGLE_SERVICE_ACCOUNT"
            ) from None
        return store_gcs.GCSStorage(gcs, root, place, versions=versions)
    if scheme in AZURE_SCHEMES:
        from blizzard_core.storage import azure as store_azure  # noqa: PLC0415  # see above

        endpoint = option(options, "AZURE_STORAGE_ENDPOINT")
        try:
            azure = shared(partial(store_azure.make_file_system, patience, endpoint, **arguments))
        except ValueError:  # its text may contain the given credentials
            raise StorageError(
                f"{place}: the Azure account or its credentials cannot be used;"
                " set AZURE_STORAGE_ACCOUNT_NAME and a key in storage_options"
            ) from None
        return store_azure.AzureStorage(azure, azure_root(root), place, versions=versions)
    raise StorageError(f"{place}: {problems_of(uri, {})[0]}")


def _check_key_file(place: str, name: str | None) -> None:
    """Raise `AccessDenied` if there is no such key file.

    Google's client would take its name for a token and send that to Google. A value that is not a
    path may be the key itself and is not shown.
    """
    try:
        there = name is None or name == "anon" or Path(name).is_file()
    except (OSError, ValueError):  # longer than a name can be, or with a NUL in it
        there = False
    if not there:
        shown_name = f" {shortened(redacted(name))}" if name and name.startswith("/") else ""
        raise AccessDenied(
            f"{place}: there is no key file{shown_name}; GOOGLE_SERVICE_ACCOUNT,"
            " GOOGLE_SERVICE_ACCOUNT_PATH and GOOGLE_APPLICATION_CREDENTIALS take the path of one"
        )


def azure_root(root: str) -> str:
    """Convert ``container@account.dfs…/a`` to ``container/a``: the account is in the options."""
    host, slash, path = root.partition("/")
    return f"{host.partition('@')[0]}{slash}{path}"


def azure_account(uri: str) -> str | None:
    """Return the account in an Azure URI (``abfss://container@account.dfs…``), if any."""
    host = urlsplit(uri).netloc
    if scheme_of(uri) not in AZURE_SCHEMES or "@" not in host:
        return None
    return host.rpartition("@")[2].partition(".")[0] or None


def option(options: StorageOptions, wanted: str) -> str | None:
    """Return the option of that name, in any case."""
    return next((value for name, value in options.items() if name.upper() == wanted), None)


def _names_for(scheme: str) -> Mapping[str, tuple[str, ...]]:
    return next((names for schemes, names in _NAMES.items() if scheme in schemes), {})


def delta_options(
    uri: str, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the options as delta-rs needs them.

    delta-rs rejects an ``http://`` endpoint without an explicit option; the endpoint's own scheme
    is explicit enough here. With an endpoint it reads no AWS profile unless an option says so. It
    must also know that an Azure endpoint is an emulator. Azurite before 3.37 accepts ``startFrom``
    in a listing and ignores it, which breaks the third commit of a table; delta-rs then lists
    without it.
    """
    found = _with_environment(uri, options, environment)
    names = _ENDPOINTS.get(scheme_of(uri))
    if names is not None:
        endpoint = found.get(names[0], "")
        if endpoint.startswith("http://"):
            found.setdefault(names[1], "true")
        if scheme_of(uri) in AZURE_SCHEMES and is_emulator(endpoint, environment):
            found["AZURE_STORAGE_USE_EMULATOR"] = "true"
        if scheme_of(uri) in S3_SCHEMES and endpoint and not _has_aws_key(found, environment):
            found["AWS_FORCE_CREDENTIAL_LOAD"] = "true"
    return found


def _with_environment(
    uri: str, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, str]:
    account = azure_account(uri)
    named = {} if account is None else {"AZURE_STORAGE_ACCOUNT_NAME": account}
    given = {name.upper(): value for name, value in options.items()}
    return completed(scheme_of(uri), {**named, **given}, environment)


def _has_aws_key(options: StorageOptions, environment: Mapping[str, str]) -> bool:
    return bool(options.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_ACCESS_KEY_ID"))
