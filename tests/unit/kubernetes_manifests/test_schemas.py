"""Every object matches the API of each supported Kubernetes version, or its operator's definition."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

from tests.unit.kubernetes_manifests.support_matrix import matrix, pod_templates

_VERSIONS = ("1.34", "1.35", "1.36", "1.37")
_DEFINITIONS = {
    "PyTorchJob": "kubeflow.org_pytorchjobs.yaml",
    "TrainJob": "trainer.kubeflow.org_trainjobs.yaml",
    "TrainingRuntime": "jobset.x-k8s.io_jobsets.yaml",  # of what it is a template
    "JobSet": "jobset.x-k8s.io_jobsets.yaml",
    "RayJob": "ray.io_rayjobs.yaml",
}
_FOLDER = Path(os.environ.get("CLOUDREC_CRDS", Path(__file__).parents[4] / "shared" / "crds"))


@pytest.fixture(autouse=True, scope="module")
def _definitions_are_read_once() -> Iterator[None]:
    """Keep what kubernetes_validate reads: for each object it parses a version's whole definitions again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


@cache
def _distinct() -> list[dict[str, Any]]:
    """Return every distinct object once."""
    found = {json.dumps(each, sort_keys=True): each for _, objects in matrix() for each in objects}
    return list(found.values())


@pytest.mark.parametrize("version", _VERSIONS)
def test_built_in_kinds_match_the_kubernetes_api_schema(version: str) -> None:
    known = [each for each in _distinct() if each["kind"] not in _DEFINITIONS]
    assert {each["kind"] for each in known} >= {"Job", "CronJob", "NetworkPolicy", "Role", "Namespace"}
    for each in known:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("version", _VERSIONS)
def test_pod_templates_of_operators_match_the_kubernetes_api_schema(version: str) -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", **template}
        for each in _distinct()
        if each["kind"] in _DEFINITIONS
        for template in pod_templates(each)
    ]
    assert pods
    for pod in {json.dumps(pod, sort_keys=True): pod for pod in pods}.values():
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("kind", _DEFINITIONS)
def test_objects_of_operators_match_their_definitions(kind: str) -> None:
    validator = _validator(kind)
    objects = [each for each in _distinct() if each["kind"] == kind]
    assert objects
    for each in objects:
        assert list(_mistakes(validator, _defined(each))) == []


@pytest.mark.parametrize("kind", _DEFINITIONS)
def test_a_misspelt_key_does_not_match_the_definition_of_an_operator(kind: str) -> None:
    validator = _validator(kind)
    found = _defined(next(each for each in _distinct() if each["kind"] == kind))
    found["spec"]["misspelt"] = 1
    assert list(_mistakes(validator, found))


def _defined(each: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object; for a runtime, the JobSet that results from it."""
    copy: dict[str, Any] = json.loads(json.dumps(each))
    if copy["kind"] != "TrainingRuntime":
        return copy
    assert set(copy["spec"]) == {"mlPolicy", "template"}
    return {
        **copy,
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": copy["spec"]["template"]["spec"],
    }


@cache
def _validator(kind: str) -> Any:
    path = _FOLDER / _DEFINITIONS[kind]
    if not path.is_file():
        pytest.skip(f"there is no {path}: CLOUDREC_CRDS names the folder with the operators' definitions")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe one, in C
    (schema,) = [
        each["schema"]["openAPIV3Schema"] for each in document["spec"]["versions"] if each["storage"]
    ]
    return jsonschema.Draft7Validator(_strict(schema))


def _mistakes(validator: Any, each: dict[str, Any]) -> Iterator[str]:
    for error in validator.iter_errors(each):
        yield f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def _strict(schema: Any) -> Any:
    """Return a definition that refuses fields that the API server would silently drop."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(each) for key, each in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
        strict["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not open_ended:
        strict["additionalProperties"] = False
        if {"apiVersion", "metadata"} <= set(schema["properties"]):
            strict["properties"]["metadata"] = {"type": "object"}
    return strict
