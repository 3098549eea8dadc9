"""Resources beside cloudrec's clusters that it did not make, created with boto3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sandbox.aws.support import CONFIG, Aws

GIB, TYPE = 100, "m5.xlarge"


@dataclass(kw_only=True)
class Planter:
    """Plants in one region, with the tag of one cluster.

    Attributes:
        aws: the stand-in.
        region: the region.
        title: the cluster's name.
        vpc: the network to plant in; a new one if empty.
        is_tagged: whether the resources have the tag.
        planted: the identities, by kind.
    """

    aws: Aws
    region: str
    title: str
    vpc: str = ""
    is_tagged: bool = True
    planted: dict[str, str] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        return self.aws.client(service, CONFIG.merge(CONFIG.__class__(region_name=self.region)))

    @property
    def tags(self) -> list[dict[str, str]]:
        return [{"Key": "cloudrec-cluster" if self.is_tagged else "team", "Value": self.title}]

    def _spec(self, kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": self.tags}]

    def all(self) -> dict[str, str]:
        """Plant one resource of each of twenty kinds; return the identities."""
        self.machines()
        self.networks()
        self.services()
        return self.planted

    def network(self) -> str:
        """Return a subnet of the network, which is created first if there is none."""
        ec2 = self.client("ec2")
        if not self.vpc:
            self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=self._spec("vpc"))["Vpc"][
                "VpcId"
            ]
            self.aws.advance(60)
            ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=f"{self.region}a")
            self.aws.advance(60)
        found = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])["Subnets"]
        return str(found[0]["SubnetId"])

    def machines(self) -> None:
        """Plant what EC2 bills."""
        ec2, zone, kept = self.client("ec2"), f"{self.region}a", self.planted
        where = {"SubnetId": self.network(), "ImageId": "ami-12c6146b", "InstanceType": TYPE}
        made = ec2.run_instances(**where, MinCount=1, MaxCount=1, TagSpecifications=self._spec("instance"))
        kept["instance"] = made["Instances"][0]["InstanceId"]
        disk = {"AvailabilityZone": zone, "Size": GIB, "VolumeType": "gp3"}
        kept["volume"] = ec2.create_volume(**disk, TagSpecifications=self._spec("volume"))["VolumeId"]
        self.aws.advance(60)
        kept["snapshot"] = ec2.create_snapshot(
            VolumeId=kept["volume"], TagSpecifications=self._spec("snapshot")
        )["SnapshotId"]
        kept["image"] = ec2.create_image(
            InstanceId=kept["instance"], Name=f"planted-{self.title}", TagSpecifications=self._spec("image")
        )["ImageId"]
        kept["capacity reservation"] = ec2.create_capacity_reservation(
            InstanceType="p4d.24xlarge",
            InstancePlatform="Linux/UNIX",
            AvailabilityZone=zone,
            InstanceCount=2,
            TagSpecifications=self._spec("capacity-reservation"),
        )["CapacityReservation"]["CapacityReservationId"]

    def networks(self) -> None:
        """Plant parts of networks."""
        ec2, kept, subnet = self.client("ec2"), self.planted, self.network()
        kept["network interface"] = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"][
            "NetworkInterfaceId"
        ]
        kept["elastic IP"] = ec2.allocate_address(Domain="vpc", TagSpecifications=self._spec("elastic-ip"))[
            "AllocationId"
        ]
        kept["VPN gateway"] = ec2.create_vpn_gateway(
            Type="ipsec.1", TagSpecifications=self._spec("vpn-gateway")
        )["VpnGateway"]["VpnGatewayId"]
        front = f"arn:aws:ec2:{self.region}:123456789012"
        kept["VPN gateway"] = f"{front}:vpn-gateway/{kept['VPN gateway']}"
        kept["key pair"] = ec2.create_key_pair(
            KeyName=f"planted-{self.title}", TagSpecifications=self._spec("key-pair")
        )["KeyPairId"]
        kept["key pair"] = f"{front}:key-pair/{kept['key pair']}"
        made = self.client("elbv2").create_load_balancer(
            Name=f"planted-{self.title}", Subnets=[subnet], Type="network", Tags=self.tags
        )
        kept["load balancer"] = made["LoadBalancers"][0]["LoadBalancerArn"]

    def services(self) -> None:
        """Plant resources of other services."""
        name, kept = f"planted-{self.title}-{self.region}", self.planted
        plain = {tag["Key"]: tag["Value"] for tag in self.tags}
        kept["topic"] = self.client("sns").create_topic(Name=name, Tags=self.tags)["TopicArn"]
        self.client("sqs").create_queue(QueueName=name, tags=plain)
        kept["queue"] = f"arn:aws:sqs:{self.region}:123456789012:{name}"
        kept["table"] = self.client("dynamodb").create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "a", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "a", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            Tags=self.tags,
        )["TableDescription"]["TableArn"]
        kept["secret"] = self.client("secretsmanager").create_secret(Name=name, Tags=self.tags)["ARN"]
        kept["database"] = self.client("rds").create_db_instance(
            DBInstanceIdentifier=name,
            DBInstanceClass="db.m5.large",
            Engine="mysql",
            AllocatedStorage=20,
            MasterUsername="planted",
            MasterUserPassword="planted-1",
            Tags=self.tags,
        )["DBInstance"]["DBInstanceArn"]
        self.client("ssm").put_parameter(Name=name, Value="1", Type="String", Tags=self.tags)
        kept["parameter"] = f"arn:aws:ssm:{self.region}:123456789012:parameter/{name}"
        kept["repository"] = self.client("ecr").create_repository(repositoryName=name, tags=self.tags)[
            "repository"
        ]["repositoryArn"]
        kept["ECS cluster"] = self.client("ecs").create_cluster(
            clusterName=name, tags=[{"key": tag["Key"], "value": tag["Value"]} for tag in self.tags]
        )["cluster"]["clusterArn"]
        self.client("logs").create_log_group(logGroupName=f"/{name}", tags=plain)
        kept["log group"] = f"arn:aws:logs:{self.region}:123456789012:log-group:/{name}"
        kept["key"] = self.client("kms").create_key(
            Tags=[{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in self.tags]
        )["KeyMetadata"]["Arn"]
