"""Kubernetes versions: which are offered, in which channel, and what an alias means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.container_v1.types import ReleaseChannel, ServerConfig

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rpc
from cloudrec_sandbox.gcp.resources.places import zones_of
from cloudrec_sandbox.gcp.services.gke.state import place

if TYPE_CHECKING:
    from google.cloud.container_v1.types import GetServerConfigRequest

    from cloudrec_sandbox.gcp.api.call import Call

Channel = ReleaseChannel.Channel

DEFAULT = "1.35.8-gke.1225000"
_NEWEST_FIRST = (
    "1.36.2-gke.1104000",
    "1.36.1-gke.1480000",
    "1.35.9-gke.1010000",
    DEFAULT,
    "1.35.6-gke.1301000",
)
_EXTENDED = ("1.34.11-gke.1320000", "1.33.14-gke.1140000")  # past their standard support
_OFFERED = {
    Channel.RAPID: (_NEWEST_FIRST[0], _NEWEST_FIRST[1], _NEWEST_FIRST[2]),
    Channel.REGULAR: (_NEWEST_FIRST[1], _NEWEST_FIRST[2], DEFAULT),
    Channel.STABLE: (DEFAULT, _NEWEST_FIRST[4]),
    Channel.EXTENDED: (_NEWEST_FIRST[1], DEFAULT, *_EXTENDED),
}
_DEFAULTS = {
    Channel.RAPID: _NEWEST_FIRST[0],
    Channel.REGULAR: DEFAULT,
    Channel.STABLE: _NEWEST_FIRST[4],
    Channel.EXTENDED: DEFAULT,
}


def offered(channel: ReleaseChannel.Channel) -> tuple[str, ...]:
    """Return the versions of a channel, newest first; without a channel, all in standard support."""
    return _OFFERED.get(channel, _NEWEST_FIRST)


def resolve(version: str, channel: ReleaseChannel.Channel) -> str:
    """Return the full version for a version or an alias; GcpError for one that is not offered."""
    known = offered(channel)
    if version in ("", "-"):
        return _DEFAULTS.get(channel, DEFAULT)
    if version == "latest":
        return known[0]
    if "-gke." in version:
        if version not in known:
            raise GcpError("INVALID_ARGUMENT", f'Master version "{version}" is unsupported.')
        return version
    for each in known:
        if each.startswith((f"{version}.", f"{version}-")):
            return each
    raise GcpError("INVALID_ARGUMENT", f'No valid versions with the prefix "{version}" found.')


def parts(version: str) -> tuple[int, ...]:
    """Return a version's numbers, to compare by: minor, patch, build and so on."""
    number, _, build = version.partition("-gke.")
    return tuple(int(part) for part in (*number.split("."), *build.split(".")) if part)


@rpc("container", "google.container.v1.ClusterManager/GetServerConfig", permission="container.clusters.list")
def get_server_config(_call: Call, request: GetServerConfigRequest) -> ServerConfig:
    """Return the versions and images that a location offers."""
    _, location = place(request.name)
    if not zones_of(location):
        raise GcpError("INVALID_ARGUMENT", f'Location "{location}" does not exist.')
    return ServerConfig(
        default_cluster_version=DEFAULT,
        valid_master_versions=[*_NEWEST_FIRST],
        valid_node_versions=[*_NEWEST_FIRST, *_EXTENDED],
        default_image_type="COS_CONTAINERD",
        valid_image_types=["COS_CONTAINERD", "UBUNTU_CONTAINERD", "WINDOWS_LTSC_CONTAINERD"],
        channels=[
            ServerConfig.ReleaseChannelConfig(
                channel=channel,
                default_version=_DEFAULTS[channel],
                valid_versions=[*known],
                upgrade_target_version=_DEFAULTS[channel],
            )
            for channel, known in _OFFERED.items()
        ],
    )
