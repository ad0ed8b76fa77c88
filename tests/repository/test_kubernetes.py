"""The manifests in deploy/kubernetes, rendered with kustomize as a cluster would get them."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.manifests import (
    DAEMONS,
    FOLDER,
    VERSIONS,
    Objects,
    assert_fits,
    pod_of,
    rendered,
)

OVERLAYS = ("overlays/local", "overlays/spark-on-kubernetes")
ALL = ("base", *OVERLAYS, "overlays/replicas", "monitoring")
SPARK = "overlays/spark-on-kubernetes"
EXECUTORS = "blizzard-executors"
CREDENTIALS = "/run/secrets/blizzard"
# What is no public address, and some cloud's own.
PRIVATE = {"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
           "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"}  # fmt: skip
# Between SIGTERM's grace and SIGKILL: cancel a job, save, stop the JVM.
MARGIN_SECS = 20
# What the monitoring operator's own schema says of the fields in use.
SERVICE_MONITOR = {
    "selector": {"matchLabels", "matchExpressions"},
    "endpoints": {"port", "path", "interval", "scrapeTimeout", "scheme"},
}


@pytest.fixture(scope="module", params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> Objects:
    return rendered(FOLDER / request.param)


@pytest.fixture(scope="module")
def spark() -> Objects:
    return rendered(FOLDER / SPARK)


def config_of(objects: Objects, folder: Path) -> Config:
    path = folder / "config.yaml"
    path.write_text(objects["ConfigMap", "blizzard-config"]["data"]["config.yaml"])
    return load_config(path)


def container_of(objects: Objects, daemon: str) -> dict[str, Any]:
    (found,) = pod_of(objects["StatefulSet", daemon])["containers"]
    return dict(found)


def executor_of(spark: Objects) -> dict[str, Any]:
    template = spark["ConfigMap", "blizzard-config"]["data"]["executor.yaml"]
    return yaml.safe_load(template)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_every_object_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    kinds = []
    for found in rendered(FOLDER / name).values():
        assert_fits(found, version)
        kinds.append(found["kind"])
    if name == "overlays/replicas":
        assert (kinds.count("StatefulSet"), kinds.count("Deployment")) == (1, 1)
    elif name != "monitoring":
        assert kinds.count("StatefulSet") == len(DAEMONS)


def test_a_wrong_manifest_would_not_fit(objects: Objects) -> None:
    wrong = json.loads(json.dumps(objects["StatefulSet", "blizzard"]))
    pod_of(wrong)["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_executor_template_fits_the_schema_of_a_pod(spark: Objects) -> None:
    pod = executor_of(spark)
    pod["metadata"]["name"] = "spark-gives-it-one"
    for version in VERSIONS:
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("daemon", [blizzard, penguin], ids=DAEMONS)
def test_the_configuration_inside_is_one_of_ours(
    objects: Objects, daemon: Any, tmp_path: Path
) -> None:
    config_of(objects, tmp_path)
    result = CliRunner().invoke(daemon, ["validate", str(tmp_path / "config.yaml")])
    assert result.exit_code == 0, result.output


def test_workloads_never_overlap(objects: Objects) -> None:
    for daemon in DAEMONS:
        spec = objects["StatefulSet", daemon]["spec"]
        assert spec["replicas"] == 1
        assert spec["podManagementPolicy"] == "Parallel"
        assert (
            spec["selector"]["matchLabels"].items()
            <= spec["template"]["metadata"]["labels"].items()
        )
        assert ("Service", spec["serviceName"]) in objects


def test_pods_run_with_as_little_as_they_can(objects: Objects) -> None:
    for daemon in DAEMONS:
        pod = pod_of(objects["StatefulSet", daemon])
        assert_restricted(pod)
        assert pod["serviceAccountName"] == daemon
        assert objects["ServiceAccount", daemon]["automountServiceAccountToken"] is False
        token = daemon == "blizzard" and ("Role", "blizzard-driver") in objects
        assert pod["automountServiceAccountToken"] is token
    assert (
        objects["Namespace", "blizzard"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "restricted"
    )


def test_executors_run_with_as_little_as_daemons(spark: Objects) -> None:
    pod = executor_of(spark)["spec"]
    assert_restricted(pod)
    assert pod["automountServiceAccountToken"] is False


def assert_restricted(pod: dict[str, Any]) -> None:
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] == 10001
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {
            m["mountPath"]: m["name"] for m in container["volumeMounts"] if not m.get("readOnly")
        }
        assert set(writable) == {"/scratch", "/tmp"}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert all(volumes[name]["emptyDir"]["sizeLimit"] for name in writable.values())


def test_probes_ask_where_the_daemon_answers(objects: Objects, tmp_path: Path) -> None:
    metrics = config_of(objects, tmp_path).metrics
    host, _, port = metrics.address.rpartition(":")
    assert host == "0.0.0.0"
    for daemon in DAEMONS:
        container = container_of(objects, daemon)
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        assert ports["metrics"] == int(port)
        asked = {
            kind: (container[kind]["httpGet"]["path"], container[kind]["httpGet"]["port"])
            for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert asked == {
            "startupProbe": ("/health", "metrics"),
            "livenessProbe": ("/health", "metrics"),
            "readinessProbe": ("/ready", "metrics"),
        }
        service = objects["Service", daemon]["spec"]["ports"]
        assert [(p["name"], p["port"], p["targetPort"]) for p in service] == [
            ("metrics", int(port), "metrics")
        ]
        (rule,) = objects["NetworkPolicy", "blizzard-penguin"]["spec"]["ingress"]
        assert [p["port"] for p in rule["ports"]] == [int(port)]


def test_termination_leaves_time_to_end_a_batch(objects: Objects, tmp_path: Path) -> None:
    grace = config_of(objects, tmp_path).global_.advanced.shutdown_grace
    for daemon in DAEMONS:
        pod = pod_of(objects["StatefulSet", daemon])
        assert pod["terminationGracePeriodSeconds"] >= grace + MARGIN_SECS


def test_pods_read_the_rendered_configuration(objects: Objects) -> None:
    config = objects["ConfigMap", "blizzard-config"]["metadata"]["name"]
    assert config != "blizzard-config"  # a change of content is a change of name
    for daemon in DAEMONS:
        pod = pod_of(objects["StatefulSet", daemon])
        assert {"name": "config", "configMap": {"name": config}} in pod["volumes"]
        container = container_of(objects, daemon)
        assert container["args"] == [daemon, "run", "/etc/blizzard/config.yaml"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert (mounts["config"]["mountPath"], mounts["config"]["readOnly"]) == (
            "/etc/blizzard",
            True,
        )


def test_no_manifest_holds_a_secret(objects: Objects) -> None:
    assert not [kind for kind, _ in objects if kind == "Secret"]


def test_each_daemon_has_a_secret_of_its_own_as_files(objects: Objects) -> None:
    for daemon in DAEMONS:
        container = container_of(objects, daemon)
        assert not {"env", "envFrom"} & container.keys()
        volumes = pod_of(objects["StatefulSet", daemon])["volumes"]
        (found,) = [volume for volume in volumes if "secret" in volume]
        assert found["secret"] == {
            "secretName": f"{daemon}-credentials",
            "optional": True,
            "defaultMode": 0o440,  # for fsGroup
        }
        (mount,) = [m for m in container["volumeMounts"] if m["name"] == found["name"]]
        # A file of a `subPath` would never be renewed.
        assert mount == {
            "name": found["name"],
            "mountPath": CREDENTIALS,
            "readOnly": True,
        }


def test_configurations_name_secrets_where_they_are_mounted() -> None:
    for path in ("base/config.yaml", f"{SPARK}/config.yaml"):
        assert f"${{file:{CREDENTIALS}/NAME}}" in (FOLDER / path).read_text()


def test_executors_hold_no_secret_and_no_rights(spark: Objects) -> None:
    pod = executor_of(spark)["spec"]
    (container,) = pod["containers"]
    assert not {"env", "envFrom"} & container.keys()
    assert not [volume for volume in pod["volumes"] if "emptyDir" not in volume]
    account = pod["serviceAccountName"]
    assert account not in DAEMONS
    assert spark["ServiceAccount", account]["automountServiceAccountToken"] is False
    bound = [s for (k, _), b in spark.items() if k == "RoleBinding" for s in b["subjects"]]
    assert account not in {subject["name"] for subject in bound}


def test_driver_namespace_holds_only_executor_objects(spark: Objects) -> None:
    there = {key for key, found in spark.items() if found["metadata"].get("namespace") == EXECUTORS}
    assert there == {
        ("ServiceAccount", "blizzard-executor"),
        ("ResourceQuota", "executors"),
        ("LimitRange", "executors"),
        ("Role", "blizzard-driver"),
        ("RoleBinding", "blizzard-driver"),
        ("NetworkPolicy", "executors"),
    }
    labels = spark["Namespace", EXECUTORS]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    # Also of a pod that is no executor.
    assert spark["NetworkPolicy", "executors"]["spec"]["podSelector"] == {}


def test_the_quota_has_room_for_the_executors(spark: Objects, tmp_path: Path) -> None:
    conf = config_of(spark, tmp_path).spark.conf
    count = int(conf["spark.executor.instances"])
    hard = spark["ResourceQuota", "executors"]["spec"]["hard"]
    assert count < int(hard["pods"])  # one more while another ends
    assert count * int(conf["spark.executor.cores"]) <= int(hard["requests.cpu"])


def test_quota_limits_memory_and_disk_of_every_pod(spark: Objects) -> None:
    """The quota limits pods that request nothing, which the driver's rights allow to start."""
    hard = spark["ResourceQuota", "executors"]["spec"]["hard"]
    assert {"limits.memory", "limits.ephemeral-storage"} <= hard.keys()
    (limit,) = spark["LimitRange", "executors"]["spec"]["limits"]
    # The quota refuses what has no limit, and Spark names none for disks.
    assert limit["type"] == "Container"
    assert "ephemeral-storage" in limit["default"]
    each = int(limit["default"]["ephemeral-storage"].removesuffix("Gi"))
    assert each * int(hard["pods"]) <= int(hard["limits.ephemeral-storage"].removesuffix("Gi"))
    volumes = executor_of(spark)["spec"]["volumes"]
    assert sum(int(v["emptyDir"]["sizeLimit"].removesuffix("Gi")) for v in volumes) < each


