"""What EC2 refuses of an instance's volumes when it launches it.

The limits of sizes are in botocore's text of EbsBlockDevice, the volume types that need Iops or cannot be
boot volumes in "Amazon EBS volume types" (EBS user guide), the names in "Device names for volumes on Amazon
EC2 instances" (EC2 user guide). The codes are EC2's general ones for block devices and parameters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAME = re.compile(r"/dev/(sda1|sd[b-z](1[0-5]|[1-9])?|xvd[a-z]|xvd[b-d][a-z])|xvd[a-z]{1,2}|sd[b-z]")
_ROOTS = frozenset({"/dev/xvda", "/dev/sda1"})
_SIZES: Mapping[str, tuple[int, int]] = {  # GiB
    "gp2": (1, 16384),
    "gp3": (1, 65536),
    "io1": (4, 16384),
    "io2": (4, 65536),
    "st1": (125, 16384),
    "sc1": (125, 16384),
    "standard": (1, 1024),
}
_NEED_IOPS = frozenset({"io1", "io2"})
_NO_BOOT = frozenset({"st1", "sc1"})


def disk_faults(mappings: Sequence[Mapping[str, Any]]) -> Iterator[AwsError]:
    """Yield what is wrong with the block device mappings of a launch."""
    seen = set()
    for each in mappings:
        name = each.get("DeviceName")
        if not name:
            yield AwsError(
                "MissingParameter", "The request must contain the parameter blockDeviceMapping.deviceName"
            )
            continue
        if not _NAME.fullmatch(name):
            yield AwsError("InvalidBlockDeviceMapping", f"Invalid device name {name}")
        if name in seen:
            yield AwsError("InvalidBlockDeviceMapping", f"Duplicate device name {name}")
        seen.add(name)
        yield from _volume_faults(name, each.get("Ebs") or {})


def _volume_faults(name: str, volume: Mapping[str, Any]) -> Iterator[AwsError]:
    kind, size = volume.get("VolumeType", "gp2"), volume.get("VolumeSize")
    least, most = _SIZES.get(kind, (1, 65536))
    if size is not None and not least <= size <= most:
        yield AwsError(
            "InvalidParameterValue",
            f"Volume of {size}GiB is invalid; {kind} volumes have {least} to {most} GiB.",
        )
    if kind in _NEED_IOPS and not volume.get("Iops"):
        yield AwsError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
    if kind in _NO_BOOT and name in _ROOTS:
        yield AwsError("InvalidParameterValue", f"The volume type {kind} cannot be used for a boot volume.")
