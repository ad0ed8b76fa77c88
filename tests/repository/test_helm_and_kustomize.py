"""The chart makes the objects that kustomize makes of the same configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support.manifests import (
    CONFIG,
    DAEMONS,
    FOLDER,
    VERSIONS,
    Objects,
    assert_fits,
    needs_helm,
    of_chart,
    pod_of,
    rendered,
)

pytestmark = needs_helm

# Labels by which several releases of one namespace are told apart.
OF_A_RELEASE = {
    *("app.kubernetes.io/instance", "app.kubernetes.io/managed-by"),
    *("app.kubernetes.io/version", "helm.sh/chart"),
}


def own_labels(found: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name not in OF_A_RELEASE}


@pytest.fixture(scope="module")
def both() -> tuple[Objects, Objects]:
    """Return the objects of the chart and of the overlay `local`, of one configuration."""
    return of_chart({"config": CONFIG}), rendered(FOLDER / "overlays/local")


def neutral(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without the names that belong to a release."""
    found: dict[str, Any] = json.loads(json.dumps(pod))
    del found["serviceAccountName"]
    for volume in found["volumes"]:
        if "configMap" in volume:
            del volume["configMap"]["name"]
    for container in found["containers"]:
        # Kubernetes' own default for a tag.
        assert container.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
    return found


@pytest.mark.parametrize("daemon", DAEMONS)
def test_pods_equal_those_of_kustomize(both: tuple[Objects, Objects], daemon: str) -> None:
    chart, kustomize = both
    ours, theirs = chart["StatefulSet", f"r-{daemon}"], kustomize["StatefulSet", daemon]
    assert neutral(pod_of(ours)) == neutral(pod_of(theirs))
    assert pod_of(ours)["serviceAccountName"] == f"r-{daemon}"
    assert ours["spec"].keys() == theirs["spec"].keys()
    for key in ("replicas", "podManagementPolicy"):
        assert ours["spec"][key] == theirs["spec"][key]
    labels = ours["spec"]["template"]["metadata"]["labels"]
    assert own_labels(labels) == theirs["spec"]["template"]["metadata"]["labels"]
    assert ours["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_replicas_equal_those_of_kustomize() -> None:
    kustomize = rendered(FOLDER / "overlays/replicas")
    config = yaml.safe_load((FOLDER / "overlays/replicas/config.yaml").read_text("utf-8"))
    chart = of_chart({"config": config, "blizzard": {"replicas": 2}})
    assert ("StatefulSet", "r-blizzard") not in chart
    assert ("StatefulSet", "blizzard") not in kustomize
    ours, theirs = chart["Deployment", "r-blizzard"], kustomize["Deployment", "blizzard"]
    for found in (ours, theirs):
        for version in VERSIONS:
            assert_fits(found, version)
    pods = neutral(pod_of(ours)), neutral(pod_of(theirs))
    for pod in pods:
        (spread,) = pod["topologySpreadConstraints"]
        spread["labelSelector"]["matchLabels"].pop("app.kubernetes.io/instance", None)
    assert pods[0] == pods[1]
    assert (ours["spec"]["replicas"], ours["spec"]["strategy"]) == (
        theirs["spec"]["replicas"],
        theirs["spec"]["strategy"],
    )
    assert {key for key, _ in chart if key == "StatefulSet"} == {"StatefulSet"}


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "ServiceAccount"])
def test_other_objects_equal_those_of_kustomize(
    both: tuple[Objects, Objects], kind: str, daemon: str
) -> None:
    ours, theirs = (
        {key: value for key, value in objects[kind, name].items() if key != "metadata"}
        for objects, name in zip(both, (f"r-{daemon}", daemon), strict=True)
    )
    if kind != "ServiceAccount":
        selector = ours["spec"]["selector"]
        (selector.get("matchLabels") or selector).pop("app.kubernetes.io/instance")
    assert ours == theirs


def test_configuration_equals_that_of_kustomize(both: tuple[Objects, Objects]) -> None:
    chart, kustomize = (
        objects["ConfigMap", name]["data"]["config.yaml"]
        for objects, name in zip(both, ("r-config", "blizzard-config"), strict=True)
    )
    assert json.loads(chart) == yaml.safe_load(kustomize)
    volumes = pod_of(both[0]["StatefulSet", "r-penguin"])["volumes"]
    assert {"name": "config", "configMap": {"name": "r-config"}} in volumes


def test_traffic_equals_that_of_kustomize(both: tuple[Objects, Objects]) -> None:
    chart, kustomize = both
    theirs = kustomize["NetworkPolicy", "blizzard-penguin"]["spec"]
    ours = chart["NetworkPolicy", "r"]["spec"]
    assert ours["podSelector"]["matchLabels"].pop("app.kubernetes.io/instance") == "r"
    assert ours == theirs
    assert kustomize["NetworkPolicy", "blizzard-identity"]["spec"]["egress"] == []


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_identity_equals_that_of_kustomize(cloud: str) -> None:
    found = of_chart({"config": CONFIG, "cloud": cloud})
    egress = found["NetworkPolicy", "r"]["spec"]["egress"]
    plain = of_chart({"config": CONFIG})["NetworkPolicy", "r"]["spec"]["egress"]
    text = (FOLDER / f"base/identity/{cloud}.yaml").read_text("utf-8")
    patches = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}
    policy = patches.get(("NetworkPolicy", "blizzard-identity"), {"spec": {"egress": []}})
    assert egress == plain + policy["spec"]["egress"]
    patched = patches.get(("StatefulSet", "blizzard"))
    wanted = patched["spec"]["template"]["metadata"]["labels"] if patched else {}
    labels = found["StatefulSet", "r-blizzard"]["spec"]["template"]["metadata"]["labels"]
    assert own_labels(labels).items() >= wanted.items()
    assert ("azure.workload.identity/use" in labels) is bool(wanted)


def test_service_monitor_equals_that_of_kustomize() -> None:
    (theirs,) = rendered(FOLDER / "monitoring").values()
    found = of_chart({"config": CONFIG, "serviceMonitor": {"enabled": True}})
    ours = found["ServiceMonitor", "r"]
    assert ours["apiVersion"] == theirs["apiVersion"]
    assert ours["spec"]["endpoints"] == theirs["spec"]["endpoints"]
    selected = ours["spec"]["selector"]["matchLabels"].items()
    services = {name for (kind, name), each in found.items() if kind == "Service"
                and selected <= each["metadata"]["labels"].items()}  # fmt: skip
    assert services == {"r-blizzard", "r-penguin"}
