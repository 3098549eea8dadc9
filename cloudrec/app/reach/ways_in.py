"""The ways that a cloud has into a private network, as commands with the names of a cluster.

A provider folder may have a module `network/ways_in` with a function `ways_in(cluster)`, without an SDK.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.spec.models import ClusterSpec

_PROVIDERS = "cloudrec.providers"


def ways_in(cluster: ClusterSpec) -> Sequence[str]:
    """Return one line for each way into the private network of a cluster; none if its cloud states none."""
    module = f"{_PROVIDERS}.{cluster.provider}.network.ways_in"
    try:
        if find_spec(module) is None:
            return ()
    except ModuleNotFoundError:  # the provider has no folder `network`
        return ()
    stated: Sequence[str] = import_module(module).ways_in(cluster)
    return stated
