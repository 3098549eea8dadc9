"""The connection to a Ray cluster's head, by Ray's own client for jobs, with readable errors."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, MissingExtraError, PreflightError
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from cloudrec.launchers.ray.settings import Head

    T = TypeVar("T")

_TIMEOUT_S = 20.0
_NO_AGENT = "No available agent to submit job"  # the error of a head that has just started
_AGENT_S = 300.0  # a busy machine takes over a minute to start it
_PAUSE_S = 0.5
_TALKATIVE = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")  # log each upload
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")  # Ray's client prefers them to its argument
_CONSTRUCTION = threading.Lock()  # while these variables of the process are unset


class UnreachableHeadError(PreflightError):
    """The head does not answer."""


class GoneHeadError(UnreachableHeadError):
    """The head that was started for a run has ended, so it will not answer again."""


class UnknownJobError(CloudrecError):
    """The cluster has no job of this id."""


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """A node of a Ray cluster."""

    address: str
    cpus: float
    gpus: float


class Cluster:
    """A Ray cluster, reached by its head's dashboard.

    Args:
        head: the head.

    Raises:
        MissingExtraError: Ray is not installed on this machine.
        PreflightError: the token is missing or wrong, or the cluster requires none.
        UnreachableHeadError: the head does not answer.
    """

    def __init__(self, head: Head) -> None:
        self.head = head
        self._client = self._call(lambda: _connect(head))

    def submit(self, **job: Any) -> str:  # noqa: ANN401 - Ray's own keywords
        """Submit a job by the arguments of JobSubmissionClient.submit_job; return its id.

        If the cluster has a job of this id, that one is returned.
        """
        give_up = time.monotonic() + _AGENT_S
        while True:
            try:
                return str(self._call(lambda: self._client.submit_job(**job)))
            except CloudrecError as error:
                # An earlier call has submitted it, and its answer was lost or its process was killed.
                if self._knows(str(job["submission_id"])):
                    return str(job["submission_id"])
                if _NO_AGENT not in error.message or time.monotonic() > give_up:
                    raise
                time.sleep(_PAUSE_S)

    def job(self, submission_id: str) -> Any:  # noqa: ANN401 - Ray's JobDetails
        """Return Ray's record of a job; UnknownJobError if there is none."""
        return self._call(lambda: self._client.get_job_info(submission_id), what=submission_id)

    def job_log(self, submission_id: str) -> str:
        """Return the output of a job's driver."""
        return str(self._call(lambda: self._client.get_job_logs(submission_id), what=submission_id))

    def stop(self, submission_id: str) -> None:
        """Request the end of a job; return at once."""
        self._call(lambda: self._client.stop_job(submission_id), what=submission_id)

    def versions(self) -> tuple[str, str]:
        """Return the cluster's versions of Ray and of Python; "" for a version that it does not report."""
        metadata = self._get("/api/v0/cluster_metadata")
        ray = str(metadata.get("rayVersion") or self._client.get_version())
        return ray, str(metadata.get("pythonVersion") or "")

    def machines(self) -> Sequence[RayNode]:
        """Return the nodes that are alive."""
        listed = (self._get("/api/v0/nodes?detail=1").get("result") or {}).get("result") or []
        alive = [node for node in listed if node.get("state") == "ALIVE"]
        return [
            RayNode(
                address=str(node.get("node_ip", "")),
                cpus=float((node.get("resources_total") or {}).get("CPU", 0)),
                gpus=float((node.get("resources_total") or {}).get("GPU", 0)),
            )
            for node in alive
        ]

    def _knows(self, submission_id: str) -> bool:
        try:
            self.job(submission_id)
        except UnknownJobError:
            return False
        return True

    def _get(self, path: str) -> Mapping[str, Any]:
        answer = self._call(lambda: self._client._do_request("GET", path))  # noqa: SLF001 - no public name
        data: Mapping[str, Any] = safe_object(answer.content).get("data") or {} if answer.ok else {}
        return data

    def _call(self, action: Callable[[], T], *, what: str = "") -> T:
        """Return the result of an action; the errors of Ray's client become cloudrec's."""
        try:
            return action()
        except CloudrecError:
            raise
        except Exception as error:
            raise _explained(error, self.head, what) from error


