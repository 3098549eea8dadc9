"""Serves the logs of containers to the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.kubelet.processes.logs import Log
    from cloudrec_sandbox.kubernetes.storage.log_source import Line, LogRequest


class LogServer:
    """The API server's source of logs."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def __call__(self, request: LogRequest, /) -> Iterator[Line | None]:
        """Return the lines of a container; refused if it has not started."""
        return _lines(self._log(request), follow=request.follow)

    def _log(self, request: LogRequest) -> Log:
        metadata = request.pod["metadata"]
        where = f'container "{request.container}" in pod "{metadata["name"]}"'
        worker = self._kubelet.worker(metadata["uid"])
        instances = worker.instances if worker is not None else []
        instance = next((each for each in instances if each.name == request.container), None)
        if instance is None:
            raise errors.bad_request(f"{where} is waiting to start: ContainerCreating")
        if request.previous:
            if len(instance.logs) > instance.restarts and instance.restarts == 0:
                raise errors.bad_request(f"previous terminated {where} not found")
            return instance.logs[-2] if instance.is_live else instance.logs[-1]
        if not instance.logs:
            reason = instance.state.get("waiting", {}).get("reason", "ContainerCreating")
            verb = "trying and failing to pull image" if "Image" in reason else reason
            raise errors.bad_request(f"{where} is waiting to start: {verb}")
        return instance.logs[-1]


def _lines(log: Log, *, follow: bool) -> Iterator[Line | None]:
    for line in log.lines(follow=follow):
        if line is None:
            yield None
        else:
            moment, _, text = line.partition(b" ")
            yield float(moment), text + b"\n"
