"""Options of a store that the environment gives.

fsspec's clients and delta-rs read other variables. Here the variables that only one of them reads
become options, so both daemons use the same store. Credentials of AWS are left to the clients:
both follow its chain (variables, profile, role), and parts of two identities must not mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
GCS_SCHEMES = frozenset({"gs", "gcs"})
AZURE_SCHEMES = frozenset({"az", "abfs", "abfss"})

# The first that is set counts. The last one is delta-rs' own.
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Variables that both daemons read, in the order of the documentation.
VARIABLES = {
    S3_SCHEMES: (
        *_S3_ENDPOINTS,
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ),
    GCS_SCHEMES: (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_BASE_URL",
        "GOOGLE_SKIP_SIGNATURE",
        "STORAGE_EMULATOR_HOST",
    ),
    AZURE_SCHEMES: (
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_STORAGE_TENANT_ID",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURITE_BLOB_STORAGE_URL",
        "AZURE_CLIENT_ID",
        "AZURE_TENANT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
}
# Both clients read GOOGLE_APPLICATION_CREDENTIALS themselves, of any kind.
_GOOGLE_KEYS = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SKIP_SIGNATURE")
_AZURE_CREDENTIALS = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
)
_AZURE_CLOUD = "core.windows.net"
# Where delta-rs looks for an Azure emulator, the endpoint's account left out: in the environment
# alone, and at this address if it is not set.
_EMULATOR_URL = "AZURITE_BLOB_STORAGE_URL"
_EMULATOR_DEFAULT = "http://127.0.0.1:10000"
_EMULATOR_ACCOUNT = "devstoreaccount1"
# The same key in each emulator, published by Microsoft.
_EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def variables_set(scheme: str, environment: Mapping[str, str]) -> list[str]:
    """Return the names of set variables that both daemons read for a store of this scheme."""
    names = next((names for schemes, names in VARIABLES.items() if scheme in schemes), ())
    return [name for name in names if environment.get(name)]


def completed(
    scheme: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the options, in upper case, with what the environment adds to them."""
    found = {name.upper(): value for name, value in options.items()}
    given = {name: value for name, value in environment.items() if value}
    if scheme in S3_SCHEMES:
        more = _of_s3(given)
    elif scheme in GCS_SCHEMES:
        more = _of_gcs(found, given)
    elif scheme in AZURE_SCHEMES:
        more = _of_azure(found, given)
    else:
        more = {}
    return {**more, **found}


def _of_s3(environment: Mapping[str, str]) -> dict[str, str]:
    endpoints = [environment[name] for name in _S3_ENDPOINTS if name in environment]
    return {"AWS_ENDPOINT_URL": endpoints[0]} if endpoints else {}


def _of_gcs(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    more = _named(environment, _GOOGLE_KEYS)
    host = environment.get("STORAGE_EMULATOR_HOST", "default")
    if host != "default":  # Google's own word for no emulator
        more["GOOGLE_BASE_URL"] = host if "://" in host else f"http://{host}"
        more.setdefault("GOOGLE_SKIP_SIGNATURE", "true")
    if not options.keys().isdisjoint((*_GOOGLE_KEYS, "GOOGLE_APPLICATION_CREDENTIALS")):
        more = _named(more, ("GOOGLE_BASE_URL",))
    return more | _named(environment, ("GOOGLE_BASE_URL",))


def _of_azure(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the account of the environment. Credentials of the options stand alone."""
    connection = _parts(environment.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    use = environment.get("AZURE_STORAGE_USE_EMULATOR", connection.get("usedevelopmentstorage", ""))
    name, *_ = names = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT")
    more = _connected(connection) | _named(environment, (*names, *_AZURE_CREDENTIALS))
    if use.lower() == "true":
        address = environment.get(_EMULATOR_URL, _EMULATOR_DEFAULT).rstrip("/")
        account = options.get(name) or more.setdefault(name, _EMULATOR_ACCOUNT)
        more.setdefault("AZURE_STORAGE_ENDPOINT", f"{address}/{account}")
        if account == _EMULATOR_ACCOUNT and more.keys().isdisjoint(_AZURE_CREDENTIALS):
            more["AZURE_STORAGE_ACCOUNT_KEY"] = _EMULATOR_KEY
    if not options.keys().isdisjoint(_AZURE_CREDENTIALS):
        more = _named(more, names)
    is_of_another_account = name in more and options.get(name, more[name]) != more[name]
    return {} if is_of_another_account else more


def _connected(parts: Mapping[str, str]) -> dict[str, str]:
    """Convert the parts of a connection string to options."""
    account, suffix = parts.get("accountname", ""), parts.get("endpointsuffix", _AZURE_CLOUD)
    endpoint = parts.get("blobendpoint", "").rstrip("/")
    if account and not endpoint and suffix != _AZURE_CLOUD:
        endpoint = f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.blob.{suffix}"
    found = {
        "AZURE_STORAGE_ACCOUNT_NAME": account or urlsplit(endpoint).netloc.partition(".")[0],
        "AZURE_STORAGE_ACCOUNT_KEY": parts.get("accountkey", ""),
        "AZURE_STORAGE_SAS_TOKEN": parts.get("sharedaccesssignature", ""),
        "AZURE_STORAGE_ENDPOINT": endpoint,
    }
    return {name: value for name, value in found.items() if value}


def _parts(connection: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in connection.split(";") if "=" in part)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _named(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}


def is_emulator(endpoint: str, environment: Mapping[str, str]) -> bool:
    """Return whether this endpoint is the emulator that delta-rs would take.

    An emulator's has the account in its path (``http://127.0.0.1:10000/devstoreaccount1``).
    """
    address = environment.get(_EMULATOR_URL) or _EMULATOR_DEFAULT
    return _address(endpoint.rstrip("/").rpartition("/")[0]) == _address(address)


def _address(url: str) -> str:
    return url.rstrip("/").lower().replace("://localhost:", "://127.0.0.1:")
