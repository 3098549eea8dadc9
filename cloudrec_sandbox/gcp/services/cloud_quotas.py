"""Cloud Quotas v1: Compute's quotas by family of GPUs, and its quotas by region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging
from cloudrec_sandbox.gcp.resources.places import REGIONS
from cloudrec_sandbox.gcp.services.compute.capacity import quotas

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_SERVICE = "compute.googleapis.com"
_URL = "/v1/projects/{project}/locations/global/services/{service}/quotaInfos"
_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"


def _infos(call: Call) -> list[dict[str, Any]]:
    """Return all quotas: the one by family, and one for each metric of a region."""
    if call.params["service"] != _SERVICE:
        return []
    by_family = [
        {
            "dimensions": {"gpu_family": family, "region": region},
            "details": {"value": _value(call, region, f"{quotas.FAMILY}/{family}")},
            "applicableLocations": [region],
        }
        for region in REGIONS
        for family in sorted(quotas.FAMILIES.values())
    ]
    infos = [_info(call, _FAMILY, "gpus_per_gpu_family", ["region", "gpu_family"], by_family)]
    for metric, _, _ in quotas.rows(call.world, next(iter(REGIONS))):
        rows = [
            {
                "dimensions": {"region": region},
                "details": {"value": _value(call, region, metric)},
                "applicableLocations": [region],
            }
            for region in REGIONS
        ]
        name = f"{metric.replace('_', '-')}-per-project-region"
        infos.append(_info(call, name, metric.lower(), ["region"], rows))
    return infos


def _value(call: Call, region: str, metric: str) -> str:
    return str(int(quotas.limit(call.world, region, metric)))


def _info(
    call: Call, name: str, metric: str, dimensions: list[str], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    number = projects.home(call.world).number
    return {
        "name": f"projects/{number}/locations/global/services/{_SERVICE}/quotaInfos/{name}",
        "quotaId": name,
        "metric": f"{_SERVICE}/{metric}",
        "service": _SERVICE,
        "containerType": "PROJECT",
        "dimensions": dimensions,
        "metricDisplayName": metric,
        "quotaDisplayName": f"{metric} per project per region",
        "metricUnit": "1",
        "isPrecise": True,
        "quotaIncreaseEligibility": {"isEligible": True},
        "dimensionsInfos": rows,
    }


@rest(
    "cloudquotas",
    "projects.locations.services.quotaInfos.get",
    "GET",
    _URL + "/{name}",
    permission="cloudquotas.quotas.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one quota."""
    for info in _infos(call):
        if info["quotaId"] == call.params["name"]:
            return info
    raise GcpError("NOT_FOUND", f"Quota '{call.params['name']}' of {call.params['service']} was not found.")


@rest(
    "cloudquotas",
    "projects.locations.services.quotaInfos.list",
    "GET",
    _URL,
    query=paging.QUERY,
    permission="cloudquotas.quotas.get",
)
def list_(call: Call) -> dict[str, Any]:
    """Return all quotas of a service."""
    items, token = paging.page(_infos(call), call)
    return {"quotaInfos": items, **({"nextPageToken": token} if token else {})}
