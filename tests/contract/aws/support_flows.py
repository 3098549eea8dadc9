"""What each identity of a cluster on AWS does, with its credentials, and what AWS recorded of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cloudrec.errors import CloudrecError
from cloudrec.keeper.guard import halting, moving, pricing, sizing
from cloudrec_contract.layout import run_uri, turns_uri
from cloudrec_contract.objectstore.base import StoreOptions, UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import ObjectStoreError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from tests.contract.aws.support_identities import ACCOUNT, OURS, REGION, AwsEstate, listed
from tests.contract.support_least import Found, Grant, reports

CLUSTER = f"cloudrec-{OURS}"
GPU_TYPE = "p4d.24xlarge"
_ONCE = Patience(attempts=1)
_PART = 5 * 2**20  # the smallest part of an upload that S3 accepts
said_by = partial(reports, (CloudrecError, ObjectStoreError, ClientError))


def guard(estate: AwsEstate, folder: Path) -> str:
    """What the keeper and the guard ask of AWS in their rounds, with the functions that they call."""
    keys = {**estate.aws.env, **estate.identities["guard"].keys}
    site = estate.ours
    sizer, mover = sizing(folder, keys)(site.cluster), moving(folder, keys)(site.cluster)
    pricer = pricing(folder, keys)(site.cluster)
    assert sizer is not None
    assert mover is not None
    assert pricer is not None
    end = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"
    later = site.cluster.model_copy(update={"expires": end})
    names = [name for name in _groups(estate) if name.startswith("gpu-")]
    storage = f"s3://{CLUSTER}-{ACCOUNT}-{REGION}"
    turns, run = (
        open_store(uri, StoreOptions(patience=_ONCE))
        for uri in (turns_uri(storage, "r"), run_uri(storage, "r"))
    )
    with credentials(keys):
        return said_by(
            lambda: turns.create("00000001.json", b"{}"),
            lambda: turns.children() and "",
            lambda: run.sizes("pods/") and "",
            lambda: turns.read("00000001.json") and "",
            lambda: sizer.resize(site.cluster, names[0], 1),
            lambda: _settle(estate),
            lambda: "; ".join(each.problem for each in sizer.pools(site.cluster) if each.problem),
            lambda: pricer.spot_now(site.cluster, [GPU_TYPE]) and "",
            lambda: mover.move_end(later, names),
            lambda: "; ".join(halting(folder, keys)(site.cluster).left),
        )


@contextmanager
def credentials(environment: Mapping[str, str]) -> Iterator[None]:
    """Clients of object stores that are made or called within use these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def end(estate: AwsEstate, folder: Path) -> str:
    """The schedule that ends the cluster, a minute from now by the stand-in's clock."""
    del folder
    scheduler, eks = estate.aws.client("scheduler"), estate.aws.client("eks")
    name = next(name for name in _groups(estate) if name.startswith("gpu-"))
    sizes = {"minSize": 0, "maxSize": 1, "desiredSize": 1}
    eks.update_nodegroup_config(clusterName=CLUSTER, nodegroupName=name, scalingConfig=sizes)
    _settle(estate)
    known = scheduler.get_schedule(GroupName=CLUSTER, Name=name)
    kept = {each: known[each] for each in ("Name", "GroupName", "FlexibleTimeWindow", "Target")}
    when = datetime.now(UTC) + timedelta(seconds=1)
    scheduler.update_schedule(**kept, ScheduleExpression=f"at({when:%Y-%m-%dT%H:%M:%S})")
    _settle(estate)
    left = _size(estate, name)
    return f"{name} has {left} nodes after the end" if left else ""


def pod(estate: AwsEstate, folder: Path, place: str = "runs/r") -> str:
    """What a run does in its bucket: it reads data, writes checkpoints, and removes old ones."""
    bucket, s3 = f"{CLUSTER}-{ACCOUNT}-{REGION}", estate.aws.client("s3")
    file = folder / "part"
    file.write_bytes(b"x" * (_PART + 1))
    with credentials({**estate.aws.env, **estate.identities["pod"].keys}), estate.unenforced():
        s3.put_object(Bucket=bucket, Key=f"{place}/data", Body=b"data")
        s3.put_object(Bucket=bucket, Key=f"{place}/old", Body=b"old")
        s3.create_multipart_upload(Bucket=bucket, Key=f"{place}/unfinished")
        estate.aws.control(enforce_iam=True)
        store = open_store(f"s3://{bucket}/{place}", StoreOptions(patience=_ONCE, part_bytes=_PART))
        upload = UploadFile(path=file, size=file.stat().st_size, crc32=crc32_of(file))

        def stream() -> None:
            with store.write("step-1/large") as target:
                target.write(b"x" * (2 * _PART + 1))

        return said_by(
            store.check,
            lambda: store.children() and "",
            lambda: store.read("data") and "",
            lambda: store.put("step-1/commit.json", b"{}"),
            stream,
            lambda: store.upload("step-1/whole", upload, lambda _: None),
            lambda: store.read("step-1/large", 0, 8) and "",
            lambda: store.remove(["old"]),
            store.tidy,
        )


