"""IAM's service accounts. A new account cannot be seen at once."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from google.cloud.iam_admin_v1.types.iam import CreateServiceAccountRequest

from cloudrec_sandbox.gcp.api import projects, tokens
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, paging, store
from cloudrec_sandbox.gcp.services.iam import policies

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"iam-visibility": 10})  # until a new account can be seen

_SHORTEST, _LONGEST = 6, 30
_MOST_DISPLAY, _MOST_DESCRIPTION = 100, 256  # bytes
_MOST = 100  # accounts in a project
_FRONT = "/v1/projects/{project}/serviceAccounts"
# Google's own accounts in every project: agents of services, and defaults.
_AGENTS = (
    "service-{number}@container-engine-robot.iam.gserviceaccount.com",
    "service-{number}@compute-system.iam.gserviceaccount.com",
    "service-{number}@gcp-sa-artifactregistry.iam.gserviceaccount.com",
    "service-{number}@gcp-sa-lustre.iam.gserviceaccount.com",
    "service-{number}@service-networking.iam.gserviceaccount.com",
    "service-{number}@gs-project-accounts.iam.gserviceaccount.com",
    "{number}@cloudservices.gserviceaccount.com",
    "{number}-compute@developer.gserviceaccount.com",
)


def usable(world: World, email: str) -> bool:
    """Return whether there is such an account, and all services see it by now."""
    home = projects.home(world)
    if email == tokens.CALLER or email in (agent.format(number=home.number) for agent in _AGENTS):
        return True
    found = _find(world, email)
    return found is not None and _seen(world, found)


def _find(world: World, email: str) -> Resource | None:
    project = email.partition("@")[2].partition(".")[0]
    return store.find(world, "iam", f"projects/{project}/serviceAccounts/{email}")


def _seen(world: World, account: Resource) -> bool:
    return bool(account.hidden["from"] <= world.now())


def _need(call: Call) -> Resource:
    email = call.params["email"]
    found = _find(call.world, email)
    if (
        found is None
        or not _seen(call.world, found)
        or call.project not in ("-", found.document["projectId"])
    ):
        raise GcpError(
            "NOT_FOUND", f"Service account projects/{call.project}/serviceAccounts/{email} does not exist."
        )
    return found


@rest(
    "iam",
    "projects.serviceAccounts.create",
    "POST",
    _FRONT,
    body=CreateServiceAccountRequest,
    permission="iam.serviceAccounts.create",
)
def create(call: Call) -> dict[str, Any]:
    """Create an account; it can be seen some seconds later."""
    name, wishes = call.body.get("accountId", ""), call.body.get("serviceAccount", {})
    if not checks.is_name(name, _LONGEST) or len(name) < _SHORTEST:
        raise GcpError(
            "INVALID_ARGUMENT",
            f'The account ID "{name}" does not have a length between {_SHORTEST} and {_LONGEST}, or is not'
            " of lowercase letters, digits and dashes, beginning with a letter.",
        )
    for field, most in (("displayName", _MOST_DISPLAY), ("description", _MOST_DESCRIPTION)):
        if len(wishes.get(field, "").encode()) > most:
            raise GcpError("INVALID_ARGUMENT", f"The {field} must be at most {most} bytes in UTF-8.")
    folder = f"projects/{call.project}/serviceAccounts"
    email = f"{name}@{call.project}.iam.gserviceaccount.com"
    if store.find(call.world, "iam", f"{folder}/{email}"):
        raise GcpError(
            "ALREADY_EXISTS", f"Service account {name} already exists within project projects/{call.project}."
        )
    if len(store.within(call.world, "iam", f"{folder}/")) >= _MOST:
        raise GcpError(
            "RESOURCE_EXHAUSTED", "Maximum number of service accounts on project reached.", reason=""
        )
    unique = zlib.crc32(f"{email}{call.world.now()}".encode())
    document = {
        "name": f"{folder}/{email}",
        "projectId": call.project,
        "uniqueId": f"1{unique:020d}",
        "email": email,
        "oauth2ClientId": f"1{unique:020d}",
        "etag": "MDEwMjE5MjA=",
        **{field: wishes[field] for field in ("displayName", "description") if wishes.get(field)},
    }
    resource = store.add(call.world, "iam", "serviceAccounts", f"{folder}/{email}", document)
    resource.hidden["from"] = call.world.now() + call.world.duration("iam-visibility")
    return dict(document)


@rest(
    "iam",
    "projects.serviceAccounts.get",
    "GET",
    _FRONT + "/{email}",
    permission="iam.serviceAccounts.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one account, if it can be seen."""
    return dict(_need(call).document)


@rest(
    "iam",
    "projects.serviceAccounts.list",
    "GET",
    _FRONT,
    query=("pageSize", "pageToken"),
    permission="iam.serviceAccounts.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the accounts that can be seen."""
    known = store.listed(call.world, "iam", f"projects/{call.project}/serviceAccounts/", "serviceAccounts")
    found = [dict(each.document) for each in known if _seen(call.world, each)]
    items, token = paging.page(found, call)
    return {"accounts": items, **({"nextPageToken": token} if token else {})}


@rest(
    "iam",
    "projects.serviceAccounts.delete",
    "DELETE",
    _FRONT + "/{email}",
    permission="iam.serviceAccounts.delete",
)
def delete(call: Call) -> dict[str, Any]:
    """Delete an account; policies keep it as a deleted member."""
    resource = _need(call)
    store.remove(call.world, "iam", resource.path)
    policies.bury(call.world, resource.document["email"], resource.document["uniqueId"])
    policies.forget(call.world, resource.path)
    return {}


def _holder(call: Call) -> str:
    return _need(call).path


policies.serve(
    "iam",
    "projects.serviceAccounts",
    "/v1/projects/{project}/serviceAccounts/{email}",
    holder=_holder,
    permission="iam.serviceAccounts",
)