def policies(objects: Objects) -> list[dict[str, Any]]:
    return [found["spec"] for (kind, _), found in objects.items() if kind == "NetworkPolicy"]


def test_traffic_out_has_a_destination(objects: Objects) -> None:
    for policy in policies(objects):
        assert "Egress" in policy["policyTypes"]
        for rule in policy["egress"]:
            assert rule["to"]
            assert rule["ports"]
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                if block["cidr"] == "0.0.0.0/0":
                    assert set(block["except"]) == PRIVATE
                elif block["cidr"] == "::/0":
                    assert block["except"] == ["fc00::/7", "fe80::/10"]
                else:
                    assert ip_network(block["cidr"]).num_addresses == 1


def test_pods_without_identity_cannot_reach_node_metadata(objects: Objects) -> None:
    assert objects["NetworkPolicy", "blizzard-identity"]["spec"]["egress"] == []


def test_only_the_driver_reaches_the_api_server(spark: Objects) -> None:
    ports = {
        name: {port["port"] for rule in found["spec"]["egress"] for port in rule["ports"]}
        for (kind, name), found in spark.items()
        if kind == "NetworkPolicy"
    }
    assert [name for name in ports if 6443 in ports[name]] == ["blizzard-spark"]


def test_documented_rights_equal_the_drivers(spark: Objects) -> None:
    (rule,) = spark["Role", "blizzard-driver"]["rules"]
    for name in ("design/engine.md", "guides/kubernetes.md"):
        text = " ".join((FOLDER.parents[1] / "docs" / name).read_text().split())
        told = re.findall(
            r"may ((?:`\w+`(?:, | and )?)+) (pods|\w+) of the executors' namespace", text
        )
        assert [(set(re.findall(r"\w+", verbs)) - {"and"}, kind) for verbs, kind in told] == [
            (set(rule["verbs"]), *rule["resources"])
        ]


