"""The rendered manifests have the values of the vendors' manifests, except where a reason is recorded.

vendor_*.yaml have the vendors' values. The differences are tables in docs/vendor-manifests.md; after an
intended change, `CLOUDREC_WRITE_GOLDEN=1` writes them again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from cloudrec.providers.aws.cluster.addons import AddonProperties
from cloudrec.providers.aws.cluster.addons import resources as eks_addons
from cloudrec.providers.gcp.api.client import Gcp
from cloudrec.providers.gcp.storage import mounts
from cloudrec.transport import profile_of
from cloudrec_contract.safe_json import safe_object
from scripts.site.text import wrapped
from tests.unit.kubernetes.support_addons import objects_of
from tests.unit.kubernetes_manifests.support_matrix import FAMILIES, objects
from tests.unit.providers_aws.support import layout as aws_layout
from tests.unit.providers_gcp.support import layout

PAGE = Path(__file__).parents[3] / "docs" / "vendor-manifests.md"
RECORDED: Sequence[Mapping[str, Any]] = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).parent.glob("vendor_*.yaml"))
]
MANIFESTS: Sequence[Mapping[str, Any]] = [each for vendor in RECORDED for each in vendor["manifests"]]
FACTS = [
    pytest.param(
        manifest, fact, id=f"{manifest['name']}: {' '.join(map(str, fact['at']))} {fact['is']}"[:110]
    )
    for manifest in MANIFESTS
    for fact in manifest["facts"]
]
_SEVERAL = {"calls", "flags"}  # a fact is one of several lines or flags


def container(given: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """What a container is, in the words of the recorded facts."""
    security = given.get("securityContext", {})
    words = [*given.get("command", []), *given.get("args", [])]
    lines = [line.strip() for word in words for line in str(word).splitlines()]
    flags = [f"{word} {value.strip()}" for word, value in pairwise(words)]
    mounted = {each["mountPath"].rstrip("/"): each for each in given.get("volumeMounts", [])}
    return {
        "image": given["image"],
        "calls": [line.removeprefix("exec ").removesuffix(";") for line in lines],
        "flags": [flag for flag in flags if flag.startswith("--")],
        "privileged": security.get("privileged", False),
        "adds": " ".join(security.get("capabilities", {}).get("add", [])) or None,
        "drops": " ".join(security.get("capabilities", {}).get("drop", [])) or None,
        "escalates": security.get("allowPrivilegeEscalation", True),
        "writes": not security.get("readOnlyRootFilesystem", False),
        "mounts": {name: paths.get(each["name"]) for name, each in mounted.items()},
        "propagates": {name: each.get("mountPropagation") for name, each in mounted.items()},
        "env": {each["name"]: each.get("value") for each in given.get("env", [])},
        "cpu": given.get("resources", {}).get("requests", {}).get("cpu"),
        "memory": given.get("resources", {}).get("requests", {}).get("memory"),
        "restarts": given.get("restartPolicy"),
        "probes": {name: probe(given.get(f"{name}Probe")) for name in ("startup", "readiness", "liveness")},
        "starts": " ".join(given.get("startupProbe", {}).get("exec", {}).get("command", [])),
    }


def probe(given: Mapping[str, Any] | None) -> str | None:
    """A probe as one line, with Kubernetes' defaults; None without one."""
    if given is None:
        return None
    times = [
        given.get(name, default)
        for name, default in (
            ("initialDelaySeconds", 0), ("periodSeconds", 10), ("timeoutSeconds", 1), ("failureThreshold", 3)
        )
    ]  # fmt: skip
    return "{} (after {} s, every {} s, {} s long, {} times)".format(given["exec"]["command"][-1], *times)


def pod(template: Mapping[str, Any]) -> dict[str, Any]:
    """What a pod is, in the words of the recorded facts."""
    spec, annotations = template["spec"], template["metadata"].get("annotations", {})
    volumes = {each["name"]: each for each in spec.get("volumes", [])}
    paths = {name: each["hostPath"]["path"] for name, each in volumes.items() if "hostPath" in each}
    shared = [
        each["emptyDir"] for each in volumes.values() if each.get("emptyDir", {}).get("medium") == "Memory"
    ]
    interfaces = json.loads(annotations.get("networking.gke.io/interfaces", "[]"))
    selected = [f"{name}={value}" for name, value in (spec.get("nodeSelector") or {}).items()]
    return {
        "hostNetwork": spec.get("hostNetwork", False),
        "hostPID": spec.get("hostPID", False),
        "priority": spec.get("priorityClassName"),
        "grace": spec.get("terminationGracePeriodSeconds"),
        "account": spec.get("serviceAccountName"),
        "apart": bool((spec.get("affinity") or {}).get("podAntiAffinity")),
        "marks": dict(template["metadata"].get("labels") or {}),
        "token": spec.get("automountServiceAccountToken", True),
        "tolerates": "everything" if spec.get("tolerations") == [{"operator": "Exists"}] else "some",
        "nodes": " ".join(selected),
        "annotations": annotations,
        "interfaces": " ".join(each["interfaceName"] for each in interfaces),
        "devices": {
            name: " ".join(each["path"] for each in yaml.safe_load(value))
            for name, value in annotations.items()
            if name.startswith("devices.gke.io/")
        },
        "shm": next((each["sizeLimit"] for each in shared), None),
        "containers": {
            each["name"]: container(each, paths)
            for each in (*spec.get("initContainers", []), *spec["containers"])
        },
    }


