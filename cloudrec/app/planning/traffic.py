"""What the dataset costs on its way to a cluster: what leaves a cloud is paid for, what arrives is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.app.gpu_catalog import known_prices
from cloudrec_contract.objectstore.schemes import scheme_of, shared_kinds

if TYPE_CHECKING:
    from cloudrec.app.context import AppContext

_OTHER_S3 = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # name another service with S3's API


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The way of a dataset to a cloud.

    Attributes:
        usd: USD for each GiB; None if unknown.
        basis: where the price is from; empty if it is unknown.
    """

    usd: float | None = None
    basis: str = ""


def traffic_to(app: AppContext, uri: str, provider: str) -> Traffic:
    """Return what one copy of a dataset to the cluster's bucket costs.

    A bucket of the same cloud may be in another region, which only the cloud knows: the price is unknown.

    Args:
        app: has the prices and the variables that name another service with S3's API.
        uri: the dataset; empty if the run has none.
        provider: the cloud of the cluster.
    """
    if not uri:
        return Traffic()
    # The extra that a kind of store needs has the name of its cloud; a path and `ssh` are of no cloud.
    cloud = next((kind.extra for kind in shared_kinds() if scheme_of(uri) in kind.schemes), "")
    if not cloud:
        return Traffic(usd=0.0, basis="uploads to a cloud are free")
    facts = providers.facts(cloud)
    if cloud == provider or facts is None or (cloud == "aws" and any(map(app.environment.get, _OTHER_S3))):
        return Traffic()
    rows = known_prices(app, cloud).rows.values()
    found = min((each for each in rows if each.name == facts.egress), key=lambda each: each.usd, default=None)
    return Traffic() if found is None else Traffic(usd=found.usd, basis=f"from a table ({found.label})")
