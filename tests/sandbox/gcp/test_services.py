"""Artifact Registry, Service Usage, Cloud Quotas and the catalogue of prices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.gcp.support import NUMBER, PROJECT, REGION, Gcp

REPOSITORIES = f"/v1/projects/{PROJECT}/locations/{REGION}/repositories"
SERVICES = f"/v1/projects/{PROJECT}/services"
SOON, WORKS = 15.0, 45.0
FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"


def _create(gcp: Gcp, name: str = "images", **more: Any) -> tuple[int, Any]:
    return gcp.rest("POST", f"{REPOSITORIES}?repositoryId={name}", {"format": "DOCKER", **more})


def _error_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["status"]


def test_a_repository_is_created_and_deleted_by_operations(gcp: Gcp) -> None:
    begun = _create(gcp)[1]
    assert gcp.rest("GET", f"{REPOSITORIES}/images")[0] == 404
    gcp.advance(SOON)
    done = gcp.rest("GET", f"/v1/{begun['name']}")[1]
    assert done["response"]["name"] == f"projects/{PROJECT}/locations/{REGION}/repositories/images"
    begun = gcp.rest("DELETE", f"{REPOSITORIES}/images")[1]
    assert "done" not in begun
    gcp.advance(SOON)
    assert gcp.rest("GET", f"/v1/{begun['name']}")[1]["done"] is True
    assert gcp.state() == []


def test_an_existing_repository_is_refused_even_during_its_creation(gcp: Gcp) -> None:
    _create(gcp)
    assert _error_of(_create(gcp)) == (409, "ALREADY_EXISTS")
    gcp.advance(SOON)
    assert _error_of(_create(gcp)) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize(
    ("name", "more"), [("Upper", {}), ("x" * 64, {}), ("a", {"format": ""}), ("a", {"labels": {"A": "b"}})]
)
def test_an_invalid_repository_is_refused(gcp: Gcp, name: str, more: dict[str, Any]) -> None:
    assert _error_of(_create(gcp, name, **more)) == (400, "INVALID_ARGUMENT")


def test_a_repository_policy_accepts_only_its_roles_and_the_current_etag(gcp: Gcp) -> None:
    _create(gcp)
    gcp.advance(SOON)
    policy = gcp.rest("GET", f"{REPOSITORIES}/images:getIamPolicy")[1]
    reader = {"role": "roles/artifactregistry.reader", "members": ["user:a@example.com"]}
    wish = {"policy": {**policy, "bindings": [reader]}}
    assert gcp.rest("POST", f"{REPOSITORIES}/images:setIamPolicy", wish)[0] == 200
    assert _error_of(gcp.rest("POST", f"{REPOSITORIES}/images:setIamPolicy", wish)) == (409, "ABORTED")
    wish = {"policy": {"bindings": [{**reader, "role": "roles/storage.admin"}]}}
    assert _error_of(gcp.rest("POST", f"{REPOSITORIES}/images:setIamPolicy", wish)) == (
        400,
        "INVALID_ARGUMENT",
    )


def test_a_newly_enabled_api_is_refused_for_some_time(gcp: Gcp) -> None:
    gcp.control(apis={"artifactregistry.googleapis.com": False})
    status, document = gcp.rest("GET", REPOSITORIES)
    [info] = document["error"]["details"]
    assert (status, info["reason"]) == (403, "SERVICE_DISABLED")
    assert info["metadata"]["activationUrl"].endswith(f"overview?project={NUMBER}")
    begun = gcp.rest("POST", f"{SERVICES}/artifactregistry.googleapis.com:enable", {})[1]
    gcp.advance(SOON)
    assert gcp.rest("GET", f"/v1/{begun['name']}")[1]["response"]["service"]["state"] == "ENABLED"
    assert gcp.rest("GET", REPOSITORIES)[0] == 403
    gcp.advance(WORKS)
    assert gcp.rest("GET", REPOSITORIES)[0] == 200


def test_an_api_being_enabled_is_not_enabled_again(gcp: Gcp) -> None:
    host = "lustre.googleapis.com"
    gcp.control(apis={host: False})
    wish = {"serviceIds": [host, "compute.googleapis.com"]}
    assert gcp.rest("POST", f"{SERVICES}:batchEnable", wish)[0] == 200
    status, document = gcp.rest("POST", f"{SERVICES}:batchEnable", wish)
    assert status == 400
    assert "Another activation or deactivation is in progress" in document["error"]["message"]
    names = "&".join(f"names=projects/{PROJECT}/services/{name}" for name in wish["serviceIds"])
    found = gcp.rest("GET", f"{SERVICES}:batchGet?{names}")[1]["services"]
    assert [row["state"] for row in found] == ["DISABLED", "ENABLED"]
    gcp.advance(SOON)
    assert gcp.rest("GET", f"{SERVICES}/{host}")[1]["state"] == "ENABLED"


def test_an_unknown_api_and_an_api_without_billing_are_refused(gcp: Gcp) -> None:
    assert _error_of(gcp.rest("GET", f"{SERVICES}/none.googleapis.com")) == (403, "PERMISSION_DENIED")
    gcp.control(project={"billing": False}, apis={"container.googleapis.com": False})
    error = _error_of(gcp.rest("POST", f"{SERVICES}/container.googleapis.com:enable", {}))
    assert error == (400, "FAILED_PRECONDITION")
    assert gcp.rest("GET", f"/v1/projects/{PROJECT}/billingInfo")[1]["billingEnabled"] is False


def test_the_gpu_family_quota_is_in_cloud_quotas(gcp: Gcp) -> None:
    gcp.control(quotas={f"{REGION}/GPUS_PER_GPU_FAMILY/NVIDIA_H100": 8})
    url = f"/v1/projects/{PROJECT}/locations/global/services/compute.googleapis.com/quotaInfos/{FAMILY}"
    rows = gcp.rest("GET", url)[1]["dimensionsInfos"]
    wanted = {"gpu_family": "NVIDIA_H100", "region": REGION}
    assert [row["details"]["value"] for row in rows if row["dimensions"] == wanted] == ["8"]
    regional = gcp.compute("Regions").get(project=PROJECT, region=REGION).quotas
    assert not any(row.metric.startswith("GPUS_PER") for row in regional)


def test_prices_are_per_component_region_and_market(gcp: Gcp) -> None:
    gcp.control(prices={"A2 Instance Core": 2.5})
    skus = gcp.rest("GET", "/v1/services/6F81-5844-456A/skus?pageSize=5000")[1]["skus"]
    here = {row["description"]: row for row in skus if REGION in row["serviceRegions"]}
    for name, usage, units, nanos in (
        ("A2 Instance Core running in Americas", "OnDemand", "2", 500_000_000),
        ("Spot Preemptible A2 Instance Core running in Americas", "Preemptible", "1", 0),
    ):
        rate = here[name]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
        assert here[name]["category"]["usageType"] == usage
        assert rate == {"currencyCode": "USD", "units": units, "nanos": nanos}
