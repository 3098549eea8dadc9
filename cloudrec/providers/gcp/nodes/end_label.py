"""The label of a cluster by which the guard moves the end that Google Cloud keeps (see `end_workflow`).

The guard's role may change the cluster, so the label needs no further permission. With the label alone, a pod
with the guard's identity could put off the end, up to the limit that a ttl sets; it can start no node that it
could not start without it, and no workflow or job is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.errors import PreflightError
from cloudrec.providers.gcp.api import labels, sdk
from cloudrec.providers.gcp.nodes import scale_to_zero

if TYPE_CHECKING:
    from cloudrec.providers.gcp.api.client import Gcp


def move(gcp: Gcp, title: str, expires: str, *, cluster: str = "") -> None:
    """Begin to change the label of a cluster's end; GKE takes about a minute.

    Args:
        gcp: the project.
        title: the name of the cluster.
        expires: the new end, ISO 8601.
        cluster: its path; if empty, it is searched in the region.

    Raises:
        PreflightError: there is no such cluster with an end.
        google.api_core.exceptions.GoogleAPICallError: GKE refuses, for one while it changes the cluster.
    """
    found = [
        row
        for row in scale_to_zero.clusters(gcp, title, cluster)
        if TAG_EXPIRES in labels.decode(row.resource_labels)
    ]
    if not found:
        raise PreflightError(f"no GKE cluster of {title!r} has an end in its labels")
    for row in found:
        request = sdk.container.SetLabelsRequest(
            name=f"projects/{gcp.project}/locations/{row.location}/clusters/{row.name}",
            # GKE replaces all labels. The fingerprint detects a change since they were read.
            resource_labels={**row.resource_labels, **labels.encode({TAG_EXPIRES: expires})},
            label_fingerprint=row.label_fingerprint,
        )
        gcp.call(gcp.container.set_labels, request)
