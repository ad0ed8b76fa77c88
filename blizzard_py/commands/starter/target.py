"""The table or the API that the options of `blizzard init` name. Pure: it does not connect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from blizzard_core.errors import ConfigError
from blizzard_core.redact import SECRET_NAME
from blizzard_py.commands.starter.yaml_text import Secret

# Files of XML need an option that cannot be found in them.
LAKES = ("delta", "iceberg", "parquet", "csv", "json", "avro", "orc", "excel")
_SCHEMES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "http": "http",
    "https": "http",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# The variables from which the servers' own clients read a password.
_VARIABLES = {"postgresql": "PGPASSWORD", "mysql": "MYSQL_PWD"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options as they are given."""

    connection: str
    driver: str | None = None
    table: str | None = None
    column: str | None = None
    records: str | None = None
    since: str | None = None
    token_env: str | None = None


@dataclass(frozen=True, slots=True)
class StarterTarget:
    """A connection and a source of it, by names, as blocks of the configuration.

    ``source`` lacks its watermark. Secrets in either are `Secret`.
    """

    name: str
    pipeline: str
    connection: Mapping[str, Any]
    source: Mapping[str, Any]

    @property
    def driver(self) -> str:
        return str(self.connection["driver"])

    @property
    def what(self) -> str:
        """The table or API, for people."""
        return str(self.source.get("table") or self.source.get("request", {}).get("path") or "/")


def store_options(given: Sequence[str], environment: Mapping[str, str]) -> dict[str, str | Secret]:
    """Return the options of stores that ``NAME=VALUE`` name; ``${VARIABLE}`` is a `Secret`.

    Raises `ConfigError` for a secret on the command line, where every user of a machine sees it.
    """
    found: dict[str, str | Secret] = {}
    problems = []
    for each in given:
        name, equals, value = each.partition("=")
        variable = _REFERENCE.fullmatch(value)
        if not equals or not _NAME.fullmatch(name):
            problems.append("takes NAME=VALUE, such as AWS_ENDPOINT_URL=http://localhost:9000")
        elif variable is None and SECRET_NAME.search(name):
            problems.append(
                f"{name} must not stand on a command line; put it into an environment variable,"
                " and give ${THE_VARIABLE} in single quotes as the value"
            )
        elif variable is not None and variable[1] not in environment:
            problems.append(f"{name}: the variable {variable[1]} is not set")
        else:
            found[name] = (
                value if variable is None else Secret(variable[1], environment[variable[1]])
            )
    if problems:
        raise ConfigError("--storage-option", problems)
    return found


def target(wanted: Wanted, environment: Mapping[str, str]) -> StarterTarget:
    """Check that options go together, else raise `ConfigError`. Quotes no URI."""
    scheme = wanted.connection.partition(":")[0].lower()
    driver = wanted.driver or _SCHEMES.get(scheme)
    if driver is None:
        problem = (
            f"no driver is known by its beginning; known are: {', '.join(_SCHEMES)}; a lake needs"
            f" --driver ({', '.join(LAKES)}); jdbc is configured by hand: docs/reference/tables.md"
        )
        raise ConfigError("--connection", [problem])
    if driver == "http":
        return _api(wanted, environment)
    odd = {
        "--records": wanted.records,
        "--since": wanted.since,
        "--token-env": wanted.token_env,
    }
    problems = [f"{name}: is for APIs (http://, https://)" for name, given in odd.items() if given]
    if not wanted.table:
        problems.append("--table: is required: the table to read, with its schema")
    if problems:
        raise ConfigError("init", problems)
    return _table(driver, wanted.connection, wanted.table or "", environment)


