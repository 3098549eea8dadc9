"""The transport profiles as plain JSON, for whoever must read them with the standard library alone.

    python -m cloudrec.plan.transport.plain

writes plain.json anew; a test holds it equal to profiles.yaml. What only Kubernetes can be asked for (daemons
beside the trainer, capabilities) is named, so that whoever cannot ask for it can say so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.plan.transport.table import machines_of, profiles

if TYPE_CHECKING:
    from cloudrec.plan.transport.profile import Profile

FILE = Path(__file__).with_name("plain.json")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def text() -> str:
    """Return what plain.json must hold."""
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
    """Return a quantity of memory as a number."""
    unit = quantity.lstrip("0123456789")
    return int(quantity.removesuffix(unit)) * (_UNITS[unit] if unit else 1)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
