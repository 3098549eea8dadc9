"""The regions of the account. moto returns those that are not enabled, too.

Source: EC2's model, DescribeRegions: without AllRegions it has the regions that are enabled for the account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call


@operation("ec2", "DescribeRegions")
def describe(call: Call) -> dict[str, Any]:
    """Return the regions, without the disabled ones unless AllRegions is set."""
    output = call.output()
    wants_all = call.params.get("AllRegions")
    rows = [row for row in output["Regions"] if wants_all or row["OptInStatus"] != "not-opted-in"]
    return {**output, "Regions": rows}
