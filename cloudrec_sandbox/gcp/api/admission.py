"""Whether a call is admitted, before its handler: the API, the project, and the caller's permission."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api import access, projects
from cloudrec_sandbox.gcp.api.apis import APIS

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_COMPUTE = re.compile(r"/compute/v1/(projects/[^?]+)")


def admit(call: Call) -> None:
    """Refuse what the project cannot do, or the caller may not."""
    if call.service not in APIS:
        return  # a service that every project has: none enables it
    shared = APIS[call.service].shared or not call.project
    project = projects.check(call.world, call.service, projects.HOME if shared else call.project)
    permission = call.target.iam_action
    resource = next(iter(call.params.values()), f"projects/{project.id}")
    if call.service == "compute" and (path := _COMPUTE.search(call.raw.path)):
        resource = path[1]  # the full name, as conditions see it
    if call.service == "storage" and "object" in call.params:
        resource = f"{resource}/{call.params['object']}"  # of a bucket
    if not access.permitted(call, permission, call.project or project.id, resource):
        raise access.denied(call, permission, resource)
