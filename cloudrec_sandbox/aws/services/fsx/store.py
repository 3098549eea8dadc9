"""What exists of FSx in a region."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, inventory
from cloudrec_sandbox.aws.services.tagging import tagged_resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World


@dataclass
class Made:
    """A resource with the request that made it; `row` is what Describe shows."""

    token: str
    request: str
    row: dict[str, Any]


@dataclass
class Store:
    """File systems and data repository associations by id."""

    file_systems: dict[str, Made] = field(default_factory=dict)
    associations: dict[str, Made] = field(default_factory=dict)


def store(call: Call) -> Store:
    """Return the store of the called region."""
    return call.world.state(Store, call.region)


def request_of(call: Call) -> str:
    """Return the request without its token, to compare it."""
    parameters = {name: value for name, value in call.params.items() if name != "ClientRequestToken"}
    return json.dumps(parameters, sort_keys=True)


def made_before(call: Call, known: dict[str, Made]) -> dict[str, Any] | None:
    """Return what the call's token has made; IncompatibleParameterError if the parameters differ."""
    token = call.params.get("ClientRequestToken")
    for made in known.values():
        if token and made.token == token:
            if made.request != request_of(call):
                raise AwsError(
                    "IncompatibleParameterError",
                    "A resource with the same client request token but different parameters exists.",
                    fields={"Parameter": "ClientRequestToken", "Message": "ClientRequestToken"},
                )
            return made.row
    return None


def refuse(code: str, message: str, **fields: Any) -> AwsError:  # noqa: ANN401 - an error shape's members
    """Return a refusal in FSx's spelling."""
    return AwsError(code, message, fields={"Message": message, **fields})


def file_system(call: Call, name: str) -> Made:
    """Return one file system; FileSystemNotFound."""
    try:
        return store(call).file_systems[name]
    except KeyError:
        raise refuse("FileSystemNotFound", f"File system '{name}' does not exist.") from None


def page(call: Call, member: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a page of rows from where the call's token says."""
    start = int(call.params.get("NextToken", "0"))
    end = start + call.params.get("MaxResults", len(rows) or 1)
    return {member: rows[start:end], **({"NextToken": str(end)} if end < len(rows) else {})}


@inventory
def existing(world: World) -> Iterator[Entry]:
    """Yield everything; what is being deleted is pending."""
    for kept in world.states(Store).values():
        for kind, known in (
            ("file-system", kept.file_systems),
            ("association", kept.associations),
        ):
            for name, made in known.items():
                yield Entry("fsx", kind, name, made.row["Lifecycle"] == "DELETING")


@tagged_resources
def tagged(world: World, region: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield everything with its tags."""
    kept = world.state(Store, region)
    for made in (*kept.file_systems.values(), *kept.associations.values()):
        yield made.row["ResourceARN"], {tag["Key"]: tag.get("Value", "") for tag in made.row["Tags"]}
