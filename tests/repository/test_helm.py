"""The chart in deploy/helm, rendered with Helm's own library."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.yaml_file import load_yaml
from blizzard_py.__main__ import main as blizzard
from tests.support.helm_chart import NAMESPACE, RefusedValuesError, render
from tests.support.manifests import (
    CHART,
    CONFIG,
    DAEMONS,
    VERSIONS,
    assert_fits,
    needs_helm,
    of_chart,
    pod_of,
)
from tests.support.scenario import ROOT

pytestmark = needs_helm

LEAST: dict[str, Any] = {"config": {"pipelines": CONFIG["pipelines"]}}
DIGEST = f"sha256:{'0' * 64}"
ALL: dict[str, Any] = {
    "config": CONFIG | {"metrics": {"address": "0.0.0.0:8080"}},
    "image": {
        "repository": "localhost:5000/bp",
        "digest": DIGEST,
        "pullPolicy": "Always",
        "pullSecrets": ["registry"],
    },
    "cloud": "azure",
    "labels": {"team": "lake"},
    "terminationGracePeriodSeconds": 120,
    "blizzard": {
        "secret": "keys",
        "serviceAccount": {"annotations": {"azure.workload.identity/client-id": "1"}},
        "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "8Gi"}},
        "scratch": "40Gi",
        "tmp": "2Gi",
        "scheduling": {
            "nodeSelector": {"disk": "local"},
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
        },
    },
    "penguin": {"serviceAccount": {"create": False, "name": "mine"}},
    "networkPolicy": {
        "prometheusNamespace": "observability",
        "egress": [
            {
                "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}],
                "ports": [{"protocol": "TCP", "port": 5432}],
            }
        ],
    },
    "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "kps"}},
    "alerts": {"enabled": True, "labels": {"release": "kps"}},
}


PLAIN = {"AWS_SECRET_ACCESS_KEY": "hunter2"}


def connected(**given: Any) -> dict[str, Any]:
    """Return values with a connection whose other secrets come from files."""
    secrets = {"uri": "postgresql://u@db:5432/shop", "password": "${file:/run/secrets/x}"}
    return {"config": CONFIG | {"connections": {"shop": {**secrets, **given}}}}


def changed(**values: Any) -> dict[str, Any]:
    return {**LEAST, **values}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [LEAST, ALL], ids=["defaults", "all"])
def test_every_object_fits_the_schema_of_kubernetes(values: Any, version: str) -> None:
    kinds = []
    for found in of_chart(values).values():
        assert_fits(found, version)
        kinds.append(found["kind"])
    assert kinds.count("StatefulSet") == len(DAEMONS)
    assert ("PrometheusRule" in kinds) is (values is ALL)


def test_alerts_are_the_only_copy() -> None:
    source = ROOT / "deploy/monitoring/alerts.yaml"
    assert (CHART / "files/alerts.yaml").readlink() == Path("../../../monitoring/alerts.yaml")
    rule = of_chart(changed(alerts={"enabled": True}))["PrometheusRule", "r"]
    assert rule["spec"] == yaml.safe_load(source.read_text("utf-8"))


# --- values -----------------------------------------------------------------------------------


def test_all_values_arrive() -> None:
    found = of_chart(ALL)
    for kind, name in found:
        assert found[kind, name]["metadata"]["labels"]["team"] == "lake"
    pod = pod_of(found["StatefulSet", "r-blizzard"])
    (container,) = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (
        f"localhost:5000/bp@{DIGEST}",
        "Always",
    )
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod.items() >= ALL["blizzard"]["scheduling"].items()
    assert container["resources"]["limits"]["memory"] == "8Gi"
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    assert found["Service", "r-blizzard"]["spec"]["ports"][0]["port"] == 8080
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["credentials"]["secret"]["secretName"] == "keys"
    sizes = [volumes[name]["emptyDir"]["sizeLimit"] for name in ("scratch", "tmp")]
    assert sizes == ["40Gi", "2Gi"]
    account = found["ServiceAccount", "r-blizzard"]["metadata"]
    assert account["annotations"] == {"azure.workload.identity/client-id": "1"}
    assert pod_of(found["StatefulSet", "r-penguin"])["serviceAccountName"] == "mine"
    assert ("ServiceAccount", "r-penguin") not in found
    policy = found["NetworkPolicy", "r"]["spec"]
    assert policy["egress"][-1] == ALL["networkPolicy"]["egress"][0]
    (source,) = policy["ingress"][0]["from"]
    assert "observability" in source["namespaceSelector"]["matchLabels"].values()
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert found[kind, "r"]["metadata"]["labels"]["release"] == "kps"
    assert found["ServiceMonitor", "r"]["spec"]["endpoints"][0]["interval"] == "1m"


def test_parts_can_be_switched_off() -> None:
    off = {"enabled": False}
    found = of_chart(changed(podDisruptionBudget=off, networkPolicy=off))
    assert {kind for kind, _ in found} == {"ConfigMap", "Service", "ServiceAccount", "StatefulSet"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "config has no pipelines: give at least one entry under `config.pipelines`"),
        (changed(pipelines={}), "additional properties 'pipelines' not allowed"),
        (changed(replicas=2), "additional properties 'replicas' not allowed"),
        (
            changed(blizzard={"replicas": 2}),
            "blizzard.replicas is 2, and config.global.replicas is missing",
        ),
        (changed(penguin={"replicas": 2}), "at '/penguin/replicas'"),
        (changed(cloud="ibm"), "at '/cloud': value must be one of '', 'aws', 'gcp', 'azure'"),
        (changed(image={"digest": "abc"}), "at '/image/digest': 'abc' does not match"),
        (changed(image={"repository": "a/b:1"}), "at '/image/repository': 'a/b:1' does not match"),
        (changed(penguin={"scratch": "lots"}), "at '/penguin/scratch': 'lots' does not match"),
        (changed(penguin={"secrets": "x"}), "at '/penguin': additional properties 'secrets'"),
        (
            changed(blizzard={"serviceAccount": {"create": False}}),
            "at '/blizzard/serviceAccount/name': minLength",
        ),
        (
            changed(blizzard={"resources": {"limits": {"memory": None}}}),
            "at '/blizzard/resources/limits': missing property 'memory'",
        ),
        (changed(alerts={"enabled": "yes"}), "at '/alerts/enabled': got string, want boolean"),
        (changed(terminationGracePeriodSeconds=5), "minimum: got 5, want 30"),
        ({"config": CONFIG | {"metrics": None}}, "at '/config': missing property 'metrics'"),
        (
            {"config": CONFIG | {"metrics": {"address": "127.0.0.1:9090"}}},
            "at '/config/metrics/address': '127.0.0.1:9090' does not match",
        ),
        ({"config": CONFIG | {"spark": {"master": "local[*]"}}}, "give local[N], spark://HOST"),
        (
            {"config": CONFIG | {"metrics": {"address": "0.0.0.0:99999"}}},
            "give a port from 1 to 65535",
        ),
        (
            {"config": CONFIG | {"global": {"advanced": {"shutdown_grace": "10m"}}}},
            "would kill the daemons before they have saved. Give 630 or more",
        ),
        (connected(password="hunter2"), "config.connections has a `password` in plain text"),
        (connected(auth={"kind": "bearer", "token": "x"}), "has a `token` in plain text"),
        (connected(password="pa$$word"), "config.connections has a `password` in plain text"),
        (connected(uri="postgresql://u:hunter2@db/shop"), "has a `uri` with a password"),
        (
            {"config": CONFIG | {"defaults": {"source": {"storage_options": PLAIN}}}},
            "config has AWS_SECRET_ACCESS_KEY… in plain text",
        ),
        (changed(labels={"app.kubernetes.io/name": "x"}), "'app.kubernetes.io/name'"),
        (changed(labels={"team": "x" * 64}), "at '/labels/team'"),
        (changed(image={"tag": "a b"}), "at '/image/tag': 'a b' does not match"),
        (changed(networkPolicy={"enabled": None}), "missing property 'enabled'"),
        (
            changed(networkPolicy={"egress": [{"to": [], "ports": [{"port": 443}]}]}),
            "at '/networkPolicy/egress/0/to': minItems: got 0, want 1",
        ),
        (
            {"config": CONFIG | {"spark": {"master": "k8s://https://h"}}},
            "Executors in pods need deploy/kubernetes/overlays/spark-on-kubernetes",
        ),
    ],
)
def test_a_wrong_value_is_refused(values: Any, sentence: str) -> None:
    with pytest.raises(RefusedValuesError) as refused:
        render(CHART, values)
    assert sentence in str(refused.value)


def test_a_long_release_name_is_refused() -> None:
    assert ("StatefulSet", f"{'r' * 43}-blizzard") in of_chart(LEAST, "r" * 43)
    with pytest.raises(RefusedValuesError, match="43 characters at most"):
        render(CHART, LEAST, "r" * 44)


@pytest.mark.parametrize("release", ["123", "0x1f", "a.b"])
def test_a_release_name_that_names_no_service_is_refused(release: str) -> None:
    with pytest.raises(RefusedValuesError, match="begin with a letter"):
        render(CHART, LEAST, release)


def test_texts_that_look_like_something_else_stay_texts() -> None:
    values = connected() | {
        "image": {"pullSecrets": ["1"]},
        "blizzard": {"secret": "007"},
        "penguin": {"serviceAccount": {"create": False, "name": "null"}},
        "networkPolicy": {"prometheusNamespace": "123"},
        "serviceMonitor": {"enabled": True},
        "alerts": {"enabled": True},
    }
    found = of_chart(values, "true")
    for each in found.values():
        assert_fits(each, VERSIONS[-1])
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "true"
    assert pod_of(found["StatefulSet", "true-penguin"])["serviceAccountName"] == "null"


def test_a_label_of_one_object_replaces_the_common_one() -> None:
    found = of_chart(
        changed(
            labels={"team": "lake", "tier": "1"},
            serviceMonitor={"enabled": True, "labels": {"team": "metrics"}},
        )
    )
    labels = found["ServiceMonitor", "r"]["metadata"]["labels"]
    assert (labels["team"], labels["tier"]) == ("metrics", "1")
    assert render(CHART, changed(labels={"team": "a"}))["config.yaml"].count("team:") == 1


def test_a_configuration_of_tables_alone_runs_no_blizzard() -> None:
    values = {"config": {"tables": {"t": {"table_uri": "s3://lake/t"}}}}
    names = {name for kind, name in of_chart(values) if kind == "StatefulSet"}
    assert names == {"r-penguin"}
    notes = render(CHART, values)["NOTES.txt"]
    assert "exec r-penguin-0 -- penguin status" in notes
    assert "r-blizzard" not in notes


def test_secrets_from_files_are_no_plain_text() -> None:
    found = connected(
        uri="postgresql://u:${file:/run/secrets/x}@db/shop",
        headers={"Authorization": "Basic ${file:/run/secrets/x}"},
        auth={"kind": "api_key", "token": ""},
    )
    assert ("ConfigMap", "r-config") in of_chart(found)


def keys(values: dict[str, Any], place: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found = {(*place, name) for name in values}
    for name, value in values.items():
        if isinstance(value, dict) and name not in ("requests", "limits"):
            found |= keys(value, (*place, name))
    return found


def test_each_value_has_a_comment_and_a_schema() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    penguin = text.index("\npenguin:")
    above = ""
    for line in text[:penguin].splitlines() + text[text.index("\npodDisruption") :].splitlines():
        if re.fullmatch(r" *[\w.]+: ([^{].*|\{\})", line):
            assert above.lstrip().startswith("#"), line
        above = line
    values = yaml.safe_load(text)
    assert keys(values["penguin"]) == keys(values["blizzard"]) - {("replicas",)}
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    for place in keys(values):
        at = schema
        for name in place if place[0] != "config" else place[:1]:
            at = at["properties"][name]
            if "$ref" in at:
                at = schema["definitions"][at["$ref"].rpartition("/")[2]]
            if "properties" not in at:
                break


# --- configuration ----------------------------------------------------------------------------


def test_texts_and_numbers_reach_the_daemon_unchanged(tmp_path: Path) -> None:
    odd = [
        "on",
        "=",
        "1:30",
        "0x1f",
        "1_000",
        "2024-01-01",
        "~",
        "1e3",
        "012",
        "y",
        ".5",
        "{{ x }}",
    ]
    odd += ["<a&b>", "a\tb\n", "\u2028", "\U0001f600", "#", "%", "${file:/x:-}", "\\u0041"]
    more = {"whole": 5_000_000_000, "real": 0.25, "truth": True, "nothing": []}
    values = {"config": CONFIG | {"x": {"texts": odd, **more}}}
    path = tmp_path / "config.yaml"
    path.write_text(of_chart(values)["ConfigMap", "r-config"]["data"]["config.yaml"], "utf-8")
    found = load_yaml(path, {})
    assert not found.problems
    assert found.data["x"] == {"texts": [t.replace("${file:/x:-}", "") for t in odd], **more}


def test_a_changed_configuration_rolls_the_pods() -> None:
    def annotations(values: dict[str, Any]) -> dict[str, str]:
        template = of_chart(values)["StatefulSet", "r-penguin"]["spec"]["template"]
        return dict(template["metadata"]["annotations"])

    before = annotations(LEAST)
    assert annotations(LEAST | {"alerts": {"enabled": True}}) == before
    shorter = {"global": {"advanced": {"shutdown_grace": "30s"}}}
    assert annotations({"config": LEAST["config"] | shorter}) != before


def test_default_grace_and_cores_fit_the_configuration() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert values["config"] | {"pipelines": CONFIG["pipelines"]} == CONFIG
    cores = values["blizzard"]["resources"]["requests"]["cpu"]
    assert values["config"]["spark"]["master"] == f"local[{cores}]"


# --- releases ---------------------------------------------------------------------------------


def test_two_releases_share_nothing() -> None:
    one, other = of_chart(LEAST, "events"), of_chart(LEAST, "orders")
    assert not one.keys() & other.keys()
    for kind, name in one:
        if kind == "Service":
            selector = one[kind, name]["spec"]["selector"].items()
            pods = [w["spec"]["template"]["metadata"]["labels"].items() for (k, _), w in
                    (*one.items(), *other.items()) if k == "StatefulSet"]  # fmt: skip
            assert sum(selector <= labels for labels in pods) == 1


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["appVersion"] == chart["version"] == project["version"]
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


def test_notes_name_what_is_left_to_do() -> None:
    notes = render(CHART, LEAST)["NOTES.txt"]
    assert f"kubectl -n {NAMESPACE} exec r-blizzard-0 -- blizzard status" in notes
    assert "create secret generic blizzard-credentials" in notes
    assert "Set image.digest" in notes
    assert "alerts.enabled" in notes
    done = render(CHART, ALL)["NOTES.txt"]
    assert not [
        word for word in ("create secret", "image.digest", "alerts.enabled") if word in done
    ]


def test_the_documented_values_run(tmp_path: Path) -> None:
    page = (ROOT / "docs/guides/kubernetes.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", page, re.DOTALL)
    found = of_chart(yaml.safe_load(text), "events")
    for each in found.values():
        assert_fits(each, VERSIONS[-1])
    config = tmp_path / "config.yaml"
    config.write_text(found["ConfigMap", "events-config"]["data"]["config.yaml"])
    result = CliRunner().invoke(blizzard, ["validate", str(config)])
    assert result.exit_code == 0, result.output
