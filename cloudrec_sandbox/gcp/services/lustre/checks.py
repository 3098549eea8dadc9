"""What Managed Lustre refuses at once."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

from google.cloud.lustre_v1.types import DynamicTierOptions

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.resources.places import ZONES

if TYPE_CHECKING:
    from google.cloud.lustre_v1.types import Instance

    from cloudrec_sandbox.gcp.api.world import World

_FILESYSTEM = re.compile(r"[A-Za-z][A-Za-z0-9]{0,7}")
_NETWORK = re.compile(r"projects/[^/]+/global/networks/[^/]+")
# Capacities by MB/s a TiB: minimum, maximum and step, in GiB; 0 is the dynamic tier.
_CAPACITIES = {
    0: (472_000, 40_000_000, 472_000),
    125: (72_000, 7_632_000, 72_000),
    250: (36_000, 3_816_000, 36_000),
    500: (18_000, 1_908_000, 18_000),
    1000: (9_000, 954_000, 9_000),
}


def _invalid(message: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", message)


def request_id(value: str) -> None:
    """Raise GcpError for an id that is no UUID, or the zero UUID."""
    if not value:
        return
    try:
        known = uuid.UUID(value)
    except ValueError:
        known = uuid.UUID(int=0)
    if known.int == 0:
        raise _invalid(f"Invalid request_id '{value}': it must be a UUID, and not the zero one.")


def instance(world: World, zone: str, name: str, wish: Instance) -> None:
    """Raise GcpError for an instance that Lustre refuses."""
    if zone not in ZONES:
        raise _invalid(f"Location '{zone}' is not a zone.")
    if not checks.is_name(name):
        raise _invalid(f"Invalid instance_id '{name}': lowercase letters, digits and dashes, at most 63.")
    if not _FILESYSTEM.fullmatch(wish.filesystem):
        raise _invalid(
            f"Invalid filesystem '{wish.filesystem}': a letter, then letters and digits, 8 at most."
        )
    capacity(wish)
    checks.labels(wish.labels, "instance.labels")
    if not _NETWORK.fullmatch(wish.network):
        raise _invalid(f"Invalid network '{wish.network}': it must be projects/PROJECT/global/networks/NAME.")
    if store.find(world, "compute", wish.network) is None:
        raise _invalid(f"Network '{wish.network}' was not found.")


def capacity(wish: Instance) -> None:
    """Raise GcpError for a capacity that the tier does not have."""
    throughput, size = wish.per_unit_storage_throughput, wish.capacity_gib
    dynamic = wish.dynamic_tier_options.mode == DynamicTierOptions.Mode.DEFAULT_CACHE
    if throughput not in _CAPACITIES or (dynamic and throughput):
        known = ", ".join(str(each) for each in _CAPACITIES)
        raise _invalid(
            f"Invalid per_unit_storage_throughput {throughput}: it is one of {known}; 0 on the dynamic tier."
        )
    least, most, step = _CAPACITIES[throughput]
    if not least <= size <= most or size % step:
        raise _invalid(
            f"Invalid capacity_gib {size}: with a throughput of {throughput} it is {least} to {most} in steps"
            f" of {step}."
        )
