"""Secrets in other people's messages, and hostile text: neither may get through."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core import redact
from blizzard_core.cli import print_error, print_json
from blizzard_core.log import configure, get_logger
from blizzard_core.redact import MASK, learn, redacted
from blizzard_core.settings.load import load_config
from blizzard_core.storage.failures import wrap_error
from blizzard_core.text import json_safe, printable, printable_lines, shortened
from tests.support.hostile_texts import HOSTILE

SECRET = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"


@pytest.fixture(autouse=True)
def unlearnt() -> Iterator[None]:
    redact.forget()
    yield
    redact.forget()


@pytest.mark.parametrize(
    "text",
    [
        f"https://a.blob.core.windows.net/c/f?sv=2024&sig={SECRET}%3D&se=2027",
        f"GET /f?X-Amz-Credential={SECRET}%2F2027%2Fus&X-Amz-Signature={SECRET}&X-Amz-Date=1",
        f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={SECRET}",
        f"https://b.s3.amazonaws.com/k?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature={SECRET}",
        f"https://storage.googleapis.com/b/k?X-Goog-Signature={SECRET}&X-Goog-Credential=a",
        f"{{'Authorization': 'Bearer {SECRET}'}}",
        f"Authorization: SharedKey account:{SECRET}=",
        f"Authorization: AWS4-HMAC-SHA256 Credential={SECRET}/x, Signature={SECRET}",
        f"Authorization: Basic {SECRET}",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=x",
        f"AZURE_STORAGE_KEY={SECRET}",
        f"azure_storage_master_key: {SECRET}",
        f"aws_sse_customer_key_base64={SECRET}",
        f'{{"client_secret": "{SECRET}", "tenant": "t"}}',
        f"aws_secret_access_key = {SECRET}",
        f"SAS_TOKEN={SECRET}",
        f"s3://user:{SECRET}@host/path: timed out",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"<Error><StringToSign>{SECRET}</StringToSign></Error>",
        f"redirected to https%3A%2F%2Fx%3Fsig%3D{SECRET}",
        f"DB_PWD={SECRET}",
        f"pwd={SECRET}",
        f"https://user:pa/{SECRET}@host/x",
        f"jdbc:oracle:thin:scott/{SECRET}@//h:1521/x",
        f"'x-api-key': '{SECRET}'",
        f"Authorization: Token {SECRET}",
        f"the passphrase {SECRET} is wrong",
        f"password is {SECRET}",
        f"token: {SECRET}",
        f"sc://h:15002/;token={SECRET}",
        f"fs.azure.account.key.x.dfs.core.windows.net={SECRET}",
        f"['--conf', 'spark.authenticate.secret', '{SECRET}']",
        f'{{"secret": {{"value": "{SECRET}"}}}}',
        f'client_secret="a b {SECRET}"',
        f"password=a&b{SECRET}",
        f"ya29.{SECRET}",
        f"eyJhbGciOiJSUzI1NiJ9.eyJ{SECRET}.{SECRET}",
        f"GET https://maps.example/v1?q=a&key={SECRET}: 403",
        f"https://x.azurewebsites.net/api/f?code={SECRET}==&n=1",
        f"redirected to https%3A%2F%2Fx%3Fkey%3D{SECRET}%26page%3D2",
        f"https://h/login?user=a&pass={SECRET}",
        f"DB_PASS={SECRET}",
        f"smtp-pass = '{SECRET} with words'",
        f'{{"user": "a", "pass": "{SECRET}"}}',
        f"('pass', '{SECRET}')",
        f"Cookie: theme=dark; sid={SECRET}; a=b",
        f"{{'Cookie': 'sid={SECRET}; a=b', 'Accept': '*/*'}}",
        f"Set-Cookie: sid={SECRET}; Path=/; HttpOnly",
        f"Ocp-Apim-Subscription-Key: {SECRET}",
        f"x-functions-key: {SECRET}",
        f"https://h/x?auth={SECRET}",
        f"https://h/x?a=b&token={SECRET}",
        f"API key not valid: AIza{SECRET}{SECRET}",
    ],
)
def test_credentials_in_messages_are_masked(text: str) -> None:
    found = redacted(text)
    assert SECRET not in found
    assert redact.MASK in found
    assert redacted(found) == found
    error = wrap_error("s3://b/k", OSError(text))
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "s3://raw/events/date=2024-01-28/hour=14/1706450400-01926abc.ndjson.gz: timed out",
        "line 3: expected a number for field key, got text",
        "no AWS credentials found; set them in storage_options or the environment",
        "Basic authentication is not possible",
        "partition_by key 'date' is also a field",
        "abfss://container/path: signature=no",
        "http://store:9000/bucket/2024@x.json: timed out",
        "unexpected token: 'abc' at line 3",
        "line 3: field password is required",
        "connections.c.password (/etc/blizzard2/a.yaml, line 7): must be text",
        "token: identifier",
        "PWD is /home/x",
        "https://api.example/v1?code=404&key=3&page=2: not found",
        "https://api.example/v1?token=2&page=2: not found",
        "s3://raw/key=20240128-0000/code=12345678/a.json: timed out",
        "second pass: 12 of 40 files",
        "bypass=true, passed=12, compass=north",
        "a cookie: none was set",
        "key=date, code=12345678",
    ],
)
def test_redaction_leaves_other_text_unchanged(text: str) -> None:
    assert redacted(text).replace(redact.MASK, "no") == text


def test_long_texts_are_searched_in_no_time() -> None:
    # Patterns that look back and forth would take minutes here.
    for text in (
        "a." * 50_000, "secret" * 20_000, "x=" * 50_000, "://" * 50_000, "pass_" * 20_000,
        "cookie:" * 20_000, "&key=" * 20_000, "a_pass" * 20_000,
    ):  # fmt: skip
        redacted(text)


def test_configured_secrets_are_masked_everywhere() -> None:
    learn({"AWS_SECRET_ACCESS_KEY": "geheim/+wort", "AWS_REGION": "us-east-1", "SAS": "kurz"})
    text = redacted("PUT geheim/+wort and geheim%2F%2Bwort in us-east-1, kurz")
    assert text == f"PUT {redact.MASK} and {redact.MASK} in us-east-1, kurz"


def test_names_that_tell_a_place_are_no_secrets() -> None:
    learn(
        {
            "GOOGLE_APPLICATION_CREDENTIALS": "/etc/keys/creds.json",
            "fs.s3a.aws.credentials.provider": "org.example.Provider",
        }
    )
    assert redacted("/etc/keys/creds.json, org.example.Provider") == (
        "/etc/keys/creds.json, org.example.Provider"
    )


def test_reading_the_configuration_learns_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "tables: {t: {table_uri: 's3://b/t',"
        " storage_options: {AWS_SECRET_ACCESS_KEY: abcdefgh1}}}\n"
        "spark: {conf: {fs.s3a.access.key: abcdefgh2}}\n"
    )
    load_config(path)
    assert redacted("abcdefgh1 abcdefgh2") == f"{redact.MASK} {redact.MASK}"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_cannot_command_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert printable_lines(f"a\n{text}").split("\n", 1)[1].replace("\n", "").isprintable()


@given(st.text(st.characters(exclude_categories=())))
def test_json_lines_read_back_as_the_same_values(text: str) -> None:
    line = json_safe(json.dumps({"path": text}, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == {"path": text}


def test_long_texts_are_cut_in_their_middle() -> None:
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abcde", 5) == "abcde"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged_to(stream: io.StringIO, text: str) -> str:
    configure("info", stream)
    error = ValueError(text)
    get_logger(pipeline=text).warning("fact", path=text, nested=[text], exc_info=error)
    return stream.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_json_logs_is_one_harmless_line(text: str) -> None:
    out = logged_to(io.StringIO(), text)
    assert out.count("\n") == 1
    assert out.rstrip("\n").isprintable()
    line = json.loads(out)
    assert line["path"] == line["pipeline"] == text
    out.encode()  # no lone surrogates


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_on_a_terminal_is_harmless(text: str) -> None:
    out = logged_to(Terminal(), text)
    # Colours are ours: SGR sequences and nothing else.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert plain.replace("\n", "").isprintable()
    if "31m" in text:
        assert "\\x9b" in plain
    out.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_on_stdout_is_harmless_and_reads_back(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json({"path": [text]})
    shown = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert json.loads(shown) == {"path": [text]}


def test_errors_on_the_terminal_are_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"https://user:{SECRET}@store/x: no such\nhost")
    shown = capsys.readouterr().err
    assert SECRET not in shown
    assert shown.startswith("error: https://***@store/x: no such\nhost")


@pytest.mark.parametrize("secret", ["p\"ss\\w0rd'é 12", "two\nlines, the second is a longer one"])
def test_a_learnt_secret_is_masked_however_it_is_dressed(secret: str) -> None:
    redact.learn_values([secret])
    try:
        for dressed in (
            secret, json.dumps(secret), json.dumps({"a": secret}, ensure_ascii=False),
            repr(secret), repr(secret.encode()), quote(secret), quote_plus(secret),
            base64.b64encode(secret.encode()).decode(),
        ):  # fmt: skip
            text = redacted(f"said: {dressed}.")
            assert MASK in text
            assert "w0rd" not in text
            assert "longer" not in text
    finally:
        redact.forget()


def test_the_last_line_of_a_key_alone_is_masked() -> None:
    redact.learn_values(["first\nthe-second-line-of-a-long-secret"])
    try:
        assert redacted("bad: the-second-line-of-a-long-secret!") == f"bad: {MASK}!"
    finally:
        redact.forget()


@pytest.mark.parametrize("text", ["?x=1%26password%3DhushHush12", '"password": ["hushHush12"]'])
def test_a_value_in_a_list_or_an_escaped_query_is_masked(text: str) -> None:
    assert "hush" not in redacted(text)