def cni(estate: AwsEstate, folder: Path) -> str:
    """The network plugin on a new node; EKS calls a group whose nodes get no network unhealthy."""
    del folder
    return _new_group(estate)


def node(estate: AwsEstate, folder: Path) -> str:
    """A new node joins the cluster, and pulls an image ("Amazon ECR Docker pull", user guide of ECR)."""
    del folder
    ecr, name = estate.identities["node"].client("ecr"), f"cloudrec/{OURS}"
    return said_by(
        lambda: _new_group(estate),
        lambda: ecr.get_authorization_token() and "",
        lambda: ecr.batch_get_image(repositoryName=name, imageIds=[{"imageTag": "1"}]) and "",
    )


def _groups(estate: AwsEstate) -> list[str]:
    names: list[str] = estate.aws.client("eks").list_nodegroups(clusterName=CLUSTER)["nodegroups"]
    return names


def _size(estate: AwsEstate, name: str) -> int:
    group = estate.aws.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)["nodegroup"]
    return int(group["scalingConfig"]["desiredSize"])


def _settle(estate: AwsEstate) -> None:
    estate.aws.advance(1800)  # EKS updates one thing of a group at a time


def _new_group(estate: AwsEstate) -> str:
    """Create a group like that of the CPU nodes; return what EKS says of its health."""
    eks, name = estate.aws.client("eks"), f"probe-{len(_groups(estate))}"
    like = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName="cpu")["nodegroup"]
    template = {each: like["launchTemplate"][each] for each in ("id", "version")}
    given = {each: like[each] for each in ("subnets", "nodeRole", "capacityType", "amiType")}
    more = {"instanceTypes": like["instanceTypes"]} if like.get("instanceTypes") else {}
    eks.create_nodegroup(
        clusterName=CLUSTER,
        nodegroupName=name,
        scalingConfig={"minSize": 0, "maxSize": 1, "desiredSize": 1},
        launchTemplate=template,
        **given,
        **more,
    )
    estate.aws.advance(7200)
    found = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)["nodegroup"]
    if found["status"] == "ACTIVE":
        return ""
    return "; ".join([found["status"], *(each["message"] for each in found["health"]["issues"])])


FLOWS: dict[str, Callable[[AwsEstate, Path], str]] = {
    "guard": guard,
    "end": end,
    "pod": pod,
    "cni": cni,
    "node": node,
}


def run(estate: AwsEstate, name: str, folder: Path) -> Found:
    """Run an identity's flows with permissions checked; afterwards the account is as it was."""
    who = estate.identities[name].arn
    with estate.enforced():
        estate.aws.control(decisions={})
        said = FLOWS[name](estate, folder)
        noted = estate.aws.ask("GET", "")["decisions"].get(who, {"used": [], "refused": []})
    return Found(used=frozenset(noted["used"]), refused=frozenset(noted["refused"]), said=said)


def grants(estate: AwsEstate, name: str) -> list[Grant]:
    """Each action of each statement of a role's own policy."""
    return [
        Grant(source=statement["Sid"], action=action)
        for statement in _own(estate, name)["Statement"]
        for action in listed(statement["Action"])
    ]


@contextmanager
def lacking(estate: AwsEstate, name: str, grant: Grant) -> Iterator[None]:
    """Take an action out of one statement of a role's own policy."""
    whole = _own(estate, name)
    less = deepcopy(whole)
    for statement in less["Statement"]:
        if statement["Sid"] == grant.source:
            statement["Action"] = [each for each in listed(statement["Action"]) if each != grant.action]
    less["Statement"] = [each for each in less["Statement"] if each["Action"]]
    assert less != whole
    nothing = [{"Effect": "Deny", "Action": "*", "Resource": "*"}]
    _write(estate, name, {**less, "Statement": less["Statement"] or nothing})
    try:
        yield
    finally:
        _write(estate, name, whole)


@contextmanager
def detached(estate: AwsEstate, name: str, policy: str) -> Iterator[None]:
    """Detach one of AWS's policies from a role."""
    iam, given = estate.aws.client("iam"), {"RoleName": estate.role(name)}
    arn = f"arn:aws:iam::aws:policy/{policy}"
    iam.detach_role_policy(**given, PolicyArn=arn)
    try:
        yield
    finally:
        iam.attach_role_policy(**given, PolicyArn=arn)


def _own(estate: AwsEstate, name: str) -> dict[str, Any]:
    iam, role = estate.aws.client("iam"), estate.role(name)
    document: dict[str, Any] = iam.get_role_policy(RoleName=role, PolicyName="cloudrec")["PolicyDocument"]
    return document


def _write(estate: AwsEstate, name: str, document: dict[str, Any]) -> None:
    estate.aws.client("iam").put_role_policy(
        RoleName=estate.role(name), PolicyName="cloudrec", PolicyDocument=json.dumps(document)
    )
