"""The network between GPUs of different nodes: transport profiles, and warnings about obsolete settings.

    profile_of(fabric, instance_type) -> Profile
    is_named(fabric, instance_type)   -> whether a profile names the machine
    advise(environment, fabric)       -> settings that a user should not set

profiles.yaml has the values, each with its reason and source; a provider's folder may have another one for
the fabrics of its cloud. obsolete.yaml lists the settings that are obsolete or harmful.
"""

from __future__ import annotations

from cloudrec.transport.obsolete import Advice, advise
from cloudrec.transport.profile import HUGE_PAGES, Expected, HostPath, Profile, Setting, Sidecar
from cloudrec.transport.table import fabrics, is_named, profile_of, profiles

__all__ = [
    "HUGE_PAGES",
    "Advice",
    "Expected",
    "HostPath",
    "Profile",
    "Setting",
    "Sidecar",
    "advise",
    "fabrics",
    "is_named",
    "profile_of",
    "profiles",
]
