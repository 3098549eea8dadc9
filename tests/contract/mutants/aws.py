"""AWS: the launch template and the node group of each machine type, changed and sent raw.

A template is stored without many checks, so a changed template counts as accepted only once a node group has
been made of it, and has its nodes.
"""

from __future__ import annotations

import base64
import json
import re
from http.client import HTTPConnection
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from cloudrec.providers.aws.offers import KNOWN
from tests.contract.aws.support import Site, fresh
from tests.contract.mutants import documented
from tests.contract.mutants.changes import mutants
from tests.contract.mutants.models import BotoModel
from tests.contract.mutants.sending import Answer, Result
from tests.contract.mutants.verdicts import judge, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.sandbox.aws.support import Aws

_TEMPLATE, _GROUP = "CreateLaunchTemplate", "CreateNodegroup"
_CODES = ("L-417A185B", "L-7212CCBC", "L-C4BD4855", "L-DB2E81BA", "L-3819A6DF", "L-1216C47A")
_REGIONS = ("us-east-1", "us-west-2", "us-east-2")
_SAVED = "mutants"
_EVERY = 25  # accepted mutants, after which the account is restored
_SETTLE_S = 60  # of the stand-in's clock, in which a group has its nodes or its issue
_MODELS = {
    _TEMPLATE: BotoModel("ec2", _TEMPLATE, is_text=True),
    _GROUP: BotoModel("eks", _GROUP, is_text=False),
}
_TABLES = {_TEMPLATE: "aws-template", _GROUP: "aws-nodegroup"}


def machines() -> list[str]:
    """Return the machine types with a profile."""
    return [name for name, row in KNOWN.items() if row.profile]


