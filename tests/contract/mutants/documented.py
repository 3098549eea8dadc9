"""Rules about whole requests, each with its source: what no single field shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.contract.mutants.verdicts import Documented

_EC2_EFA = "EC2 user guide, 'Maximize network bandwidth on instances with multiple network cards'"
_EC2_INTERFACE = "botocore's text of LaunchTemplateInstanceNetworkInterfaceSpecificationRequest"
_TYPES = "EC2 DescribeInstanceTypes, NetworkInfo (NetworkCards, EfaInfo); " + _EC2_EFA
_SIZES = "botocore's text of NodegroupScalingConfig"
_GKE_GRACE = "google-cloud-container, text of NodeKubeletConfig (shutdown_grace_period_seconds)"
_GCE_COMPACT = "GKE documentation, Compact placement (machine types)"
_GRACE_SECONDS = (0, 30, 120)
_COMPACT = 1  # NodePool.PlacementPolicy.Type


def aws(  # noqa: C901 - a function for each rule
    network: Mapping[str, Any],
) -> Mapping[str, Sequence[tuple[Documented, str]]]:
    """Return the rules of a machine's template and node group.

    Args:
        network: the type's NetworkInfo, as EC2 describes it.
    """
    cards_of = {str(card["NetworkCardIndex"]): card for card in network["NetworkCards"]}
    most_adapters = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)

    def data(document: Any) -> list[dict[str, Any]]:
        held = document.get("LaunchTemplateData")
        found = held.get("NetworkInterface") if isinstance(held, dict) else None
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def place(each: Mapping[str, Any]) -> tuple[str, str]:
        return str(each.get("NetworkCardIndex", "0")), str(each.get("DeviceIndex"))

    def primary(document: Any) -> str:
        found = data(document)
        return "no interface at device 0 of card 0" if found and ("0", "0") not in map(place, found) else ""

    def unique(document: Any) -> str:
        twice = [each for each, times in Counter(map(place, data(document))).items() if times > 1]
        return f"two interfaces at card and device {twice[0]}" if twice else ""

    def adapters(document: Any) -> str:
        count = sum(each.get("InterfaceType") in {"efa", "efa-only"} for each in data(document))
        return f"{count} EFA interfaces; the type has {most_adapters}" if count > most_adapters else ""

    def cards(document: Any) -> str:
        for each in data(document):
            card = cards_of.get(place(each)[0])
            if card is None:
                return f"the type has no network card {place(each)[0]}"
            most = card["MaximumNetworkInterfaces"]
            if place(each)[1] not in {str(number) for number in range(most)}:
                return f"card {place(each)[0]} has {most} devices, and none of the number {place(each)[1]}"
            if each.get("InterfaceType", "interface") not in card["InterfaceTypes"]:
                return f"card {place(each)[0]} has no {each['InterfaceType']}"
            if place(each) == ("0", "0") and each.get("InterfaceType") == "efa-only":
                return "the primary interface cannot be EFA-only"
        return ""

    def sizes(document: Any) -> str:
        held = document.get("scalingConfig")
        if not isinstance(held, dict):
            return ""
        low, wanted, most = (held.get(name) for name in ("minSize", "desiredSize", "maxSize"))
        numbers = [each for each in (low, wanted, most) if isinstance(each, int)]
        return "not minSize <= desiredSize <= maxSize" if numbers != sorted(numbers) else ""

    return {
        "CreateLaunchTemplate": (
            (primary, _EC2_INTERFACE),
            (unique, _EC2_EFA),
            (adapters, _EC2_EFA),
            (cards, _TYPES),
        ),
        "CreateNodegroup": ((sizes, _SIZES),),
    }


def gcp() -> Sequence[tuple[Documented, str]]:
    """Return the rules of a node pool."""

    def pool(document: Any) -> Mapping[str, Any]:
        held = document.get("nodePool")
        return held if isinstance(held, dict) else {}

    def grace(document: Any) -> str:
        config = pool(document).get("config", {})
        period = config.get("kubeletConfig", {}).get("shutdownGracePeriodSeconds", 0)
        if period not in _GRACE_SECONDS:
            return f"{period} is none of {_GRACE_SECONDS}"
        return "the nodes are no spot" if period and not config.get("spot") else ""

    def compact(document: Any) -> str:
        held = pool(document)
        wanted = held.get("placementPolicy", {}).get("type") == _COMPACT
        return "e2-medium has no compact placement" if wanted and not held.get("config") else ""

    return ((grace, _GKE_GRACE), (compact, _GCE_COMPACT))
