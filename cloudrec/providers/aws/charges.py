"""What the network and the storage cost: list prices of us-east-1; those of GPU nodes are in `prices`.

Other regions differ by some tens of per cent. Prices by request, by GB stored in S3 or by GB moved are not
here: nobody can know them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

AS_OF = "2026-11, us-east-1 list prices"
_HOURS = 730  # in a month, as AWS counts

NAT_GATEWAY = 0.045
PUBLIC_ADDRESS = 0.005
INTERFACE_ENDPOINT = 0.01  # in each zone
KMS_KEY = 1.0 / _HOURS
# FSx for Lustre, PERSISTENT_2 on SSD, each GiB: USD a month by MB/s for each TiB.
_LUSTRE_MONTHLY: Mapping[int, float] = {125: 0.145, 250: 0.210, 500: 0.340, 1000: 0.600}


def lustre(capacity_gib: int, throughput: int) -> float:
    """Return the USD/h of a file system of this size, with so many MB/s for each TiB."""
    return capacity_gib * _LUSTRE_MONTHLY[throughput] / _HOURS
