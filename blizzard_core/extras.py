"""Extras of the package: their modules, and the features that need them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from blizzard_core.errors import MissingExtra

DISTRIBUTION = "blizzard-penguin"


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of `pyproject.toml`.

    ``feature`` completes "… needs it" in messages. ``modules`` are what its packages are imported
    by, the one that is missed first in front. The other fields are names of the configuration:
    schemes of URIs, drivers of connections, formats of files.
    """

    name: str
    feature: str
    modules: tuple[str, ...]
    schemes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        """Return the command that installs it."""
        return install_command([self.name])

    def missing(self) -> str | None:
        """Return its first module that is not installed, without importing any."""
        return next((each for each in self.modules if not is_installed(each)), None)


# What is needed in no extra is needed by Penguin, or by commands that read state. A test compares
# this table with `pyproject.toml`.
EXTRAS: Mapping[str, Extra] = {
    each.name: each
    for each in (
        Extra("spark", "ingestion", ("pyspark", "py4j", "pandas", "wasmtime")),
        Extra("s3", "S3", ("s3fs", "aiobotocore", "botocore"), schemes=("s3", "s3a", "s3n")),
        Extra(
            "gcs",
            "Google Cloud Storage",
            ("gcsfs", "google.auth", "requests"),
            schemes=("gs", "gcs"),
        ),
        Extra(
            "azure",
            "Azure storage",
            (
                "adlfs",
                "azure.core",
                "azure.identity",
                "azure.storage.blob",
                "azure.storage.queue",
            ),
            schemes=("az", "abfs", "abfss"),
        ),
        Extra("http", "a source of kind http", ("httpx",), drivers=("http",)),
        Extra("postgresql", "PostgreSQL", ("adbc_driver_postgresql",), drivers=("postgresql",)),
        Extra("mysql", "MySQL", ("connectorx",), drivers=("mysql",)),
        Extra("sqlite", "SQLite", ("adbc_driver_sqlite",), drivers=("sqlite",)),
        Extra("iceberg", "an Iceberg table", ("pyiceberg",), drivers=("iceberg",)),
        Extra("avro", "the format avro", ("fastavro",), drivers=("avro",), formats=("avro",)),
        Extra("lineage", "lineage", ("openlineage.client",)),
        Extra(
            "traces",
            "traces",
            (
                "opentelemetry.sdk",
                "opentelemetry.exporter.otlp.proto.http",
                "opentelemetry.trace",
            ),
        ),
    )
}


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def install_command(names: Iterable[str]) -> str:
    """Return the command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(names)}]'"


def missing_extra(extra: Extra, module: str, command: str = "") -> MissingExtra:
    """Return the error for a module of an extra, and the command, by default for it alone."""
    return MissingExtra(module.partition(".")[0], extra.feature, command or extra.install)


def require(name: str) -> None:
    """Raise `MissingExtra` if a module of the extra is not installed. Imports none."""
    extra = EXTRAS[name]
    if module := extra.missing():
        raise missing_extra(extra, module)


def optional_module(module: str, name: str) -> Any:
    """Return a module of the extra ``name``. Raises `MissingExtra` if it is not installed.

    That is an installation error: a retry does not help.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        pass
    raise missing_extra(EXTRAS[name], module)


def extra_of_scheme(scheme: str) -> Extra | None:
    """Return the extra for URIs of a scheme; None if there is none."""
    return next((each for each in EXTRAS.values() if scheme in each.schemes), None)


def extra_of_driver(driver: str) -> Extra | None:
    """Return the extra for connections of a driver; None if there is none."""
    return next((each for each in EXTRAS.values() if driver in each.drivers), None)


def extra_of_format(name: str) -> Extra | None:
    """Return the extra for files of a format; None if there is none."""
    return next((each for each in EXTRAS.values() if name in each.formats), None)
