"""Objects of Kubernetes as kustomize and Helm render them from this repository."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support import helm_chart
from tests.support.scenario import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "blizzard-penguin"
DAEMONS = ("blizzard", "penguin")
# The configuration of the kustomize base.
CONFIG = yaml.safe_load((FOLDER / "base/config.yaml").read_text("utf-8"))
# The oldest that knows every field, and the newest there is a schema for.
VERSIONS = ("1.27", kubernetes_validate.latest_version())

needs_helm = pytest.mark.skipif(
    importlib.util.find_spec("helm_python") is None,
    reason="Helm's library has no wheel for Linux on ARM",
)

Objects = dict[tuple[str, str], dict[str, Any]]


def rendered(folder: Path) -> Objects:
    """Return the objects by kind and name, without kustomize's hash in config map names."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for each in yaml.safe_load_all(done.stdout):
        name = each["metadata"]["name"]
        found[each["kind"], re.sub(r"-[a-z0-9]{10}$", "", name) if is_config(each) else name] = each
    return found


def is_config(found: dict[str, Any]) -> bool:
    return found["kind"] == "ConfigMap"


def of_chart(values: dict[str, Any], release: str = "r") -> Objects:
    """Return the chart's objects by kind and name."""
    found = helm_chart.objects(CHART, values, release)
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]


def assert_fits(found: dict[str, Any], version: str) -> None:
    """Raise unless Kubernetes' schema knows the object; it knows none of the operator's."""
    if not found["apiVersion"].startswith("monitoring.coreos.com/"):
        kubernetes_validate.validate(found, version, strict=True)
