"""Tasks in a Ray cluster."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec.data.prepare.many.parts import unseen
from cloudrec.errors import CloudrecError, DataError, MissingExtraError, PreflightError, UsageError
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cloudrec.data.prepare.many.parts import PartsJob

_SCHEME = "ray://"
_RETRIES = 5  # of a task whose worker or machine was lost
_HERE = "auto"  # the cluster of which this machine is a node


class _Failed(NamedTuple):
    """A task's error; exceptions lose their remedy on the way."""

    message: str
    remedy: str | None


class RayTasks:
    """Runs tasks in a Ray cluster, each on one processor; Ray repeats those whose worker is lost."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - untyped
        self._ray = ray

    def run(self, task: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """See TaskRunner."""
        remote = self._ray.remote(max_retries=_RETRIES)(_attempt)
        return [self._result(each) for each in [remote.remote(task, *each) for each in arguments]]

    def check(self, job: PartsJob) -> None:
        """Check that all nodes with processors have this version of cloudrec and see the job's paths.

        Raises:
            PreflightError: one has not, or does not.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - an extra

        nodes = [each for each in self._ray.nodes() if each["Alive"] and each["Resources"].get("CPU")]
        if not nodes:
            raise PreflightError("the Ray cluster has no node with processors", remedy="start one")
        remote = self._ray.remote(num_cpus=0)(_look)
        looks = [
            remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(each["NodeID"], soft=False))
            for each in nodes
        ]
        for node, look in zip(nodes, [each.remote(job) for each in looks], strict=True):
            version, missing = self._result(look)
            where = f"the Ray node {node['NodeManagerAddress']}"
            if version != __version__:
                raise PreflightError(
                    f"{where} has cloudrec {version}, this machine {__version__}",
                    remedy="install the same version on both: its extra `data` is enough",
                )
            if missing:
                more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
                raise PreflightError(
                    f"{where} does not see {missing[0]}{more}",
                    remedy="name files and an output folder that all nodes see under the same path, "
                    "as on a shared file system or a mounted bucket",
                )

    def _result(self, reference: Any) -> Any:  # noqa: ANN401 - untyped
        try:
            found = self._ray.get(reference)
        except Exception as error:
            words = " ".join(str(error).split())
            if "ModuleNotFoundError" in words:
                raise PreflightError(
                    f"a Ray node lacks a module: {words[-200:]}",
                    remedy=f"install cloudrec[data] {__version__} on the nodes",
                ) from error
            raise CloudrecError(f"a Ray task failed: {type(error).__name__}: {words[:500]}") from error
        if isinstance(found, _Failed):
            raise DataError(found.message, remedy=found.remedy)
        return found


@contextmanager
def ray_tasks(address: str) -> Iterator[RayTasks]:
    """Connect to a Ray cluster, and disconnect at the end.

    Args:
        address: `ray://HOST:PORT`, or `auto` on a node of the cluster.

    Raises:
        UsageError: the address is of another form.
        MissingExtraError: Ray is not installed.
        PreflightError: no cluster answers, or it has another version of Ray or Python.
    """
    host, _, port = address.removeprefix(_SCHEME).rpartition(":")
    if address != _HERE and not (address.startswith(_SCHEME) and host and port.isdecimal()):
        raise UsageError(
            f"--on is {address!r}; it must be ray://HOST:PORT, or auto on a node of the cluster",
            remedy="Ray's own port for clients is 10001, as in ray://head:10001",
        )
    try:
        import ray  # noqa: PLC0415 - seconds, and an extra
    except ImportError as error:
        raise MissingExtraError("ray", module=error.name or "ray") from error
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        words = " ".join(str(error).split())
        raise PreflightError(
            f"no use of the Ray cluster at {address}: {type(error).__name__}: {words[:300]}",
            remedy="check that it runs, that this machine reaches its port for clients, its token, and that "
            f"it has these versions: Ray {ray.__version__}, Python {sys.version.split()[0]}",
        ) from error
    try:
        yield RayTasks(ray)
    finally:
        ray.shutdown()


def _attempt(task: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - of any task
    try:
        return task(*arguments)
    except CloudrecError as error:
        return _Failed(error.message, error.remedy)


def _look(job: PartsJob) -> tuple[str, list[str]]:
    return __version__, unseen(job)
