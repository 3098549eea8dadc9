"""The network between GPUs of different nodes: transport profiles, and warnings about obsolete settings.

    profile_of(fabric, instance_type) -> Profile
    advise(environment, fabric)       -> settings that a user should not set

profiles.yaml has the values, each with its reason and source; a provider's folder may have another one for
the fabrics of its cloud. obsolete.yaml lists the settings that are obsolete or harmful.
"""

from __future__ import annotations

from cloudrec.transport.obsolete import Advice, advise
from cloudrec.transport.profile import Expected, HostPath, Profile, Setting, Sidecar
from cloudrec.transport.table import fabrics, profile_of, profiles

__all__ = [
    "Advice",
    "Expected",
    "HostPath",
    "Profile",
    "Setting",
    "Sidecar",
    "advise",
    "fabrics",
    "profile_of",
    "profiles",
]
