"""The transport profiles as plain JSON, for programs that read them with the standard library alone.

    python -m cloudrec.transport.plain

writes plain.json; a test keeps it equal to profiles.yaml. It names the daemons and capabilities that only
Kubernetes can provide, so that a reader for another engine can report that they are missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.transport.table import machines_of, profiles

if TYPE_CHECKING:
    from cloudrec.transport.profile import Profile

FILE = Path(__file__).with_name("plain.json")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def text() -> str:
    """Return the content of plain.json."""
    document = {"profiles": [_plain(profile) for profile in profiles()]}
    return json.dumps(document, indent=1) + "\n"


def _plain(profile: Profile) -> dict[str, Any]:
    cards = {profile.card_resource: profile.cards} if profile.card_resource else {}
    return {
        "name": profile.name,
        "fabric": profile.fabric,
        "machines": list(machines_of(profile.name)),
        "environment": dict(profile.environment),
        "devices": {**cards, **{name: _bytes(value) for name, value in profile.resources.items()}},
        "mounts": [[each.path, each.mount, each.read_only] for each in profile.host_paths],
        "script": profile.script,
        "daemons": [each.name for each in profile.sidecars],
        "capabilities": list(profile.capabilities),
    }


def _bytes(quantity: str) -> int:
    """Return a quantity of memory in bytes."""
    unit = quantity.lstrip("0123456789")
    return int(quantity.removesuffix(unit)) * (_UNITS[unit] if unit else 1)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
