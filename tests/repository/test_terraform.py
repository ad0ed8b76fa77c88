"""The Terraform example: its references, and its rights beside what the daemons really ask."""

from __future__ import annotations

import json
import re
import threading
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hcl2
import pytest
from hcl2 import SerializationOptions

from blizzard_core.settings.load import load_config
from blizzard_py.app.workers import build
from penguin_py.app import build as tables_of
from tests.support.direct_engine import DirectEngine
from tests.support.fault_proxy import fault_proxy
from tests.support.manifests import DAEMONS, needs_helm, of_chart
from tests.support.s3_server import S3Server
from tests.support.scenario import ROOT, Scenario

FOLDER = ROOT / "deploy/terraform"
PLAIN = SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)
# The places of `Scenario`.
PREFIXES = {"source": "raw/", "table": "lake/events/"}


@cache
def blocks(kind: str) -> dict[str, Any]:
    """Return the blocks of a kind, of all files, by name; a resource's is ``TYPE.NAME``."""
    found: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            for block in hcl2.load(file, serialization_options=PLAIN).get(kind, []):
                for name, body in block.items():
                    nested = kind in ("resource", "data")
                    named = {f"{name}.{n}": b for n, b in body.items()} if nested else {name: body}
                    assert not named.keys() & found.keys()
                    found |= named
    return found


def policy(name: str) -> list[dict[str, Any]]:
    return blocks("data")[f"aws_iam_policy_document.{name}"]["statement"]


def test_every_reference_has_its_block_and_is_used() -> None:
    texts = [re.sub(r"#.*", "", path.read_text("utf-8")) for path in FOLDER.glob("*.tf")]
    text = "\n".join(texts)
    assert set(re.findall(r"\bvar\.(\w+)", text)) == blocks("variable").keys()
    assert set(re.findall(r"\blocal\.(\w+)", text)) == blocks("locals").keys()
    data = set(re.findall(r"\bdata\.(\w+\.\w+)", text))
    assert data == blocks("data").keys()
    resources = set(re.findall(r"(?<!data\.)\b(aws_\w+\.\w+)", text))
    assert resources <= blocks("resource").keys()
    for name, block in (blocks("variable") | blocks("output")).items():
        assert block["description"].endswith("."), name


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("source_prefix", "events/", True),
        ("table_prefix", "tables/a b/", True),
        ("source_prefix", "", False),
        ("source_prefix", "/", False),
        ("table_prefix", "/tables/", False),
        ("table_prefix", "tables", False),
        ("source_prefix", "*/", False),
        ("table_prefix", "${aws:username}/", False),
        ("oidc_provider_arn", "arn:aws:iam::111122223333:oidc-provider/oidc.eks.x/id/A", True),
        ("oidc_provider_arn", "arn:aws-cn:iam::111122223333:oidc-provider/oidc.eks.x/id/A", True),
        ("oidc_provider_arn", "https://oidc.eks.x/id/A", False),
    ],
)
def test_variables_refuse_what_would_mean_more(name: str, value: str, fits: bool) -> None:
    (rule,) = blocks("variable")[name]["validation"]
    found = re.search(r'regex\("(.*)", var', rule["condition"])
    assert (re.search(found[1], value) is not None) is fits


def test_rights_equal_the_documented_ones() -> None:
    page = (ROOT / "docs/guides/kubernetes.md").read_text("utf-8")
    (sentence,) = re.findall(r"S3 needs (.*?); Blizzard's source only the first two", page)
    documented = re.findall(r"`(s3:\w+)`", sentence)

    def actions(name: str) -> set[str]:
        return {action for statement in policy(name) for action in statement["actions"]}

    assert actions("table") == set(documented)
    assert actions("source") == set(documented[:2])
    roles = {
        name.removeprefix("aws_iam_role_policy."): each["policy"]
        for name, each in blocks("resource").items()
        if name.startswith("aws_iam_role_policy.")
    }
    assert roles == {
        "source": "${data.aws_iam_policy_document.source.json}",
        "table": "${data.aws_iam_policy_document.table.json}",
        "hints": "${data.aws_iam_policy_document.hints[0].json}",
    }
    source = blocks("resource")["aws_iam_role_policy.source"]
    assert source["role"] == '${aws_iam_role.this["blizzard"].id}'


def test_rights_to_the_queue_are_those_of_the_command() -> None:
    (statement,) = policy("hints")
    page = (ROOT / "docs/guides/notifications.md").read_text("utf-8")
    assert all(f"`{action}`" in page for action in statement["actions"])
    assert len(statement["actions"]) == 3
    assert statement["resources"] == ["${aws_sqs_queue.new_files[0].arn}"]
    role = blocks("resource")["aws_iam_role_policy.hints"]
    assert role["role"] == '${aws_iam_role.this["blizzard"].id}'
    assert role["count"] == "${var.notifications ? 1 : 0}"


def test_no_right_reaches_beyond_its_directory() -> None:
    for name in PREFIXES:
        for statement in policy(name):
            assert not [a for a in statement["actions"] if "*" in a]
            (resource,) = statement["resources"]
            bucket = f'aws_s3_bucket.this["{"source" if name == "source" else "lake"}"].arn'
            if statement["actions"] == ["s3:ListBucket"]:
                assert resource == f"${{{bucket}}}"
                (condition,) = statement["condition"]
                assert (condition["variable"], condition["values"]) == (
                    "s3:prefix",
                    [f"${{var.{name}_prefix}}*"],
                )
            else:
                assert resource == f"${{{bucket}}}/${{var.{name}_prefix}}*"