def ours(of: Mapping[str, str]) -> Mapping[str, Any]:
    """The manifest of cloudrec that is compared."""
    if "volume" in of:
        (found,) = [
            each for each in mounts.volumes(layout(), Gcp({}), cache_gib=100) if each["name"] == of["volume"]
        ]
        return {**found, "mount_options": " ".join(cast("list[str]", found["mount_options"]))}
    if "eks_addon" in of:
        asked = [each.properties for each in eks_addons(aws_layout())]
        made = [each for each in asked if isinstance(each, AddonProperties)]
        (configuration,) = [each.configuration for each in made if each.addon == of["eks_addon"]]
        return safe_object(configuration)
    if "run" in of:
        (job,) = [each for each in objects(of["run"], "torchrun") if each["kind"] == "Job"]
        target = FAMILIES[of["run"]]
        libraries = profile_of(target.fabric, target.instance_type).libraries
        return {**pod(job["spec"]["template"]), "libraries": libraries}
    named = [each for each in objects_of(of["family"]) if each["metadata"]["name"] == of["object"]]
    (found_object,) = [each for each in named if each["kind"] == of.get("kind", "DaemonSet")]
    if found_object["kind"] == "DaemonSet":
        return {
            **pod(found_object["spec"]["template"]),
            "update": found_object["spec"]["updateStrategy"]["type"],
            "namespace": found_object["metadata"]["namespace"],
        }
    if found_object["kind"] == "ConfigMap":
        return safe_object(found_object["data"]["config.json"])
    return {"spec": found_object["spec"], "name": found_object["metadata"]["name"]}


def value_at(whole: Mapping[str, Any], at: Sequence[str | int]) -> Any:
    """A value by its path; None where there is none."""
    found: Any = whole
    for part in at:
        if isinstance(found, list) and isinstance(part, int):
            found = found[part] if part < len(found) else None
        elif isinstance(found, list):  # whether one of several lines has a word
            return [line for line in found if part in line] or None
        else:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


@pytest.mark.parametrize(("manifest", "fact"), FACTS)
def test_a_value_is_the_vendors_or_differs_as_recorded(
    manifest: Mapping[str, Any], fact: Mapping[str, Any]
) -> None:
    found = value_at(ours(manifest["ours"]), fact["at"])
    wanted = fact.get("ours", fact["is"]) if "ours" in fact else fact["is"]
    if fact["at"][-1] in _SEVERAL:
        if wanted is None:
            assert fact["is"] not in found
        else:
            assert wanted in found
        return
    assert found == wanted


def test_every_difference_has_a_reason_and_nothing_else_has_one() -> None:
    for manifest in MANIFESTS:
        for fact in manifest["facts"]:
            assert ("ours" in fact) == ("why" in fact), fact
            assert "ours" not in fact or fact["ours"] != fact["is"], fact


def tables(recorded: Mapping[str, Any]) -> Iterator[str]:
    """The list of each manifest's differences, with its title."""
    for manifest in recorded["manifests"]:
        rows = [each for each in manifest["facts"] if "why" in each]
        same = len(manifest["facts"]) - len(rows)
        yield "\n".join(
            [
                f"### {manifest['name']}",
                "",
                wrapped(f"From {manifest['theirs']}. {same} values are the same."),
                "",
                *(
                    f"- {' '.join(map(str, each['at']))}\n"
                    + _line(f"{recorded['vendor']}: {_value(each['is'])}")
                    + _line(f"cloudrec: {_value(each['ours'])}")
                    + _line(f"Why: {each['why']}").rstrip("\n")
                    for each in rows
                ),
                "",
            ]
        )


def _value(value: object) -> str:
    text = " ".join(str(value).split())
    return "none" if value is None else f"`{text}`" if text else "nothing"


def _line(text: str) -> str:
    return wrapped(text, first="    - ", rest="      ") + "\n"


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each["vendor"])
def test_the_page_has_the_recorded_differences(recorded: Mapping[str, Any]) -> None:
    vendor = recorded["vendor"].lower()
    begin, end = f"<!-- {vendor}: written by a test -->", f"<!-- {vendor}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    assert begin in page
    assert end in page
    wanted = "\n".join(tables(recorded))
    written = re.sub(
        f"({re.escape(begin)}\n).*?({re.escape(end)})",
        lambda found: f"{found[1]}\n{wanted}\n{found[2]}",
        page,
        flags=re.DOTALL,
    )
    if os.environ.get("CLOUDREC_WRITE_GOLDEN"):
        PAGE.write_text(written, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == written, __doc__


def test_every_daemon_set_of_the_fabrics_is_compared() -> None:
    assert {each["vendor"] for each in RECORDED} == {"AWS", "Azure", "Google"}
    assert "Not compared yet" not in PAGE.read_text(encoding="utf-8")
    compared = {each["ours"].get("object", "") for each in MANIFESTS}
    made = {
        each["metadata"]["name"]
        for family in ("aws-p5", "azure-nd-h100-v5", "gcp-a3-high", "gcp-a3-mega", "gcp-a3-ultra")
        for each in objects_of(family)
        if each["kind"] == "DaemonSet"
    }
    # One DaemonSet a release; a part that no vendor publishes as a manifest.
    # Metrics are no part of a fabric.
    others = {"cloudrec-doca-driver-ubuntu2404", "cloudrec-local-disks"}
    assert made - compared == others | {"cloudrec-gpu-metrics", "cloudrec-fabric-metrics"}
