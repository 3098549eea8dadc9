"""Launch templates, and the placement groups that keep the nodes of one zone close together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import all_needed, needed
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import errors, templates
from cloudrec.providers.aws.cluster import CLUSTER
from cloudrec.providers.aws.ec2 import Ec2Driver, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

TEMPLATE, PLACEMENT = "launch-template", "placement-group"
TAG_DIGEST = "cloudrec-template"  # on a template and on what was made from it: what it was made from
_OWN = frozenset({"cloudrec-key", "Name", TAG_DIGEST})  # tags of the template that its nodes do not share


class LaunchTemplateDriver(Ec2Driver):
    """Handles launch templates; a changed one gets a new version, which then is its default."""

    kind, tag_type = TEMPLATE, "launch-template"
    operation, rows = "describe_launch_templates", "LaunchTemplates"
    id_field, ids = "LaunchTemplateId", "LaunchTemplateIds"
    changeable = frozenset({"digest"})

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the template."""
        name = resource.tags["Name"]
        try:
            answer = self.ec2.create_launch_template(
                LaunchTemplateName=name,
                VersionDescription=resource.properties["digest"],
                LaunchTemplateData=self._data(resource, identities),
                ClientToken=token,
                TagSpecifications=self.born_with(resource),
            )
        except ClientError as error:
            if errors.code(error) != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise
            return self._adopted(resource, name, error)
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Add a version, and make it the default."""
        identity = observed.identity
        answer = self.ec2.create_launch_template_version(
            LaunchTemplateId=identity,
            VersionDescription=resource.properties["digest"],
            LaunchTemplateData=self._data(resource, identities),
        )
        number = str(answer["LaunchTemplateVersion"]["VersionNumber"])
        self.ec2.modify_launch_template(LaunchTemplateId=identity, DefaultVersion=number)
        self.tag(identity, {TAG_DIGEST: resource.properties["digest"]})  # last: what counts as done

    def properties(self, row: Row, tags: Mapping[str, str]) -> Mapping[str, Any]:
        """Tell what it was made from."""
        del row
        return {"digest": tags.get(TAG_DIGEST, "")}

    def remove(self, observed: Observed) -> None:
        """Delete it with all its versions."""
        self.ec2.delete_launch_template(LaunchTemplateId=observed.identity)

    def _data(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        name = needed(resource, identities, CLUSTER)
        cluster = self.aws.read("eks", "describe_cluster", name=name)["cluster"]
        own = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]  # which nodes and control plane share
        placement = all_needed(resource, identities, PLACEMENT)
        return templates.template(
            resource.properties["of"],
            groups=[*all_needed(resource, identities, "security-group"), own],
            placement_group=placement[0] if placement else "",
            tags={
                **{key: value for key, value in resource.tags.items() if key not in _OWN},
                "Name": resource.tags["Name"],
            },
        )

    def _adopted(self, resource: Resource, name: str, error: ClientError) -> str:
        for row in self.read(LaunchTemplateNames=[name]):
            seen = self.observe(row)
            if seen.cluster == resource.tags[TAG_CLUSTER]:
                return seen.identity
        raise error


class PlacementGroupDriver(Ec2Driver):
    """Handles placement groups. The identity is the name, by which alone they are deleted."""

    kind, tag_type = PLACEMENT, "placement-group"
    operation, rows = "describe_placement_groups", "PlacementGroups"
    id_field, ids = "GroupName", "GroupNames"
    deadline_s = 1200.0  # it is in use until its instances are wholly gone
    states: ClassVar[Mapping[str, Condition]] = {"deleting": Condition.DELETING, "deleted": Condition.GONE}

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group; EC2 has no token for it, but its name is unique."""
        del token, identities
        name = resource.tags["Name"]
        try:
            self.ec2.create_placement_group(
                GroupName=name, Strategy="cluster", TagSpecifications=self.born_with(resource)
            )
        except ClientError as error:
            if errors.code(error) != "InvalidPlacementGroup.Duplicate":
                raise
            rows = self.read(GroupNames=[name])
            if not any(self.observe(row).cluster == resource.tags[TAG_CLUSTER] for row in rows):
                raise
        return name

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        self.ec2.delete_placement_group(GroupName=observed.identity)
