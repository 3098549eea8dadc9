"""The places of resources: regions and their zones."""

from __future__ import annotations

REGIONS: dict[str, tuple[str, ...]] = {
    region: tuple(f"{region}-{letter}" for letter in letters)
    for region, letters in {
        "us-central1": "abcf",
        "us-east1": "bcd",
        "us-east4": "abc",
        "us-east5": "abc",
        "us-west1": "abc",
        "us-west2": "abc",
        "us-west3": "abc",
        "us-west4": "abc",
        "us-south1": "abc",
        "europe-west1": "bcd",
        "europe-west2": "abc",
        "europe-west3": "abc",
        "europe-west4": "abc",
        "europe-north1": "abc",
        "asia-east1": "abc",
        "asia-northeast1": "abc",
        "asia-northeast3": "abc",
        "asia-south1": "abc",
        "asia-southeast1": "abc",
        "australia-southeast1": "abc",
    }.items()
}
ZONES = {zone: region for region, zones in REGIONS.items() for zone in zones}


def zones_of(location: str) -> tuple[str, ...]:
    """Return the zones of a region, or the zone itself; empty for an unknown place."""
    return REGIONS.get(location) or ((location,) if location in ZONES else ())


def region_of(location: str) -> str:
    """Return the region of a zone, or the region itself; '' for an unknown place."""
    return ZONES.get(location) or (location if location in REGIONS else "")