def test_budgets_never_block_a_drain(objects: Objects) -> None:
    for daemon in DAEMONS:
        spec = objects["PodDisruptionBudget", daemon]["spec"]
        assert "minAvailable" not in spec
        assert spec["maxUnavailable"] == 1
        labels = objects["StatefulSet", daemon]["spec"]["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()


def test_memory_has_a_limit_and_the_processor_has_none(objects: Objects) -> None:
    for daemon in DAEMONS:
        resources = container_of(objects, daemon)["resources"]
        assert set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}
        assert set(resources["limits"]) == {"memory", "ephemeral-storage"}


def test_local_spark_uses_the_requested_cores(tmp_path: Path) -> None:
    objects = rendered(FOLDER / "overlays/local")
    cores = container_of(objects, "blizzard")["resources"]["requests"]["cpu"]
    assert config_of(objects, tmp_path).spark.master == f"local[{cores}]"


def test_replicas_are_configured_where_two_pods_run(tmp_path: Path) -> None:
    objects = rendered(FOLDER / "overlays/replicas")
    assert objects["Deployment", "blizzard"]["spec"]["replicas"] == 2
    alone = rendered(FOLDER / "overlays/local")
    found, base = config_of(objects, tmp_path), config_of(alone, tmp_path)
    assert found.global_.replicas is not None
    assert found.model_dump(exclude={"global_"}) == base.model_dump(exclude={"global_"})


