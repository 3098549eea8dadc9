"""The workflow that ends a cluster whose end moves: each minute it reads the end in a label of the cluster.

A job of Cloud Scheduler starts it, and it runs as the account of the cluster's end. When the end has passed,
it sets the size of the GPU pools to zero, and deletes those of flex-start; what GKE refuses, the next minute
repeats. The guard moves the end by the label (`end_label`).

Without a valid label, and after the reads of three minutes have failed, the end counts that was written into
the workflow: a single failed read neither ends the nodes early nor keeps them. A ttl's end is written into it
as the limit of what a label can do.

A workflow is never changed: its name has a hash of its program, and another program is another workflow. The
permission to change workflows is for all of the project, also for those that run as accounts of others.

GKE shows a pool's initial size, which a resize changes ("Resizing your node pool manually may change this
value", Terraform's google_container_node_pool). So a pool without nodes is left alone, and `up` can change
the cluster meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from google.api_core import exceptions as api

from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.providers.base.layout import shortened
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import ids, labels, operations
from cloudrec.providers.gcp.nodes.end_jobs import DELETE, RESIZE, near
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.providers.gcp.api.client import Gcp

    Workflow = Mapping[str, Any]  # of JSON

SERVICE = "workflows"
_GKE = "https://container.googleapis.com/v1/"
_LONGEST, _HASH = 64, 8  # characters of a name
_PAGE = 500
_DEPLOYED_S, _POLL_S = 300.0, 1.0
_NOT_HERE = "is not found or access is unauthorized"
_AS_ITSELF = {"type": "OAuth2"}
_TIMEOUT_S = 30
# 10, 20, 40, 60 and 60 seconds: three minutes.
_RETRY = {
    "predicate": "${retry.always}",
    "max_retries": 5,
    "backoff": {"initial_delay": 10, "max_delay": 60, "multiplier": 2},
}
_LIMIT = re.compile(r"\$\{math\.min\(.*, (\d+)\)\}")
# A label has 20261124t190000z: it has neither capitals nor colons. An expression has at most 400 characters.
_MOMENT = (
    'time.parse(text.substring(stamp,0,4)+"-"+text.substring(stamp,4,6)+"-"+'
    'text.to_upper(text.substring(stamp,6,11))+":"+text.substring(stamp,11,13)+":"+'
    "text.to_upper(text.substring(stamp,13,len(stamp))))"
)


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a workflow does.

    Attributes:
        cluster: the path of the cluster.
        expires: the end without a label, in seconds since the epoch.
        limit: the latest end that a label can give, in seconds since the epoch; None for none.
        pools: pool -> RESIZE or DELETE.
    """

    cluster: str
    expires: int
    limit: int | None
    pools: Mapping[str, str]

    @classmethod
    def of(cls, source: str) -> Program | None:
        """Return the program of a source; None if cloudrec has not written it."""
        try:
            steps = {
                name: step for entry in safe_object(source)["main"]["steps"] for name, step in entry.items()
            }
            kept, unread = steps["init"]["assign"]
            deleted = steps["ways"]["assign"][0]["deleted"]
            names = [pool["name"] for pool in unread["cluster"]["body"]["nodePools"]]
            limit = _LIMIT.fullmatch(steps["label"]["try"]["steps"][0]["parse"]["assign"][1]["deadline"])
            found = cls(
                cluster=steps["read"]["try"]["args"]["url"].removeprefix(_GKE),
                expires=kept["deadline"],
                limit=int(limit[1]) if limit else None,
                pools={name: DELETE if name in deleted else RESIZE for name in names},
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None
        return found if found.source() == source else None

    def source(self) -> str:
        """Return the program in the language of Workflows, as JSON. Before the end it takes six steps."""
        pools = [{"name": name, "initialNodeCount": 1} for name in sorted(self.pools)]
        deleted = sorted(name for name, way in self.pools.items() if way == DELETE)
        resized = sorted(name for name, way in self.pools.items() if way == RESIZE)
        moment = _MOMENT if self.limit is None else f"math.min({_MOMENT}, {self.limit})"
        label = f'cluster.body.resourceLabels["{TAG_EXPIRES}"]'
        read = {"url": f"{_GKE}{self.cluster}", "auth": _AS_ITSELF, "timeout": _TIMEOUT_S}
        parse = {"assign": [{"stamp": f"${{{label}}}"}, {"deadline": f"${{{moment}}}"}]}
        listed = '${default(map.get(cluster.body, "nodePools"), nothing)}'
        steps: list[dict[str, Any]] = [
            {"init": {"assign": [{"deadline": self.expires}, {"cluster": {"body": {"nodePools": pools}}}]}},
            {
                "read": {
                    "try": {"call": "http.get", "args": read, "result": "cluster"},
                    "retry": _RETRY,
                    "except": _ignored("unread"),
                }
            },
            {"label": {"try": {"steps": [{"parse": parse}]}, "except": _ignored("unlabelled")}},
            {"wait": {"switch": [{"condition": "${sys.now() < deadline}", "return": "before the end"}]}},
            {"ways": {"assign": [{"deleted": deleted}, {"resized": resized}, {"nothing": []}]}},
            {
                "pools": {
                    "for": {
                        "value": "pool",
                        "in": listed,
                        "steps": [{"way": {"switch": _ways(self.cluster)}}],
                    }
                }
            },
        ]
        return json.dumps({"main": {"steps": steps}}, separators=(",", ":"))


def _ways(cluster: str) -> list[dict[str, Any]]:
    """Return how a pool ends; a pool that `up` has not made is in neither list."""
    url = f'"{_GKE}{cluster}/nodePools/" + pool.name'
    resize = {"url": f'${{{url} + ":setSize"}}', "auth": _AS_ITSELF, "body": {"nodeCount": 0}}
    delete = {"url": f"${{{url}}}", "auth": _AS_ITSELF}
    has_nodes = 'default(map.get(pool, "initialNodeCount"), 0) > 0'
    return [
        {
            "condition": f"${{pool.name in resized and {has_nodes}}}",
            "steps": [
                {"resize": {"try": {"call": "http.post", "args": resize}, "except": _ignored("notResized")}}
            ],
        },
        {
            "condition": "${pool.name in deleted}",
            "steps": [
                {"delete": {"try": {"call": "http.delete", "args": delete}, "except": _ignored("notDeleted")}}
            ],
        },
    ]


def _ignored(name: str) -> dict[str, Any]:
    """Return an except block that continues: the next minute repeats what failed."""
    return {"as": "e", "steps": [{name: {"assign": [{"failure": "${e}"}]}}]}


def epoch(expires: str) -> int:
    """Return the first whole second at or after an end, since the epoch."""
    return math.ceil(datetime.fromisoformat(expires).timestamp())


def rounded(expires: str) -> str:
    """Return an end in UTC, in whole seconds."""
    return written(epoch(expires))


def written(seconds: int) -> str:
    """Return an end as ISO 8601."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def name_of(title: str, region: str, source: str) -> str:
    """Return the name of the workflow with a source."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:_HASH]
    return f"{shortened(f'cloudrec-{title}-{region}', _LONGEST - _HASH - 1)}-{digest}"


def email(workflow: Workflow) -> str:
    """Return the address of a workflow's account."""
    return ids.name(str(workflow.get("serviceAccount", "")))


class Workflows:
    """Workflows' API, by REST calls."""

    def __init__(self, gcp: Gcp) -> None:
        self.gcp = gcp

    def folder(self, offered: Callable[[], Sequence[str]]) -> str:
        """Return the path of the workflows: in the region, or in the first location near it that has the API.

        Args:
            offered: returns the locations of Cloud Scheduler.

        Raises:
            google.api_core.exceptions.Forbidden: the API is disabled, or the caller may not list workflows.
        """
        key = "workflow location"
        if key not in self.gcp.cache:
            region = self.gcp.region
            others = (place for place in near(region, offered()) if self._is_in(place))
            self.gcp.cache[key] = region if self._is_in(region) else next(others, region)
        return self._in(self.gcp.cache[key])

    def listed(self, folder: str) -> list[Workflow]:
        """Return the workflows in a folder, with their sources."""
        rows, token = list[Any](), ""
        while True:
            query = f"?pageSize={_PAGE}{f'&pageToken={token}' if token else ''}"
            answer = self.gcp.send(SERVICE, "GET", f"/v1/{folder}{query}")
            rows += answer.get("workflows", ())
            token = answer.get("nextPageToken", "")
            if not token:
                return rows

    def deploy(self, path: str, body: Workflow) -> None:
        """Deploy a workflow and wait until it is there.

        One of its name is the same, though a list may not show it yet: the name has a hash of its program.
        """
        folder, _, name = path.rpartition("/")
        begun = self.gcp.send(SERVICE, "POST", f"/v1/{folder}?workflowId={name}", body)
        operation = operations.named(SERVICE, begun["name"])
        deadline = self.gcp.clock.now() + self.gcp.clock.limit(_DEPLOYED_S)
        while not (progress := operations.look(self.gcp, operation)).is_done:
            if self.gcp.clock.now() > deadline:
                said = f"the workflow {name} was not deployed within {_DEPLOYED_S:.0f} seconds"
                raise OperationFailedError("DEADLINE_EXCEEDED", said)
            self.gcp.clock.sleep(_POLL_S)
        if progress.error is not None and progress.error.code != "ALREADY_EXISTS":
            raise progress.error

    def delete(self, path: str) -> None:
        """Begin to delete a workflow."""
        try:
            self.gcp.send(SERVICE, "DELETE", f"/v1/{path}")
        except api.NotFound:  # a list may still show what was deleted
            return

    def _in(self, place: str) -> str:
        return f"projects/{self.gcp.project}/locations/{place}/workflows"

    def _is_in(self, place: str) -> bool:
        try:
            self.gcp.repeat(lambda: self.gcp.send(SERVICE, "GET", f"/v1/{self._in(place)}?pageSize=1"))
        except (api.BadRequest, api.NotFound):
            return False
        except api.Forbidden as error:
            if _NOT_HERE in errors.message(error):
                return False
            raise
        return True


def body_of(tags: Mapping[str, str], source: str, account: str) -> Workflow:
    """Return the body of a new workflow.

    Args:
        tags: for its labels.
        source: of its program.
        account: the e-mail address of the account whose permissions it has.
    """
    return {
        "labels": labels.encode(tags),
        "serviceAccount": account,
        "sourceContents": source,
    }
