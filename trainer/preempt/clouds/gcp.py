"""GCP: the metadata server's `preempted` becomes TRUE 30 s before a spot machine ends."""

from __future__ import annotations

import time

from trainer.preempt.metadata import MetadataError, MetadataService
from trainer.preempt.notice import Notice
from trainer.preempt.watch import Service

# The default. On GKE the node pool decides: pods have 15 s, the rest is for the system, and up to
# 105 s with kubelet_config.shutdown_grace_period_seconds. cloudrec passes preemption_notice_seconds.
_LEAD_S = 30.0
_WAIT_S = 30
_MARGIN_S = 5.0
_OK = 200


class ComputeMetadata:
    """Reads instance/preempted once, and then waits for it to change."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._etag: str | None = None

    def poll(self) -> Notice | None:
        """Return the current notice, or that after a change; MetadataError if the answer is not valid."""
        path = "/computeMetadata/v1/instance/preempted"
        timeout_s = _MARGIN_S
        if self._etag is not None:
            path += f"?wait_for_change=true&timeout_sec={_WAIT_S}&last_etag={self._etag}"
            timeout_s += _WAIT_S
        answer = self._service.get(path, {"Metadata-Flavor": "Google"}, timeout_s=timeout_s)
        if answer.status != _OK:
            raise MetadataError(f"instance/preempted answers with status {answer.status}")
        if answer.headers.get("metadata-flavor") != "Google":
            raise MetadataError("it is not Google's metadata server: its answer lacks Metadata-Flavor")
        if answer.text not in ("TRUE", "FALSE"):
            raise MetadataError(f"preempted is {answer.text[:60]!r}, neither TRUE nor FALSE")
        etag = answer.headers.get("etag", "")
        self._etag = etag if etag.isalnum() else None
        if answer.text == "FALSE":
            return None
        ends_at = time.monotonic() + _LEAD_S
        return Notice(
            source="gcp", reason="this machine is preempted", ends_at=ends_at, fixed=True, announced=False
        )


SERVICE = Service(
    url="http://metadata.google.internal",
    variable="GCE_METADATA_HOST",
    lead_s=_LEAD_S,
    pause_s=1.0,  # a request waits for a change; this is between two requests
    hint="GKE's own metadata server may not announce preemptions; its SIGTERM then comes as the notice",
    make_poller=ComputeMetadata,
)
