"""The resources of IAM, S3, KMS and the smaller services, for /_control/state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import Entry, inventory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.world import World

_GLOBAL = "aws"


@inventory
def identities(world: World) -> Iterator[Entry]:
    """Yield roles with their policies, profiles, customer managed policies, users, OIDC providers."""
    iam = world.backends("iam").get(_GLOBAL)
    if iam is None:
        return
    for role in iam.roles.values():
        if role.path.startswith("/aws-service-role/"):
            continue  # a service-linked role, which AWS makes and keeps
        yield Entry("iam", "role", role.name)
        for policy in role.managed_policies.values():
            yield Entry("iam", "role-policy", f"{role.name}/{policy.name}")
        for name in role.policies:
            yield Entry("iam", "role-inline-policy", f"{role.name}/{name}")
    yield from _others(iam)


def _others(iam: Any) -> Iterator[Entry]:  # noqa: ANN401 - moto's IAM backend
    for profile in iam.instance_profiles.values():
        yield Entry("iam", "instance-profile", profile.name)
    for policy in iam.managed_policies.values():
        if f":{iam.account_id}:" in policy.arn:
            yield Entry("iam", "policy", policy.name)
    for user in iam.users.values():
        yield Entry("iam", "user", user.name)
    for arn in iam.open_id_providers:
        yield Entry("iam", "oidc-provider", arn)


@inventory
def buckets(world: World) -> Iterator[Entry]:
    """Yield buckets and every version of every object."""
    s3 = world.backends("s3").get(_GLOBAL)
    for bucket in s3.buckets.values() if s3 else ():
        yield Entry("s3", "bucket", bucket.name)
        for key, versions in bucket.keys.lists():
            for version in versions:
                yield Entry("s3", "object", f"{bucket.name}/{key}#{version.version_id}")
        for upload in bucket.multiparts:
            yield Entry("s3", "multipart-upload", f"{bucket.name}/{upload}")


@inventory
def keys(world: World) -> Iterator[Entry]:
    """Yield KMS keys and aliases, without AWS's own."""
    for kms in world.backends("kms").values():
        for key in kms.keys.values():
            if any(alias.startswith("alias/aws/") for alias in key.aliases):
                continue
            yield Entry("kms", "key", key.id, key.key_state == "PendingDeletion")
            for alias in key.aliases:
                yield Entry("kms", "alias", alias)


@inventory
def logs_and_images(world: World) -> Iterator[Entry]:
    """Yield log groups and repositories."""
    for logs in world.backends("logs").values():
        for name in logs.groups:
            yield Entry("logs", "log-group", name)
    for ecr in world.backends("ecr").values():
        for name in ecr.repositories:
            yield Entry("ecr", "repository", name)


@inventory
def balancers_and_groups(world: World) -> Iterator[Entry]:
    """Yield load balancers, target groups, Auto Scaling groups."""
    for elb in world.backends("elbv2").values():
        for balancer in elb.load_balancers.values():
            yield Entry("elbv2", "load-balancer", balancer.name)
        for group in elb.target_groups.values():
            yield Entry("elbv2", "target-group", group.name)
    for scaling in world.backends("autoscaling").values():
        for name in scaling.autoscaling_groups:
            yield Entry("autoscaling", "group", name)
