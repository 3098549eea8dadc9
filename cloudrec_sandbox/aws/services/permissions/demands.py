"""Which permissions a call needs: for its operation, for its parameters, and on which resources.

The map follows AWS's Service Authorization Reference and the "required permissions" of each API's page,
not the names of the operations. Each resource of a call is a demand by itself, with the condition keys that
the reference lists for it: a new resource has the request's tags, an existing one its own tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.aws.services.ec2.network.requests import MADE
from cloudrec_sandbox.aws.services.permissions import resources
from cloudrec_sandbox.aws.services.permissions.policies import Facts, Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cloudrec_sandbox.aws.api.call import Call

_OPEN = ("sts:GetCallerIdentity",)  # needs no permission
_READS = ("Describe", "Get", "List")
# Which parameter passes a role to which service.
_PASSES = {
    ("eks", "CreateCluster"): ("roleArn", "eks.amazonaws.com"),
    ("eks", "CreateNodegroup"): ("nodeRole", "ec2.amazonaws.com"),
    ("eks", "CreateAddon"): ("serviceAccountRoleArn", "eks.amazonaws.com"),
    ("eks", "CreatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("eks", "UpdatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("iam", "AddRoleToInstanceProfile"): ("RoleName", "ec2.amazonaws.com"),
    ("cloudformation", "CreateStack"): ("RoleARN", "cloudformation.amazonaws.com"),
    ("codebuild", "CreateProject"): ("serviceRole", "codebuild.amazonaws.com"),
    ("glue", "CreateJob"): ("Role", "glue.amazonaws.com"),
    ("lambda", "CreateFunction"): ("Role", "lambda.amazonaws.com"),
    ("sagemaker", "CreateNotebookInstance"): ("RoleArn", "sagemaker.amazonaws.com"),
}
# Which service's first use makes a service-linked role, in the caller's name (the services' user guides).
_LINKED = {
    ("eks", "CreateCluster"): ("eks.amazonaws.com", "AWSServiceRoleForAmazonEKS"),
    ("eks", "CreateNodegroup"): ("eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup"),
    ("fsx", "CreateFileSystem"): ("fsx.amazonaws.com", "AWSServiceRoleForAmazonFSx"),
}
# The permissions that have the condition key s3:prefix; that for unfinished uploads has not.
_LISTS = ("s3:ListBucket", "s3:ListBucketVersions")
# What S3 does with the key of a bucket's objects.
_KEY_USES = {
    "CreateMultipartUpload": "GenerateDataKey",
    "GetObject": "Decrypt",
    "PutObject": "GenerateDataKey",
}
# Operations whose other parameters name resources that need no permission: a route's target.
_ONLY = {
    "CreateRoute": ("RouteTableId",),
    "ReplaceRoute": ("RouteTableId",),
    "DeleteRoute": ("RouteTableId",),
}
# What RunInstances creates or uses; the reference lists it once for each of them.
_LAUNCHED = ("instance", "network-interface", "subnet", "volume")


def demands(call: Call) -> Iterator[Wish]:
    """Yield everything that the call needs to be allowed."""
    if call.target.iam_action in _OPEN:
        return
    for wish in _SERVICES.get(call.service, _other)(call):
        common = {"aws:requestedregion": [call.region], "aws:securetransport": ["true"]}
        yield Wish(action=wish.action, resource=wish.resource, facts={**common, **wish.facts})
    passes = _PASSES.get((call.service, call.action))
    if passes and call.params.get(passes[0]):
        role = resources.role_arn(call, str(call.params[passes[0]]))
        yield Wish(action="iam:PassRole", resource=role, facts={"iam:passedtoservice": [passes[1]]})
    service, name = _LINKED.get((call.service, call.action), ("", ""))
    if service and not resources.has_role(call, name):
        yield Wish(
            action="iam:CreateServiceLinkedRole",
            resource=f"arn:aws:iam::{call.account}:role/aws-service-role/{service}/{name}",
            facts={"iam:awsservicename": [service]},
        )


def _other(call: Call) -> Iterator[Wish]:
    """Yield the operation itself, for a service without resources that matter here."""
    yield Wish(action=call.target.iam_action, facts=_asked(call))


def _asked(call: Call) -> Facts:
    """Return the tags of the request, as condition keys."""
    tags: dict[str, str] = {}
    for specification in call.params.get("TagSpecifications", []):
        tags |= {tag["Key"]: tag["Value"] for tag in specification.get("Tags", [])}
    configuration = call.params.get("CreateBucketConfiguration") or {}
    given = call.params.get("tags") or call.params.get("Tags") or configuration.get("Tags") or []
    if isinstance(given, dict):
        tags |= {str(key): str(value) for key, value in given.items()}
    else:
        pairs = [(tag.get("Key", tag.get("TagKey")), tag.get("Value", tag.get("TagValue"))) for tag in given]
        tags |= {str(key): str(value) for key, value in pairs if value is not None}
    facts = {f"aws:requesttag/{key.lower()}": [value] for key, value in tags.items()}
    return facts | ({"aws:tagkeys": list(tags)} if tags else {})


def _ec2(call: Call) -> Iterator[Wish]:
    action, asked = call.target.iam_action, _asked(call)
    if call.action.startswith(_READS):
        yield Wish(action=action, resource="*")
        return
    if made := MADE.get(call.action):
        resource = resources.ec2_arn(call, made, "*")
        yield Wish(action=action, resource=resource, facts=asked)
        # With tags, EC2 also checks CreateTags under the condition key ec2:CreateAction.
        if call.params.get("TagSpecifications"):
            yield Wish(
                action="ec2:CreateTags",
                resource=resource,
                facts={**asked, "ec2:createaction": [call.action]},
            )
    if call.action == "RunInstances":
        for kind in _LAUNCHED:
            yield Wish(action=action, resource=resources.ec2_arn(call, kind, "*"), facts=asked)
    brings = asked if call.action == "CreateTags" else {}
    named = list(resources.ec2_named(call, _ONLY.get(call.action)))
    for each in named:
        yield Wish(action=action, resource=each.arn, facts={**brings, **each.facts})
    if not made and not named:  # resources of a type that is not known here
        yield Wish(action=action, facts=asked)
    profile = call.params.get("IamInstanceProfile") or {}
    if role := resources.role_in(call, str(profile.get("Name") or profile.get("Arn") or "")):
        facts = {"iam:passedtoservice": ["ec2.amazonaws.com"]}
        yield Wish(action="iam:PassRole", resource=role, facts=facts)
    # Private DNS makes a hosted zone and associates the VPC with it, in the caller's name.
    if call.action == "CreateVpcEndpoint" and call.params.get("PrivateDnsEnabled"):
        yield Wish(action="route53:AssociateVPCWithHostedZone")


def _iam(call: Call) -> Iterator[Wish]:
    wish, action = call.params, call.target.iam_action
    facts = _asked(call)
    if wish.get("PolicyArn"):
        facts["iam:policyarn"] = [wish["PolicyArn"]]
    if call.action in ("AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile"):
        yield Wish(action=action, resource=resources.profile_arn(call, wish["InstanceProfileName"]))
        return
    if not wish.get("RoleName"):
        yield Wish(action=action, resource=resources.iam_arn(call), facts=facts)
        return
    # Of a request that sets the boundary, the key is the one that it sets; else the one that the role has.
    boundary = wish.get("PermissionsBoundary") or resources.boundary_of(call, wish["RoleName"])
    facts |= {"iam:permissionsboundary": [boundary]} if boundary else {}
    role = resources.role_arn(call, wish["RoleName"])
    yield Wish(action=action, resource=role, facts={**resources.role_facts(call, wish["RoleName"]), **facts})
    # Tags of a new role need a permission apart from CreateRole.
    if call.action == "CreateRole" and wish.get("Tags"):
        yield Wish(action="iam:TagRole", resource=role, facts=facts)


def _sts(call: Call) -> Iterator[Wish]:
    yield Wish(action=call.target.iam_action, resource=str(call.params.get("RoleArn", "")))


def _kms(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    if call.action == "CreateKey":
        yield Wish(action=action, resource="*", facts=asked)
        if wish.get("Tags"):
            yield Wish(action="kms:TagResource", resource=resources.key_arn(call, "*"), facts=asked)
        return
    if call.action.startswith("List") and call.action != "ListResourceTags":
        yield Wish(action=action, resource="*")
        return
    # Decrypt needs no KeyId: the ciphertext has it (API reference of KMS, "Decrypt").
    names = [wish.get("TargetKeyId") or wish.get("KeyId") or resources.key_of(wish.get("CiphertextBlob"))]
    if alias := wish.get("AliasName"):
        yield Wish(action=action, resource=resources.key_arn(call, alias, kind=""))
        names += [alias] if call.action in ("DeleteAlias", "UpdateAlias") else []
    for name in filter(None, names):
        named = resources.key(call, name)
        yield Wish(action=action, resource=named.arn, facts={**asked, **named.facts})


def _through(call: Call, key: str | None, *actions: str) -> Iterator[Wish]:
    """Yield what a service does with a key in the caller's name."""
    via = {"kms:viaservice": [f"{call.service}.{call.region}.amazonaws.com"]}
    for action in actions if key else ():
        named = resources.key(call, str(key))
        yield Wish(action=f"kms:{action}", resource=named.arn, facts={**via, **named.facts})


