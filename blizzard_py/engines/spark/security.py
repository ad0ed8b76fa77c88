"""Secure defaults of Spark: access to it, and data that others could read. No I/O.

Spark's ports answer anybody. A process that reaches a driver or an executor can fetch what jobs
were sent, and can send jobs. So every peer of our driver must prove that it knows a secret, all
connections are encrypted, and so is Spark's data on disks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping

from blizzard_core.errors import ConfigError
from blizzard_core.redact import SECRET_NAME, redacted

AUTHENTICATE = "spark.authenticate"
_SECRET = "spark.authenticate.secret"  # noqa: S105  # a setting's name
_ENCRYPT = "spark.network.crypto.enabled"
_CIPHER = "spark.network.crypto.cipher"
_GCM = "AES/GCM/NoPadding"
_FALLBACK = "spark.network.crypto.saslFallback"
_TLS = "spark.ssl.rpc.enabled"
_DISKS = "spark.io.encryption.enabled"
_ADDRESSES = ("spark.driver.host", "spark.driver.bindAddress")
REDACTION = "spark.redaction.regex"
_PLUGINS = "spark.plugins"
_CONNECT_PLUGIN = "SparkConnectPlugin"
_CONNECT_ADDRESS = "spark.connect.grpc.binding.address"
_EXECUTOR_OPTIONS = ("spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions")

_JAVA_OPTIONS = (
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    *_EXECUTOR_OPTIONS,
)
# Open ports of the JVM itself: a debugger, and remote management.
_DOORS = re.compile(r"jdwp|jmxremote\.(?:rmi\.)?port", re.IGNORECASE)

# A statement is used as configured: Spark would substitute the daemon's environment in it.
SUBSTITUTE = "spark.sql.variable.substitute"

SECURE_DEFAULTS = {
    # Locally and on Kubernetes Spark makes a secret for each session and gives it only to the
    # session's own processes.
    AUTHENTICATE: "true",
    _ENCRYPT: "true",
    # The default cipher does not detect changes on the way.
    _CIPHER: _GCM,
    "spark.network.crypto.authEngineVersion": "2",
    _FALLBACK: "false",
    _DISKS: "true",
    # Event logs and the UI leave out everything that our own messages leave out.
    REDACTION: f"(?i){SECRET_NAME.pattern}",
}


def with_own_redaction(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings, with our redaction patterns added to theirs.

    A pattern that replaced ours would leave credentials of jobs in event logs. So would a setting
    whose name looks harmless and whose value is a secret.
    """
    patterns = [SECURE_DEFAULTS[REDACTION]]
    if hidden := [re.escape(name) for name, value in conf.items() if redacted(value) != value]:
        patterns.append(f"^(?:{'|'.join(hidden)})$")
    if REDACTION in conf:
        patterns.append(f"(?:{conf[REDACTION]})")
    return {**conf, REDACTION: "|".join(patterns)}


def require_secured(master: str, conf: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that would open a driver to anybody.

    A standalone cluster has one secret for all its members, which cannot be guessed here. If it has
    none, the operator must say so explicitly.
    """
    problems = []
    off = _is(conf, AUTHENTICATE, "false")
    standalone = master.startswith("spark://")
    if off and not standalone:
        problems.append(
            f"{AUTHENTICATE}: must not be false; anybody who reaches the driver's ports could read"
            " what jobs are sent and run code as this daemon; remove it"
        )
    if standalone and not off and not conf.get(_SECRET):
        problems.append(
            f"{_SECRET}: is required for a spark:// master; the secret that its master and"
            f" workers were started with (${{NAME}} takes it from the environment). For a cluster"
            f' without a secret set {AUTHENTICATE}: "false"; anybody who reaches it can then read'
            " the credentials of jobs"
        )
    if _is(conf, SUBSTITUTE, "true"):
        problems.append(
            f"{SUBSTITUTE}: must not be true; a transform could read this daemon's environment"
        )
    if _CONNECT_PLUGIN in conf.get(_PLUGINS, "") and not is_loopback(
        conf.get(_CONNECT_ADDRESS, "")
    ):
        problems.append(
            f"{_PLUGINS}: must not start a Connect server that other machines reach, since it runs"
            f" any code sent to it as this daemon; remove it, or set {_CONNECT_ADDRESS}: 127.0.0.1"
        )
    if problems:
        raise ConfigError("spark.conf", problems)


def weak_settings(master: str, conf: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each of the user's settings that makes Spark less secure than ours."""
    yield from _weak_network(conf)
    if master.startswith("local"):
        for name in _ADDRESSES:
            if name in conf and not is_loopback(conf[name]):
                yield f"{name}: other machines reach the driver; a local master needs none"
    if _is(conf, _DISKS, "false"):
        yield f"{_DISKS}: data that tasks exchange is readable on executors' disks"
    if _is(conf, "spark.ui.enabled", "true") and "spark.ui.filters" not in conf:
        yield "spark.ui.enabled: the UI has no login and lets anybody end jobs"
    yield from _open_doors(conf)
    for name in _EXECUTOR_OPTIONS:
        if SECRET_NAME.search(conf.get(name, "")):
            yield (
                f"{name}: is on executors' command lines, which every user of their machines"
                " can read; name a file with @/path"
            )


def _open_doors(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each entry that bypasses Spark's authentication."""
    if _CONNECT_PLUGIN in conf.get(_PLUGINS, ""):
        yield f"{_PLUGINS}: every user of this machine can run code in the Connect server"
    for name in _JAVA_OPTIONS:
        if door := _DOORS.search(conf.get(name, "")):
            yield f"{name}: {door[0]} lets others into the JVM, past Spark's authentication"


def _weak_network(conf: Mapping[str, str]) -> Iterator[str]:
    if _is(conf, AUTHENTICATE, "false"):
        yield f"{AUTHENTICATE}: anybody who reaches driver or executors can read what jobs are sent"
    elif not _is(conf, _TLS, "true"):
        if _is(conf, _ENCRYPT, "false"):
            yield f"{_ENCRYPT}: credentials cross the network readable"
        elif conf.get(_CIPHER, _GCM) != _GCM:
            yield f"{_CIPHER}: only {_GCM} detects changes on the way"
        if _is(conf, _FALLBACK, "true"):
            yield f"{_FALLBACK}: an older and weaker exchange is accepted"


def weak_server_settings(url: str, setting: Callable[[str], str | None]) -> Iterator[str]:
    """Yield a warning for each weakness of a Spark Connect server that a client can see.

    ``setting`` returns a setting of the server.
    """
    address, _, rest = url.removeprefix("sc://").partition("/")
    parameters = dict(part.partition("=")[::2] for part in rest.strip(";").split(";"))
    host = address.rpartition(":")[0] or address
    encrypted = parameters.get("use_ssl", "").lower() == "true" or "token" in parameters
    if not encrypted and not is_loopback(host.strip("[]")):
        yield "spark.master: credentials cross the network readable; add ;use_ssl=true"
    if setting(AUTHENTICATE) != "true":
        yield f"{AUTHENTICATE}: is not set on the server; its executors answer anybody"
    elif setting(_ENCRYPT) != "true" and setting(_TLS) != "true":
        yield f"{_ENCRYPT}: is not set on the server; credentials cross its network readable"


def is_loopback(host: str) -> bool:
    """Return whether the host can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is(conf: Mapping[str, str], name: str, value: str) -> bool:
    return conf.get(name, "").strip().lower() == value
