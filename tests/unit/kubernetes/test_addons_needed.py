"""The add-ons of a cluster, and the validity of their objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cloudrec.errors import UsageError
from cloudrec.kubernetes.addons import contexts
from cloudrec.kubernetes.addons.bundled import is_in_namespace
from cloudrec.kubernetes.addons.manage import addon_for, addon_of, needed
from cloudrec.kubernetes.addons.table import Addon, Release, addons
from cloudrec.kubernetes.manifests import text
from cloudrec.kubernetes.manifests.names import ENGINES
from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext, template_name
from cloudrec.transport import profiles
from tests.unit.kubernetes.support_addons import FAMILIES, METRICS, objects_of, target_of

GOLDEN = Path(__file__).parents[2] / "golden" / "addons"
TEMPLATES = Path(__file__).parents[3] / "templates" / "k8s"
VERSIONS = ("1.34", "1.37")


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("aws-p5", ["nvidia-device-plugin", "efa-device-plugin", "volumes"]),
        ("aws-g5", ["nvidia-device-plugin"]),
        (
            "azure-nd-h100-v5",
            ["nvidia-device-plugin", "doca-driver", "rdma-device-plugin", "nvidia-peermem", "local-disks"],
        ),
        ("gcp-a3-high", ["gke-networks", "tcpx-installer", "nri-device-injector"]),
        ("gcp-a3-mega", ["gke-networks", "tcpxo-installer", "nri-device-injector"]),
        ("gcp-a3-ultra", ["gke-networks", "gib-installer"]),
        ("gcp-a2", []),
        ("kubernetes-gpu", ["nvidia-device-plugin"]),
        ("kubernetes-cpu", []),
    ],
)
def test_a_cluster_needs_the_addons_of_its_fabric_that_its_cloud_does_not_install(
    family: str, names: list[str]
) -> None:
    assert [addon.name for addon in needed(target_of(family))] == names


def test_every_addon_of_a_profile_is_known_and_needs_no_release() -> None:
    named = {name for profile in profiles() for name in profile.addons}
    assert named <= set(addons())
    assert not [name for name in named if addon_of(name).release]


def test_every_addon_has_a_version_a_date_and_a_source() -> None:
    for addon in addons().values():
        assert str(addon.date) >= "2026-01-01"
        assert addon.source
        assert addon.purpose
        on_request = (
            addon.release is not None
            or addon.follows_nodes
            or addon.name in METRICS
            or is_in_namespace(addon)
        )
        assert addon.optional == on_request
        assert set(addon.needs) | set(addon.then) <= set(addons())
        assert all(addon.name in addon_of(name).needs for name in addon.then)
        if addon.release:
            assert addon.release.url.startswith("https://")
            assert addon.version in addon.release.url
        for image in addon.images.values():
            assert "@sha256:" in image or image.rpartition(":")[2] not in {"latest", "master", image}


def test_every_launcher_that_needs_an_operator_has_an_addon() -> None:
    assert {name for name in ENGINES if addon_for(name)} == {"pytorchjob", "trainjob", "jobset", "rayjob"}


def test_an_addon_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="no add-on 'nvidia-device'"):
        addon_of("nvidia-device")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"archive": "https://a", "manifest": "https://b"},
        {"archive": "https://a"},
        {"manifest": "x", "sha256": "1"},
    ],
)
def test_an_incomplete_release_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Release.model_validate(wrong)


def test_a_misspelt_key_of_the_table_is_refused() -> None:
    row = {"version": "1", "date": "d", "source": "s", "purpose": "p"}
    with pytest.raises(ValueError, match="Extra inputs"):
        Addon.model_validate({"name": "a", **row, "imagse": {}})


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_matches_the_kubernetes_api_schema(version: str) -> None:
    objects = [each for family in FAMILIES for each in objects_of(family)]
    known = [each for each in objects if not each["apiVersion"].startswith("networking.gke.io")]
    assert {each["kind"] for each in known} >= {"DaemonSet", "PersistentVolume", "StorageClass"}
    for each in known:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_objects_match_the_golden_file(family: str) -> None:
    """After an intended change, set CLOUDREC_WRITE_GOLDEN=1 and review the difference."""
    golden, made = GOLDEN / f"{family}.yaml", objects_of(family)
    if os.environ.get("CLOUDREC_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text(made), encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    assert list(yaml.load_all(golden.read_text(encoding="utf-8"), Loader=loader)) == made


@pytest.mark.parametrize("family", FAMILIES)
def test_every_object_has_ownership_labels(family: str) -> None:
    wanted = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "demo", "cloudrec/owner": "ann"}
    for each in objects_of(family):
        labels = each["metadata"]["labels"]
        assert wanted.items() <= labels.items()
        assert labels["cloudrec/addon"] in addons()


@pytest.mark.parametrize("family", FAMILIES)
def test_pods_of_addons_tolerate_all_taints_of_gpu_nodes_and_have_no_token(family: str) -> None:
    target = target_of(family)
    for each in objects_of(family):
        if each["kind"] == "DaemonSet":
            spec = each["spec"]["template"]["spec"]
            assert target.node_selector.items() <= spec.get("nodeSelector", {}).items()
            assert spec["tolerations"] == [{"operator": "Exists"}]
            assert spec["automountServiceAccountToken"] is False
            assert all(part["resources"]["limits"]["memory"] for part in spec["containers"])


def test_every_template_has_a_context_and_every_context_a_template() -> None:
    kinds = [
        each
        for each in vars(contexts).values()
        if isinstance(each, type) and issubclass(each, TemplateContext)
    ]
    names = {template_name(kind) for kind in kinds if kind.__module__ == contexts.__name__}
    abstract = {"addons/labelled.yaml.j2", "addons/on_nodes.yaml.j2"}
    found = {str(path.relative_to(TEMPLATES)) for path in (TEMPLATES / "addons").iterdir()}
    assert found == names - abstract
