"""Launch templates, and placement groups, which put a zone's nodes close together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts
from cloudrec.providers.aws.cluster.cluster import CLUSTER
from cloudrec.providers.aws.nodes import templates
from cloudrec.providers.base.driver import all_needed, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        DescribeLaunchTemplatesRequestPaginateTypeDef,
        DescribePlacementGroupsRequestTypeDef,
        FilterTypeDef,
        LaunchTemplateTypeDef,
        PlacementGroupTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from cloudrec.engine.graph import Resource

TEMPLATE, PLACEMENT = "launch-template", "placement-group"
TAG_DIGEST = "cloudrec-template"  # on templates and node groups: the digest of the template's content
_OWN = frozenset({"cloudrec-key", "Name", TAG_DIGEST})  # tags of the template that its nodes do not get


@dataclass(frozen=True, kw_only=True)
class LaunchTemplateProperties(Properties):
    """The requested properties of a launch template.

    Attributes:
        of: what it is made from.
        digest: `templates.digest` of that: drift compares it, since EC2 does not report `of`.
    """

    of: templates.TemplateContent
    digest: str


class LaunchTemplateDriver(Ec2Driver["LaunchTemplateTypeDef", LaunchTemplateProperties]):
    """Handles launch templates; a change creates a new version and makes it the default."""

    kind = TEMPLATE
    tag_type = "launch-template"
    charge = FREE
    changeable = frozenset({"digest"})

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[LaunchTemplateTypeDef]:
        """Return launch templates by ID or by filters."""
        return self._described({"LaunchTemplateIds": ids} if ids else {"Filters": filters})

    def facts(self, row: LaunchTemplateTypeDef) -> Ec2Facts:
        """Return ID, tags and creation time; a template has no state."""
        return Ec2Facts(identity=row["LaunchTemplateId"], tags=row.get("Tags"), created=row.get("CreateTime"))

    def make(
        self, resource: Resource[LaunchTemplateProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the template; an existing one of the name is used if it has the cluster's tag."""
        name = resource.tags["Name"]
        try:
            answer = self.ec2.create_launch_template(
                LaunchTemplateName=name,
                VersionDescription=resource.properties.digest,
                LaunchTemplateData=self._data(resource, identities),
                ClientToken=token,
                TagSpecifications=self.born_with(resource),
            )
        except ClientError as error:
            if errors.code(error) != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise
            # The response of an earlier call was lost.
            return self._adopted(resource, name, error)
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def change(
        self,
        resource: Resource[LaunchTemplateProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Create a version, and make it the default."""
        identity = observed.identity
        answer = self.ec2.create_launch_template_version(
            LaunchTemplateId=identity,
            VersionDescription=resource.properties.digest,
            LaunchTemplateData=self._data(resource, identities),
        )
        number = str(answer["LaunchTemplateVersion"]["VersionNumber"])
        self.ec2.modify_launch_template(LaunchTemplateId=identity, DefaultVersion=number)
        # The tag comes last: a change that was cut short before is repeated.
        self.tag(identity, {TAG_DIGEST: resource.properties.digest})

    def properties(self, row: LaunchTemplateTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return the digest in its tag."""
        del row
        return {"digest": tags.get(TAG_DIGEST, "")}

    def remove(self, observed: Observed) -> None:
        """Delete the template with all its versions."""
        self.ec2.delete_launch_template(LaunchTemplateId=observed.identity)

    def _described(self, asked: DescribeLaunchTemplatesRequestPaginateTypeDef) -> list[LaunchTemplateTypeDef]:
        pages = self.ec2.get_paginator("describe_launch_templates").paginate
        return self.aws.rows(pages, lambda page: page.get("LaunchTemplates"), **asked)

    def _data(
        self, resource: Resource[LaunchTemplateProperties], identities: Mapping[str, str]
    ) -> RequestLaunchTemplateDataTypeDef:
        cluster = eks.described(self.aws, needed(resource, identities, CLUSTER))
        own = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]  # lets nodes and control plane connect
        # Nodes without EFA need no placement group.
        placement = all_needed(resource, identities, PLACEMENT)
        return templates.template(
            resource.properties.of,
            groups=[*all_needed(resource, identities, "security-group"), own],
            placement_group=placement[0] if placement else "",
            tags={
                **{key: value for key, value in resource.tags.items() if key not in _OWN},
                "Name": resource.tags["Name"],
            },
        )

    def _adopted(self, resource: Resource[LaunchTemplateProperties], name: str, error: ClientError) -> str:
        for row in self._described({"LaunchTemplateNames": [name]}):
            seen = self.observe(row)
            if seen.cluster == resource.tags[TAG_CLUSTER]:
                return seen.identity
        raise error


class PlacementGroupDriver(Ec2Driver["PlacementGroupTypeDef", Properties]):
    """Handles placement groups. The identity is the name: EC2 deletes them by name only."""

    kind = PLACEMENT
    tag_type = "placement-group"
    charge = FREE
    deadline_s = 1200.0  # in use until its instances are terminated
    states: ClassVar[Mapping[str, Condition]] = {"deleting": Condition.DELETING, "deleted": Condition.GONE}

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[PlacementGroupTypeDef]:
        """Return placement groups by name or by filters."""
        asked: DescribePlacementGroupsRequestTypeDef = {"GroupNames": ids} if ids else {"Filters": filters}
        return list(self.aws.read(self.ec2.describe_placement_groups, **asked).get("PlacementGroups") or ())

    def facts(self, row: PlacementGroupTypeDef) -> Ec2Facts:
        """Return name, tags and state."""
        return Ec2Facts(identity=row["GroupName"], tags=row.get("Tags"), state=row.get("State", "available"))

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group; EC2 has no idempotency token for it, but names are unique."""
        del token, identities
        name = resource.tags["Name"]
        try:
            self.ec2.create_placement_group(
                GroupName=name, Strategy="cluster", TagSpecifications=self.born_with(resource)
            )
        except ClientError as error:
            if errors.code(error) != "InvalidPlacementGroup.Duplicate":
                raise
            rows = self.rows(ids=[name])
            if not any(self.observe(row).cluster == resource.tags[TAG_CLUSTER] for row in rows):
                raise
        return name

    def remove(self, observed: Observed) -> None:
        """Delete the group."""
        self.ec2.delete_placement_group(GroupName=observed.identity)