def ray_version() -> str:
    """Return the version of Ray on this machine; MissingExtraError if it is not installed."""
    return str(_ray().__version__)


def token_of(head: Head) -> str:
    """Return the token for a head: from its file, else from the places where Ray looks; "" if there is none.

    Raises:
        PreflightError: the file that the settings name cannot be read.
    """
    named = head.token_file or (
        "" if os.environ.get("RAY_AUTH_TOKEN") else os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    )
    if not named and os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"].strip()
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        if not named:
            return ""
        raise PreflightError(
            f"Ray's token cannot be read from {path}: {error.strerror}",
            remedy="name the file that holds it: --set train.settings.token_file=FILE",
        ) from error


def _connect(head: Head) -> Any:  # noqa: ANN401 - untyped
    token = token_of(head)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    module = _ray()
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    with _without_overrides():
        client = _client_class(module)(head.url, headers=headers)
    if head.auth == "token" and _mode(client) == "disabled":
        raise PreflightError(
            f"the Ray cluster at {head.url} asks for no token: it takes commands from every client",
            remedy="start it with RAY_AUTH_MODE=token on every node (CVE-2023-48022), or, if no one else "
            "can reach it, --set train.settings.auth=none",
        )
    return client


def _client_class(module: Any) -> Any:  # noqa: ANN401 - untyped
    """Return Ray's client with a time limit for each request; Ray's own has none."""
    del module
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415 - seconds, and an extra

    class RayClient(JobSubmissionClient):  # type: ignore[misc] # untyped
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:  # noqa: ANN401 - as above
            return super()._do_request(method, endpoint, **{"timeout": _TIMEOUT_S, **options})

    return RayClient


def _mode(client: Any) -> str:  # noqa: ANN401 - untyped
    answer = client._do_request("GET", "/api/authentication_mode")  # noqa: SLF001 - no public name
    return str(safe_object(answer.content).get("authentication_mode", "")) if answer.ok else "disabled"


def _ray() -> Any:  # noqa: ANN401 - untyped
    try:
        import ray  # noqa: PLC0415 - seconds, and an extra
        import ray.job_submission  # noqa: PLC0415 - as above; needs ray[default]
    except ImportError as error:
        raise MissingExtraError("ray", module=error.name or "ray") from error
    return ray


@contextmanager
def _without_overrides() -> Iterator[None]:
    with _CONSTRUCTION:
        kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)


def _explained(error: Exception, head: Head, what: str) -> CloudrecError:
    """Return cloudrec's error for an error of Ray's client."""
    # By the names of the classes, since importing them would need Ray and requests here.
    words = " ".join(str(error).split())
    name = type(error).__name__
    if name == "AuthenticationError":
        given = "refuses the token" if "Forbidden" in words or "failed" in words[:25] else "asks for a token"
        return PreflightError(
            f"the Ray cluster at {head.url} {given}",
            remedy="give its token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token, or "
            "--set train.settings.token_file=FILE",
        )
    if isinstance(error, ConnectionError | TimeoutError) or name in ("ConnectionError", "Timeout"):
        return UnreachableHeadError(
            f"no Ray dashboard answers at {head.url}",
            remedy="check that the head runs and that this machine can reach its dashboard's port",
        )
    if name in ("ConnectTimeout", "ReadTimeout", "ChunkedEncodingError"):
        return UnreachableHeadError(f"the Ray dashboard at {head.url} does not answer ({name})")
    if what and "status code 404" in words:
        return UnknownJobError(f"the Ray cluster at {head.url} has no job {what!r}")
    return CloudrecError(f"the Ray cluster at {head.url}: {name}: {words[:500]}")
