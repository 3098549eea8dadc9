"""Hourly prices of network and storage: the keys of the price table.

Plans have no prices by request, by GB in S3 or by GB of traffic: these amounts are not known in advance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.providers.base.prices import Prices

CONTROL_PLANE = "eks-cluster"
NAT_GATEWAY = "nat-gateway"
PUBLIC_ADDRESS = "public-address"
INTERFACE_ENDPOINT = "interface-endpoint"  # for each zone that it has an address in
KMS_KEY = "kms-key"


def lustre(prices: Prices, capacity_gib: int, throughput: int | None) -> float | None:
    """Return the USD an hour of a PERSISTENT_2 file system on SSD; None if its price is not known.

    Args:
        prices: the price table.
        capacity_gib: its size.
        throughput: MB/s for each TiB of its size.
    """
    return prices.service(f"lustre-{throughput}-gib", capacity_gib)