def _fsx(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    if call.action.startswith(_READS):
        yield Wish(action=action, resource="*")
        return
    made = {"CreateFileSystem": "file-system", "CreateDataRepositoryAssociation": "association"}.get(
        call.action
    )
    if made:
        resource = resources.arn(call, "fsx", f"{made}/*")
        yield Wish(action=action, resource=resource, facts=asked)
        if wish.get("Tags"):
            yield Wish(action="fsx:TagResource", resource=resource, facts=asked)
    if call.action == "CreateFileSystem":
        # AWS's Service Authorization Reference: FSx reads the VPC's groups in the caller's name.
        yield Wish(action="ec2:GetSecurityGroupsForVpc", resource="*")
        yield from _through(call, wish.get("KmsKeyId"), "DescribeKey", "CreateGrant")
    if call.action == "DeleteFileSystem" and not wish.get("LustreConfiguration", {}).get(
        "SkipFinalBackup", True
    ):
        yield Wish(action="fsx:CreateBackup")
    for named in resources.of_fsx(call):
        yield Wish(action=action, resource=named.arn, facts={**asked, **named.facts})


def _ecr(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    if call.action == "GetAuthorizationToken":
        yield Wish(action=action, resource="*")
        return
    names = wish.get("repositoryNames") or [wish.get("repositoryName", "*")]
    given = wish.get("resourceArn")
    for resource in (
        [given] if given else [resources.arn(call, "ecr", f"repository/{name}") for name in names]
    ):
        yield Wish(action=action, resource=resource, facts=asked)
        if call.action == "CreateRepository" and wish.get("tags"):
            yield Wish(action="ecr:TagResource", resource=resource, facts=asked)


def _logs(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    if call.action.startswith("Describe"):
        yield Wish(action=action, resource="*")
        return
    name = wish.get("logGroupName", "")
    resource = wish.get("resourceArn") or resources.arn(call, "logs", f"log-group:{name}")
    yield Wish(action=action, resource=resource, facts=asked)
    if call.action == "CreateLogGroup":
        more = [("tags", "TagResource"), ("kmsKeyId", "AssociateKmsKey")]
        for other in (other for parameter, other in more if wish.get(parameter)):
            yield Wish(action=f"logs:{other}", resource=resource, facts=asked)


def _eks(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    resource = wish.get("resourceArn") or resources.eks_arn(call)
    yield Wish(action=action, resource=resource, facts=asked)
    if call.action.startswith("Create") and wish.get("tags"):
        yield Wish(action="eks:TagResource", resource=resource, facts=asked)
    for row in wish.get("encryptionConfig") or ():
        yield from _through(call, row["provider"]["keyArn"], "DescribeKey", "CreateGrant")
    if template := (wish.get("launchTemplate") or {}).get("id"):
        yield from _launches(call, template)


def _launches(call: Call, template: str) -> Iterator[Wish]:
    """Yield the check that EKS makes in the caller's name: may instances be launched from the template?

    "EKS validates ec2:RunInstances and ec2:CreateTags" (user guide, "Customize managed nodes with launch
    templates").
    """
    facts = {"ec2:launchtemplate": [resources.ec2_arn(call, "launch-template", template)]}
    of_template = resources.ec2_resource(call, template)
    yield Wish(action="ec2:RunInstances", resource=of_template.arn, facts={**facts, **of_template.facts})
    for kind in _LAUNCHED:
        yield Wish(action="ec2:RunInstances", resource=resources.ec2_arn(call, kind, "*"), facts=facts)
    yield Wish(
        action="ec2:CreateTags",
        resource=resources.ec2_arn(call, "instance", "*"),
        facts={"ec2:createaction": ["RunInstances"]},
    )


def _s3(call: Call) -> Iterator[Wish]:
    wish, action = call.params, call.target.iam_action
    bucket = f"arn:aws:s3:::{wish['Bucket']}" if wish.get("Bucket") else "*"
    if call.action == "DeleteObjects":
        for row in wish["Delete"]["Objects"]:
            what = "DeleteObjectVersion" if row.get("VersionId") else "DeleteObject"
            yield Wish(action=f"s3:{what}", resource=f"{bucket}/{row['Key']}")
        return
    # The permission for a version of an object is another one than for the object.
    if wish.get("VersionId"):
        action = {
            "s3:GetObject": "s3:GetObjectVersion",
            "s3:DeleteObject": "s3:DeleteObjectVersion",
        }.get(action, action)
    facts = _asked(call)
    if action in _LISTS and wish.get("Prefix") is not None:
        facts["s3:prefix"] = [wish["Prefix"]]
    yield Wish(action=action, resource=f"{bucket}/{wish['Key']}" if wish.get("Key") else bucket, facts=facts)
    # "Permissions" on the pages of both: S3 uses the key of a bucket with SSE-KMS in the caller's name.
    if used := _KEY_USES.get(call.action):
        yield from _through(call, resources.key_of_bucket(call, wish["Bucket"]), used)
    if call.action == "CreateBucket":  # "Permissions" on its page in S3's API reference
        more = {
            "PutBucketOwnershipControls": wish.get("ObjectOwnership"),
            "TagResource": (wish.get("CreateBucketConfiguration") or {}).get("Tags"),
            "PutBucketAcl": wish.get("ACL") or any(name.startswith("Grant") for name in wish),
            "PutBucketObjectLockConfiguration": wish.get("ObjectLockEnabledForBucket"),
            "PutBucketVersioning": wish.get("ObjectLockEnabledForBucket"),
        }
        for other in (other for other, is_asked in more.items() if is_asked):
            yield Wish(action=f"s3:{other}", resource=bucket, facts=_asked(call))


def _balancers(call: Call) -> Iterator[Wish]:
    if call.action.startswith(_READS):
        yield Wish(action=call.target.iam_action, resource="*")
        return
    found = list(resources.of_balancers(call))
    for named in found:
        yield Wish(action=call.target.iam_action, resource=named.arn, facts=named.facts)
    if not found:
        yield Wish(action=call.target.iam_action, facts=_asked(call))


def _schedules(call: Call) -> Iterator[Wish]:
    wish, action, asked = call.params, call.target.iam_action, _asked(call)
    if call.action in ("ListScheduleGroups", "ListSchedules"):
        yield Wish(action=action, resource="*")
        return
    if call.action in ("CreateSchedule", "UpdateSchedule", "GetSchedule", "DeleteSchedule"):
        group = wish.get("GroupName", "default")
        yield Wish(
            action=action, resource=resources.arn(call, "scheduler", f"schedule/{group}/{wish['Name']}")
        )
        if role := (wish.get("Target") or {}).get("RoleArn"):
            facts = {"iam:passedtoservice": ["scheduler.amazonaws.com"]}
            yield Wish(action="iam:PassRole", resource=role, facts=facts)
        return
    given = wish.get("ResourceArn")
    resource = given or resources.arn(call, "scheduler", f"schedule-group/{wish.get('Name', '*')}")
    yield Wish(action=action, resource=resource, facts=asked)
    if call.action == "CreateScheduleGroup" and wish.get("Tags"):
        yield Wish(action="scheduler:TagResource", resource=resource, facts=asked)
    if call.action == "DeleteScheduleGroup":  # its dependent action in the reference
        schedules = resources.arn(call, "scheduler", f"schedule/{wish['Name']}/*")
        yield Wish(action="scheduler:DeleteSchedule", resource=schedules)


_SERVICES: dict[str, Callable[[Call], Iterator[Wish]]] = {
    "ec2": _ec2,
    "ecr": _ecr,
    "eks": _eks,
    "elb": _balancers,
    "elbv2": _balancers,
    "fsx": _fsx,
    "iam": _iam,
    "kms": _kms,
    "logs": _logs,
    "s3": _s3,
    "scheduler": _schedules,
    "sts": _sts,
}
