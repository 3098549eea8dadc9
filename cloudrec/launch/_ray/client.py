"""The connection to a Ray cluster's head: Ray's own client for jobs, and its errors in a person's words."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from cloudrec.launch._ray.settings import Head

    T = TypeVar("T")

_TIMEOUT_S = 20.0
_NO_AGENT = "No available agent to submit job"  # of a head that has just begun
_AGENT_S = 60.0
_PAUSE_S = 0.5
_TALKATIVE = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")  # of uploads
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")  # Ray's client prefers them to what it is given
_CONSTRUCTION = threading.Lock()  # they are this process's


class UnreachableHeadError(PreflightError):
    """Nobody answers at a head's address."""


class GoneHeadError(UnreachableHeadError):
    """A head that was started for a run has ended: nobody will ever answer."""


class UnknownJobError(CloudrecError):
    """The cluster has no job of this id."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node of a Ray cluster."""

    address: str
    cpus: float
    gpus: float


class Cluster:
    """A Ray cluster, by its head's dashboard.

    Args:
        head: where it is.

    Raises:
        MissingExtraError: Ray is not installed here.
        PreflightError: there is no token, a wrong one, or the cluster asks for none.
        UnreachableHeadError: nobody answers.
    """

    def __init__(self, head: Head) -> None:
        self.head = head
        self._client = self._told(lambda: _connect(head))

    def submit(self, **job: Any) -> str:  # noqa: ANN401 - Ray's own keywords
        """Submit a job, as JobSubmissionClient.submit_job takes it; one of that id is gone on with."""
        give_up = time.monotonic() + _AGENT_S
        while True:
            try:
                return str(self._told(lambda: self._client.submit_job(**job)))
            except CloudrecError as error:
                if self._knows(str(job["submission_id"])):
                    return str(job["submission_id"])  # its answer was lost, or this process's life
                if _NO_AGENT not in error.message or time.monotonic() > give_up:
                    raise
                time.sleep(_PAUSE_S)

    def job(self, submission_id: str) -> Any:  # noqa: ANN401 - Ray's JobDetails
        """Return what Ray tells of a job; UnknownJobError when there is none."""
        return self._told(lambda: self._client.get_job_info(submission_id), what=submission_id)

    def job_log(self, submission_id: str) -> str:
        """Return what a job's driver has printed."""
        return str(self._told(lambda: self._client.get_job_logs(submission_id), what=submission_id))

    def stop(self, submission_id: str) -> None:
        """Have a job end, which takes its time."""
        self._told(lambda: self._client.stop_job(submission_id), what=submission_id)

    def versions(self) -> tuple[str, str]:
        """Return the cluster's versions of Ray and of Python; "" for what it does not tell."""
        told = self._get("/api/v0/cluster_metadata")
        return str(told.get("rayVersion") or self._client.get_version()), str(told.get("pythonVersion") or "")

    def machines(self) -> Sequence[Machine]:
        """Return the nodes that are alive."""
        listed = (self._get("/api/v0/nodes?detail=1").get("result") or {}).get("result") or []
        alive = [node for node in listed if node.get("state") == "ALIVE"]
        return [
            Machine(
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
        answer = self._told(lambda: self._client._do_request("GET", path))  # noqa: SLF001 - no public name
        data: Mapping[str, Any] = answer.json().get("data") or {} if answer.ok else {}
        return data

    def _told(self, action: Callable[[], T], *, what: str = "") -> T:
        """Act, and turn what Ray's client raises into our errors."""
        try:
            return action()
        except CloudrecError:
            raise
        except Exception as error:
            raise _explained(error, self.head, what) from error


def ray_version() -> str:
    """Return this machine's version of Ray; MissingExtraError without it."""
    return str(_ray().__version__)


def token_of(head: Head) -> str:
    """Return the token for a head: its file's, or the one that Ray itself would find; "" without one.

    Raises:
        PreflightError: a file that is named cannot be read.
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
            f"the Ray cluster at {head.url} takes commands from whoever reaches it: it asks for no token",
            remedy="start it with RAY_AUTH_MODE=token on every node (CVE-2023-48022), or, where nobody else "
            "reaches it, --set train.settings.auth=none",
        )
    return client


def _client_class(module: Any) -> Any:  # noqa: ANN401 - untyped
    """Return Ray's client, which by itself would wait for an answer for ever."""
    del module
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415 - seconds, and an extra

    class Client(JobSubmissionClient):  # type: ignore[misc] # untyped
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:  # noqa: ANN401 - as above
            return super()._do_request(method, endpoint, **{"timeout": _TIMEOUT_S, **options})

    return Client


def _mode(client: Any) -> str:  # noqa: ANN401 - untyped
    answer = client._do_request("GET", "/api/authentication_mode")  # noqa: SLF001 - no public name
    return str(answer.json().get("authentication_mode", "")) if answer.ok else "disabled"


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
    """Say in our words what went wrong."""
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
            remedy="see whether the head is up and its dashboard's port can be reached from here",
        )
    if name in ("ConnectTimeout", "ReadTimeout", "ChunkedEncodingError"):
        return UnreachableHeadError(f"the Ray dashboard at {head.url} does not answer ({name})")
    if what and "status code 404" in words:
        return UnknownJobError(f"the Ray cluster at {head.url} has no job {what!r}")
    return CloudrecError(f"the Ray cluster at {head.url}: {name}: {words[:500]}")