# --- what the daemons ask -----------------------------------------------------------------------


def right_of(request: str) -> tuple[str, str]:
    """Return the action and the key, or the listed prefix, of a request to S3."""
    method, _, address = request.partition(" ")
    parts = urlsplit(address)
    query = parse_qs(parts.query)
    if "list-type" in query:
        return "s3:ListBucket", query["prefix"][0]
    key = unquote(parts.path).split("/", 2)[2]
    verbs = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
    return f"s3:{verbs[method]}", key


def allowing(names: tuple[str, ...], action: str, key: str) -> list[str]:
    """Return the policies that allow an action on a key."""
    return [
        name
        for name in names
        for statement in policy(name)
        if action in statement["actions"] and fnmatchcase(key, f"{PREFIXES[name]}*")
    ]


def test_real_requests_stay_within_the_rights(tmp_path: Path, s3: S3Server) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        options = {**s3.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        world = Scenario(tmp_path, f"s3://{s3.new_bucket()}", options)
        world.put_rows("date=2024-01-01/hour=00/1700000000-a.ndjson.gz", 1, 2)
        world.write_config()
        config = load_config(world.config)
        proxy.seen.clear()
        (source,) = build(config, DirectEngine())
        assert source.cycle(threading.Event())
        while source.cycle(threading.Event()):
            pass
        source.close()
        of_blizzard = set(map(right_of, proxy.seen))
        proxy.seen.clear()
        with tables_of(config) as (table,):
            while table.cycle(threading.Event()):
                pass
        of_penguin = set(map(right_of, proxy.seen))
        assert world.ids() == [1, 2]
    for action, key in of_blizzard:
        assert allowing(("source", "table"), action, key), f"Blizzard: {action} {key}"
    for action, key in of_penguin:
        assert allowing(("table",), action, key), f"Penguin: {action} {key}"
    # No right is there that nothing uses; uploads in parts are of large files.
    granted = {a for name in PREFIXES for s in policy(name) for a in s["actions"]}
    assert granted == {action for action, _ in of_blizzard} | {"s3:AbortMultipartUpload"}
    assert not allowing(("source", "table"), "s3:PutObject", "raw/x")
    assert not allowing(("table",), "s3:GetObject", "raw/x")


# --- roles, queue, values -----------------------------------------------------------------------


def test_only_the_service_account_of_a_daemon_takes_its_role() -> None:
    (statement,) = policy("trust")
    assert statement["actions"] == ["sts:AssumeRoleWithWebIdentity"]
    conditions = {each["variable"]: each for each in statement["condition"]}
    assert {each["test"] for each in conditions.values()} == {"StringEquals"}
    assert conditions["${local.issuer}:sub"]["values"] == [
        "system:serviceaccount:${var.namespace}:${each.value}"
    ]
    assert conditions["${local.issuer}:aud"]["values"] == ["sts.amazonaws.com"]
    assert blocks("resource")["aws_iam_role.this"]["for_each"] == "${var.service_accounts}"


def test_buckets_are_private_and_stay() -> None:
    bucket = blocks("resource")["aws_s3_bucket.this"]
    assert bucket["lifecycle"] == [{"prevent_destroy": True}]
    block = blocks("resource")["aws_s3_bucket_public_access_block.this"]
    assert block["for_each"] == "${aws_s3_bucket.this}"
    assert {value for key, value in block.items() if key not in ("for_each", "bucket")} == {True}


def test_only_the_bucket_may_send_to_the_queue() -> None:
    (statement,) = policy("queue")
    assert statement["actions"] == ["sqs:SendMessage"]
    account = "${data.aws_caller_identity.this.account_id}"
    assert [(c["test"], c["variable"], *c["values"]) for c in statement["condition"]] == [
        ("ArnEquals", "aws:SourceArn", '${aws_s3_bucket.this["source"].arn}'),
        ("StringEquals", "aws:SourceAccount", account),
    ]
    queue = blocks("resource")["aws_sqs_queue.new_files"]
    assert "deadLetterTargetArn = aws_sqs_queue.dead_letters[0].arn" in queue["redrive_policy"]
    dead = blocks("resource")["aws_sqs_queue.dead_letters"]
    assert dead["message_retention_seconds"] > queue["message_retention_seconds"]
    switched = [name for name, each in blocks("resource").items() if "sqs" in name]
    for name in (*switched, "aws_s3_bucket_notification.source"):
        assert blocks("resource")[name]["count"] == "${var.notifications ? 1 : 0}"


@needs_helm
def test_values_give_the_pods_of_the_chart_their_roles() -> None:
    values = json.loads(json.dumps(blocks("locals")["helm_values"]))
    values["config"] = {"pipelines": {"events": {}}}
    found = of_chart(values, "events")
    accounts = blocks("variable")["service_accounts"]["default"]
    assert accounts.keys() == set(DAEMONS)
    for daemon, account in accounts.items():
        assert found["ServiceAccount", account]["metadata"]["annotations"] == {
            "eks.amazonaws.com/role-arn": f'${{aws_iam_role.this["{daemon}"].arn}}'
        }