def test_driver_has_only_the_pod_rights_of_spark(spark: Objects) -> None:
    (rule,) = spark["Role", "blizzard-driver"]["rules"]
    assert rule["apiGroups"] == [""]
    assert rule["resources"] == ["pods"]
    assert set(rule["verbs"]) == {"create", "get", "list", "watch", "delete", "deletecollection"}
    assert spark["Role", "blizzard-driver"]["metadata"]["namespace"] == EXECUTORS
    binding = spark["RoleBinding", "blizzard-driver"]
    assert binding["metadata"]["namespace"] == EXECUTORS
    assert binding["roleRef"]["name"] == "blizzard-driver"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "blizzard", "namespace": "blizzard"}
    ]
    assert not [kind for kind, _ in spark if kind.startswith("ClusterRole")]


def test_executors_find_the_driver(spark: Objects, tmp_path: Path) -> None:
    conf = config_of(spark, tmp_path).spark.conf
    workload = spark["StatefulSet", "blizzard"]
    assert conf["spark.kubernetes.namespace"] == EXECUTORS
    assert "spark.kubernetes.driver.pod.name" not in conf  # is in another namespace
    name, namespace, _ = conf["spark.driver.host"].split(".")
    assert namespace == workload["metadata"]["namespace"]
    service = spark["Service", name]["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    wanted = {int(conf["spark.driver.port"]), int(conf["spark.blockManager.port"])}
    assert {port["port"] for port in service["ports"]} == wanted
    by_name = {p["name"]: p["containerPort"] for p in container_of(spark, "blizzard")["ports"]}
    assert all(by_name[port["targetPort"]] == port["port"] for port in service["ports"])
    (rule,) = spark["NetworkPolicy", "blizzard-spark"]["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == wanted
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": EXECUTORS}
    assert (
        peer["podSelector"]["matchLabels"].items()
        <= executor_of(spark)["metadata"]["labels"].items()
    )
    out = spark["NetworkPolicy", "executors"]["spec"]["egress"][0]
    assert {port["port"] for port in out["ports"]} == wanted


def test_executors_run_the_daemons_image_and_its_template(spark: Objects, tmp_path: Path) -> None:
    conf = config_of(spark, tmp_path).spark.conf
    assert conf["spark.kubernetes.container.image"] == container_of(spark, "blizzard")["image"]
    assert conf["spark.kubernetes.executor.podTemplateFile"] == "/etc/blizzard/executor.yaml"
    pod = executor_of(spark)
    (container,) = pod["spec"]["containers"]
    assert conf["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    assert container["command"][-1] == "blizzard_py.engines.spark.executor"
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in spark
    # The network policies find them by their labels.
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "blizzard-executor"


def test_spark_knows_every_setting_of_kubernetes(spark: Objects, tmp_path: Path) -> None:
    """Spark ignores unknown settings, so a typing error would show only on a cluster."""
    (archive,) = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(archive) as jar:
        known = jar.read("org/apache/spark/deploy/k8s/Config$.class")
    names = [n for n in config_of(spark, tmp_path).spark.conf if n.startswith("spark.kubernetes.")]
    assert len(names) >= 8
    assert [name for name in names if name.encode() not in known] == []
    assert b"spark.kubernetes.executor.disableConfigmap" not in known


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_workload_identity_is_one_line(cloud: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "k")
    path = tmp_path / "k" / "base" / "kustomization.yaml"
    text = path.read_text()
    line = f"#   - identity/{cloud}.yaml\n"
    assert text.count(line) == 1
    chosen = line.removeprefix("#")
    path.write_text(text.replace(line, chosen).replace("# patchesStrategic", "patchesStrategic"))
    objects = rendered(tmp_path / "k" / "overlays" / "local")
    for daemon in DAEMONS:
        assert objects["ServiceAccount", daemon]["metadata"]["annotations"]
    rules = objects["NetworkPolicy", "blizzard-identity"]["spec"]["egress"]
    asked = {peer["ipBlock"]["cidr"] for rule in rules for peer in rule["to"]}
    assert all(ip_network(cidr).is_link_local for cidr in asked)
    assert len(asked) == {"aws": 1, "gcp": 2, "azure": 0}[cloud]
    for daemon in DAEMONS:
        labels = objects["StatefulSet", daemon]["spec"]["template"]["metadata"]["labels"]
        assert (labels.get("azure.workload.identity/use") == "true") == (cloud == "azure")
    for found in objects.values():
        kubernetes_validate.validate(found, VERSIONS[-1], strict=True)


def test_the_service_monitor_scrapes_both_daemons_once(objects: Objects) -> None:
    (monitor,) = rendered(FOLDER / "monitoring").values()
    assert (monitor["apiVersion"], monitor["kind"]) == (
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
    )
    spec = monitor["spec"]
    assert set(spec) == set(SERVICE_MONITOR)
    assert set(spec["selector"]) <= SERVICE_MONITOR["selector"]
    assert all(set(endpoint) <= SERVICE_MONITOR["endpoints"] for endpoint in spec["endpoints"])
    assert monitor["metadata"]["namespace"] == "blizzard"
    (endpoint,) = spec["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    (expression,) = spec["selector"]["matchExpressions"]
    assert expression["operator"] == "In"
    selected = {
        name
        for (kind, name), found in objects.items()
        if kind == "Service"
        and spec["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
        and found["metadata"]["labels"].get(expression["key"]) in expression["values"]
    }
    assert selected == set(DAEMONS)


def test_manifests_use_features_of_every_kustomize() -> None:
    known = {
        *("apiVersion", "kind", "namespace", "bases", "resources", "images"),
        *("configMapGenerator", "patchesStrategicMerge", "patchesJson6902"),
    }
    files = sorted(FOLDER.rglob("kustomization.yaml"))
    assert len(files) == len(ALL)
    for path in files:
        found = yaml.safe_load(path.read_text())
        assert set(found) <= known, path
        # The oldest takes folders as `bases` only.
        assert all(name.endswith(".yaml") for name in found.get("resources", []))
    used = {f"{p.parent.relative_to(FOLDER)}/{name}" for p in files for name in names_in(p)}
    every = {str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.yaml")} - {
        str(p.relative_to(FOLDER)) for p in files
    }
    assert {name for name in every if "identity/" not in name} == used


def names_in(path: Path) -> list[str]:
    found = yaml.safe_load(path.read_text())
    generated = [name for each in found.get("configMapGenerator", []) for name in each["files"]]
    patches = [each["path"] for each in found.get("patchesJson6902", [])]
    patches += found.get("patchesStrategicMerge", [])
    return [*found.get("resources", []), *generated, *patches]
