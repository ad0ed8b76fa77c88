"""Spark shut by default: who may talk to it, what others can read of it. No I/O.

Spark's ports answer anybody: whoever reaches a driver or an executor can fetch what jobs were
sent, and send jobs. So everything that speaks to a driver of ours proves that it knows a
secret, all that goes over a connection is encrypted, and so is what Spark puts on disks.
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
# Doors of the JVM itself: a debugger, and management by whoever connects.
_DOORS = re.compile(r"jdwp|jmxremote\.(?:rmi\.)?port", re.IGNORECASE)

# A statement is what the configuration says: Spark would put the daemon's environment into it.
SUBSTITUTE = "spark.sql.variable.substitute"

SECURE_DEFAULTS = {
    # Locally and on Kubernetes Spark makes a secret for each session, which only the session's
    # own processes are handed.
    AUTHENTICATE: "true",
    _ENCRYPT: "true",
    # The default cipher hides what is sent, and lets it be changed on the way.
    _CIPHER: _GCM,
    "spark.network.crypto.authEngineVersion": "2",
    _FALLBACK: "false",
    _DISKS: "true",
    # What event logs and the UI leave out: all that our own messages leave out.
    REDACTION: f"(?i){SECRET_NAME.pattern}",
}


def with_own_redaction(conf: Mapping[str, str]) -> dict[str, str]:
    """The user's settings, with ours beside what they say is to be left out.

    A pattern in the place of ours would leave credentials of jobs in event logs. So would a
    setting whose name tells nothing, and whose value comes from a secret's file.
    """
    patterns = [SECURE_DEFAULTS[REDACTION]]
    if hidden := [re.escape(name) for name, value in conf.items() if redacted(value) != value]:
        patterns.append(f"^(?:{'|'.join(hidden)})$")
    if REDACTION in conf:
        patterns.append(f"(?:{conf[REDACTION]})")
    return {**conf, REDACTION: "|".join(patterns)}


def require_secured(master: str, conf: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that would open a driver to anybody.

    A standalone cluster has one secret for all that belongs to it, which nobody can guess here.
    That it has none is its operator's decision, and has to be said.
    """
    problems = []
    off = _is(conf, AUTHENTICATE, "false")
    standalone = master.startswith("spark://")
    if off and not standalone:
        problems.append(
            f"{AUTHENTICATE}: must not be false; whoever reaches the driver's ports could read"
            " what jobs are sent and run code as this daemon; remove it"
        )
    if standalone and not off and not conf.get(_SECRET):
        problems.append(
            f"{_SECRET}: is required for a spark:// master; the secret that its master and"
            f" workers were started with (${{NAME}} takes it from the environment). For a cluster"
            f' that has none say {AUTHENTICATE}: "false"; anybody who reaches it can then read'
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
            f" what anybody sends as this daemon; remove it, or give {_CONNECT_ADDRESS} 127.0.0.1"
        )
    if problems:
        raise ConfigError("spark.conf", problems)


def weak_settings(master: str, conf: Mapping[str, str]) -> Iterator[str]:
    """Return what of the user's own settings leaves Spark more open than ours would, one by one."""
    yield from _weak_network(conf)
    if master.startswith("local"):
        for name in _ADDRESSES:
            if name in conf and not is_loopback(conf[name]):
                yield f"{name}: other machines reach the driver; a local master needs none"
    if _is(conf, _DISKS, "false"):
        yield f"{_DISKS}: what tasks exchange lies readable on executors' disks"
    if _is(conf, "spark.ui.enabled", "true") and "spark.ui.filters" not in conf:
        yield "spark.ui.enabled: the UI asks nobody who they are, and lets them end jobs"
    yield from _open_doors(conf)
    for name in _EXECUTOR_OPTIONS:
        if SECRET_NAME.search(conf.get(name, "")):
            yield (
                f"{name}: stands on executors' command lines, which everybody on their machines"
                " reads; name a file with @/path"
            )


def _open_doors(conf: Mapping[str, str]) -> Iterator[str]:
    """Return what lets others in by a door of its own, past Spark's authentication."""
    if _CONNECT_PLUGIN in conf.get(_PLUGINS, ""):
        yield f"{_PLUGINS}: everybody on this machine can have the Connect server run code"
    for name in _JAVA_OPTIONS:
        if door := _DOORS.search(conf.get(name, "")):
            yield f"{name}: {door[0]} lets others into the JVM, past Spark's authentication"


def _weak_network(conf: Mapping[str, str]) -> Iterator[str]:
    if _is(conf, AUTHENTICATE, "false"):
        yield f"{AUTHENTICATE}: whoever reaches driver or executors can read what jobs are sent"
    elif not _is(conf, _TLS, "true"):
        if _is(conf, _ENCRYPT, "false"):
            yield f"{_ENCRYPT}: credentials cross the network readable"
        elif conf.get(_CIPHER, _GCM) != _GCM:
            yield f"{_CIPHER}: only {_GCM} notices what was changed on the way"
        if _is(conf, _FALLBACK, "true"):
            yield f"{_FALLBACK}: an older and weaker exchange is accepted"


def weak_server_settings(url: str, setting: Callable[[str], str | None]) -> Iterator[str]:
    """Return what a Spark Connect server leaves open, as far as a client can tell.

    ``setting`` gives one of the server's.
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
    """Return whether only this machine can be meant."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is(conf: Mapping[str, str], name: str, value: str) -> bool:
    return conf.get(name, "").strip().lower() == value