def _table(driver: str, uri: str, table: str, environment: Mapping[str, str]) -> StarterTarget:
    pipeline = name_from(table.partition("{")[0].strip("/").replace("/", "."), "rows")
    block: dict[str, Any] = {"driver": driver, "uri": uri}
    if driver in LAKES:
        name = name_from(uri.rstrip("/").rpartition("/")[2], "lake")
    elif driver == "sqlite":
        name = name_from(uri.rpartition("/")[2].partition(".")[0], "sqlite")
    else:
        block["uri"], password = _without_password(uri)
        name = name_from(block["uri"].partition("?")[0].rpartition("/")[2], driver)
        variable = _VARIABLES[driver]
        if secret := password or environment.get(variable, ""):
            block["password"] = Secret(variable, secret)
    source = {"kind": "table", "id": f"{name}-{pipeline}", "connection": name, "table": table}
    return StarterTarget(name, pipeline, block, source)


def _without_password(uri: str) -> tuple[str, str]:
    """Return the URI without its password, and the password."""
    scheme, _, rest = uri.partition("://")
    credentials, at, location = rest.rpartition("@")
    user, _, password = credentials.partition(":")
    place, mark, query = location.partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    given = dict(parameters).get("password", "")
    without = [(name, value) for name, value in parameters if name != "password"]
    odd = [name for name, _ in without if SECRET_NAME.search(name)]
    if odd:
        raise ConfigError(
            "--connection",
            [f"{odd[0]} would stand in the file; give it under options, as ${{…}}, afterwards"],
        )
    tail = f"{mark}{urlencode(without)}" if without else ""
    return f"{scheme}://{user}{at if user else ''}{place}{tail}", given or unquote(password)


def _api(wanted: Wanted, environment: Mapping[str, str]) -> StarterTarget:
    needed = {
        "--records": (wanted.records, 'where in the answer the records stand; "" is the root'),
        "--since": (wanted.since, "the parameter that says from when on, as the API calls it"),
    }
    problems = [f"{name}: is required: {why}" for name, (v, why) in needed.items() if v is None]
    problems += ["--since: must not be empty"] if wanted.since == "" else []
    problems += ["--table: is for databases and lakes"] if wanted.table else []
    parts = urlsplit(wanted.connection)
    problems += [] if parts.hostname else ["--connection: needs a host"]
    variable = wanted.token_env
    if variable is not None and variable not in environment:
        problems.append(f"--token-env: environment variable {variable} is not set")
    if problems:
        raise ConfigError("init", problems)
    host = parts.netloc.rpartition("@")[2]
    label = (parts.hostname or "").removeprefix("www.").partition(".")[0]
    name = "api" if label.isdigit() or ":" in label else name_from(label, "api")
    pipeline = name_from(parts.path.strip("/").rpartition("/")[2], "records")
    block: dict[str, Any] = {"driver": "http", "base_url": f"{parts.scheme}://{host}"}
    auth = _auth(name, parts.username, parts.password, variable, environment)
    block |= {"auth": auth} if auth else {}
    request: dict[str, Any] = {"path": parts.path or "/"}
    params = {
        key: Secret(_variable(name, key), value) if SECRET_NAME.search(key) else value
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    }
    request |= {"params": params} if params else {}
    source = {
        "kind": "http",
        "id": f"{name}-{pipeline}",
        "connection": name,
        "request": request,
        "records": wanted.records,
    }
    return StarterTarget(name, pipeline, block, source)


def _auth(
    name: str,
    user: str | None,
    password: str | None,
    variable: str | None,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    if variable is not None:
        return {"kind": "bearer", "token": Secret(variable, environment[variable])}
    if user is None:
        return {}
    secret = Secret(_variable(name, "password"), unquote(password or ""))
    return {"kind": "basic", "username": unquote(user), "password": secret}


def _variable(name: str, key: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_{key}".upper()).lstrip("0123456789_") or "SECRET"


def name_from(text: str, otherwise: str) -> str:
    """Return a name for connections and pipelines from the last part of another."""
    last = unquote(text).strip("\"'`[].").rpartition(".")[2]
    found = re.sub(r"[^A-Za-z0-9_]+", "_", last, flags=re.ASCII).strip("_")
    return found.lower() or otherwise
