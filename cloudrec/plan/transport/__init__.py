"""How GPUs of different nodes talk: transport profiles as data, and what users should not set.

    profile_of(fabric, instance_type) -> Profile
    advise(environment, fabric)       -> settings that a user set and should not have

profiles.yaml holds the values with the reason and the source of each; obsolete.yaml what is out of date.
"""

from __future__ import annotations

from cloudrec.plan.transport.obsolete import Advice, advise
from cloudrec.plan.transport.profile import Expected, HostPath, Profile, Setting, Sidecar
from cloudrec.plan.transport.table import profile_of, profiles

__all__ = [
    "Advice",
    "Expected",
    "HostPath",
    "Profile",
    "Setting",
    "Sidecar",
    "advise",
    "profile_of",
    "profiles",
]