class AwsRequests:
    """The requests for one machine type, as the client sent them to the stand-in."""

    cloud = "aws"

    def __init__(self, aws: Aws, folder: Path) -> None:
        self._aws = aws
        self._folder = folder
        self._numbers = count()
        self._accepted = 0
        self._region, self._path = "", ""

    def results(self, machine: str, *, every: int = 1) -> Iterator[Result]:
        """Yield each mutant (or each n-th) of the machine's requests with its verdict and its answer."""
        template, group = self._captured(machine)
        asked = {_TEMPLATE: template, _GROUP: group}
        described = self._client("ec2", self._region).describe_instance_types(InstanceTypes=[machine])
        whole = documented.aws(described["InstanceTypes"][0]["NetworkInfo"])
        self._aws.ask("POST", "/save", {"name": _SAVED})
        assert self._template(template, group).outcome == "accepted", self._template(template, group)
        for request, document in asked.items():
            rules = table(_TABLES[request])
            others = {**rules.alternatives, **self._others(request)}
            found = mutants(document, alternatives=others, is_text=request == _TEMPLATE, keep=rules.keep)
            for mutant in islice(found, None, None, every):
                verdict, caught = judge(
                    mutant,
                    machine=machine,
                    rules=_TABLES[request],
                    model=_MODELS[request],
                    whole=whole[request],
                )
                answer = (
                    self._template(
                        mutant.document, group, name_is_changed=mutant.path[0] == "LaunchTemplateName"
                    )
                    if request == _TEMPLATE
                    else self._group(mutant.document, name_is_changed=mutant.path[0] == "nodegroupName")
                )
                yield Result(
                    cloud=self.cloud,
                    machine=machine,
                    request=request,
                    mutant=mutant,
                    verdict=verdict,
                    answer=answer,
                    caught=caught,
                )
        self._restore()

    def _captured(self, machine: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run `up` for a cluster with the machine; return its template and its group as they were sent."""
        fresh(self._aws)
        self._region = self._offering(machine)
        self._aws.control(quotas=self._quotas(), requests=True)
        folder = self._folder / f"{next(self._numbers)}"
        Site(self._aws, folder, instance_types=[machine], nodes=2, region=self._region).up()
        kept = self._aws.ask("GET", "/requests")
        self._aws.control(requests=False)
        bodies = [(each["action"], base64.b64decode(each["body"]).decode()) for each in kept]
        groups = [json.loads(body) for action, body in bodies if action == _GROUP]
        group = next(each for each in groups if each["nodegroupName"] != "cpu")
        template = next(
            nested(body)
            for action, body in bodies
            if action == _TEMPLATE and f"{machine}-{_zone(group)}" in body and _zone(group)
        )
        self._eks = self._client("eks", self._region)
        self._path = next(each["target"] for each in kept if each["action"] == _GROUP)
        return template, group

    def _offering(self, machine: str) -> str:
        """Return the first region that has the type; the stand-in's types are those of each region."""
        for region in _REGIONS:
            offered = self._client("ec2", region).describe_instance_type_offerings(
                Filters=[{"Name": "instance-type", "Values": [machine]}]
            )
            if offered["InstanceTypeOfferings"]:
                return region
        raise LookupError(f"no region of {', '.join(_REGIONS)} has {machine}")

    def _client(self, service: str, region: str) -> Any:
        env, made = self._aws.env, cast("Any", boto3.Session)
        return made(
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            region_name=region,
        ).client(service, endpoint_url=self._aws.endpoint)

    def _quotas(self) -> dict[str, int]:
        return {f"ec2/{code}": 10**7 for code in _CODES}

    def _others(self, request: str) -> Mapping[str, list[object]]:
        """Return other names and ids that exist in this account."""
        if request == _TEMPLATE:
            return {}
        public = [
            row["SubnetId"]
            for row in self._client("ec2", self._region).describe_subnets()["Subnets"]
            if row["DefaultForAz"]
        ]
        return {r"subnets\[\]": list(public[:1])}

    def _template(
        self, template: dict[str, Any], group: dict[str, Any], *, name_is_changed: bool = False
    ) -> Answer:
        name = f"mutant-{next(self._numbers)}"
        wanted = {**template}
        if "LaunchTemplateName" in wanted and not name_is_changed:
            wanted["LaunchTemplateName"] = name
        if wanted.get("ClientToken"):
            wanted["ClientToken"] = name
        status, body = self._post(
            "ec2", "/", flat(wanted), "application/x-www-form-urlencoded; charset=utf-8"
        )
        if status >= 300:
            return _refusal(status, body)
        found = re.search(r"<launchTemplateId>(lt-\w+)<", body)
        assert found, body
        return self._group({**group, "launchTemplate": {"id": found[1]}})

    def _group(self, group: dict[str, Any], *, name_is_changed: bool = False) -> Answer:
        wanted, name = {**group}, f"mutant-{next(self._numbers)}"
        if "nodegroupName" in wanted and not name_is_changed:
            wanted["nodegroupName"] = name
        if isinstance(wanted.get("clientRequestToken"), str):
            wanted["clientRequestToken"] = name
        status, body = self._post("eks", self._path, json.dumps(wanted), "application/json")
        if status >= 300:
            return _refusal(status, body)
        self._aws.control(advance_s=_SETTLE_S)
        made = json.loads(body)["nodegroup"]["nodegroupName"]
        row = self._eks.describe_nodegroup(clusterName=self._path.split("/")[2], nodegroupName=made)[
            "nodegroup"
        ]
        issues = row["health"]["issues"]
        self._accepted += 1
        if self._accepted % _EVERY == 0:
            self._restore()
        if row["status"] != "ACTIVE" or issues:
            return Answer(outcome="refused", words=f"{row['status']}: {issues}")
        return Answer(outcome="accepted")

    def _restore(self) -> None:
        self._aws.ask("POST", "/restore", {"name": _SAVED})

    def _post(self, service: str, path: str, body: str, kind: str) -> tuple[int, str]:
        """Send a body as it is, signed as boto3 signs it."""
        env = self._aws.env
        request = AWSRequest("POST", f"{self._aws.endpoint}{path}", data=body, headers={"Content-Type": kind})
        SigV4Auth(
            Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]), service, self._region
        ).add_auth(request)
        line = HTTPConnection(urlsplit(self._aws.endpoint).netloc, timeout=60)
        try:
            line.request("POST", path, body=body.encode(), headers=dict(request.headers))
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        finally:
            line.close()


def _zone(group: Mapping[str, Any]) -> str:
    found = re.search(r"-([a-z]+-[a-z]+-\d[a-z])-", str(group["tags"]["Name"]) + "-")
    return found[1] if found else ""


def _refusal(status: int, body: str) -> Answer:
    words = re.sub(r"\s+", " ", body)
    return Answer(outcome="refused" if 400 <= status < 500 else "defect", words=words)


def nested(form: str) -> dict[str, Any]:
    """Return a form of EC2's protocol as JSON: `A.B.1.C=x` is {"A": {"B": [{"C": "x"}]}}."""
    document: dict[str, Any] = {}
    for key, value in parse_qsl(form, keep_blank_values=True):
        *parents, last = key.split(".")
        here: dict[str, Any] = document
        for part in parents:
            here = here.setdefault(part, {})
        here[last] = value
    found: dict[str, Any] = _with_lists(document)
    return found


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _with_lists(each) for key, each in value.items()}


def flat(document: Any) -> str:
    """Return JSON as a form of EC2's protocol."""
    return urlencode(list(_pairs(document, ())))


def _pairs(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _pairs(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value, 1):
            yield from _pairs(each, (*path, str(number)))
    else:
        yield ".".join(path), str(value)
