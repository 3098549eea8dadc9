"""`make lint` finds a misspelt field, method or model of a cloud's SDK."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROVIDERS = Path("cloudrec/providers")
# The most expressions of a provider that mypy may see as Any, in percent.
MOST_ANY = {"aws": 5.0, "azure": 5.0, "gcp": 5.0}
# By provider: file, text that it has once, and the same with one misspelt name.
AWS = (
    ("network/network.py", "self.ec2.create_subnet(", "self.ec2.make_subnet("),
    ("network/network.py", "EnableDnsHostnames={", "EnableDnsHostname={"),
    ("network/nat.py", 'row.get("CreateTime")', 'row.get("CreatedTime")'),
    ("network/endpoints.py", 'asked["PrivateDnsEnabled"]', 'asked["PrivateDnsEnable"]'),
    ("network/firewall.py", 'permission["IpRanges"]', 'permission["IpRange"]'),
    ("nodes/templates.py", '"HttpPutResponseHopLimit"', '"HttpPutResponseHopsLimit"'),
    ("nodes/node_groups.py", '"nodeRepairConfig": _', '"nodeRepairConfiguration": _'),
    (
        "nodes/node_groups.py",
        "limit, name, zone = asked.max_price",
        "limit, name, zone = asked.maximal_price",
    ),
    ("cluster/cluster.py", "bootstrapSelfManagedAddons=", "bootstrapSelfManagedAddOns="),
    ("cluster/logs.py", 'row.get("retentionInDays")', 'row.get("retentionDays")'),
    ("identity/identity.py", 'wanted["PermissionsBoundary"]', 'wanted["PermissionBoundary"]'),
    ("identity/encryption.py", "PendingWindowInDays=", "PendingWindowDays="),
    ("storage/storage.py", '"KMSMasterKeyID": ', '"KmsMasterKeyId": '),
    ("storage/lustre.py", '"PerUnitStorageThroughput": ', '"PerUnitThroughput": '),
    ("registry/registry.py", "imageScanningConfiguration=", "imageScanConfiguration="),
    ("offers.py", '"MaximumEfaInterfaces"', '"MaximalEfaInterfaces"'),
    ("quotas.py", "aws.service_quotas.get_service_quota", "aws.service_quotas.get_quota"),
)
AZURE = (
    ("nodes/node_pools.py", "capacity_reservation_group_id=req", "capacity_reservation_grup_id=req"),
    ("nodes/node_pools.py", "scale_set_eviction_policy=", "scale_set_evict_policy="),
    ("nodes/node_pools.py", "of.GPUProfile(driver=", "of.GPUProfile(drivers="),
    ("nodes/node_pools.py", "delete = self.pools.begin_delete", "delete = self.pools.begin_remove"),
    ("nodes/node_pools.py", '"nodes": row.count,', '"nodes": row.counts,'),
    ("nodes/scale_to_zero.py", "wanted.properties.count = nodes", "wanted.properties.counts = nodes"),
    ("network/network.py", "idle_timeout_in_minutes=", "idle_timeout_minutes="),
    ("network/network.py", ".PublicIPAddressSku(", ".PublicIpAddressSku("),
    ("network/network.py", "of = self.azure.network.nat_gateways", "of = self.azure.network.nat_gateway"),
    ("network/network.py", "found.service_endpoints = wanted", "found.service_endpoint = wanted"),
    ("network/placement.py", "put=of.create_or_update", "put=of.create_or_replace"),
    ("storage/storage.py", "row.allow_blob_public_access", "row.allow_public_blob_access"),
    (
        "storage/storage.py",
        "    default_to_o_auth_authentication=True,",
        "    default_to_oauth_authentication=True,",
    ),
    ("storage/storage.py", "ip_address_or_range=address", "ip_address_range=address"),
    ("storage/lustre.py", "filesystem_subnet=needed", "file_system_subnet=needed"),
    ("identity/identity.py", "description=_description", "descripton=_description"),
    ("identity/identity.py", "self.calls.list_for_subscription", "self.calls.list_for_subscriptions"),
    ("cluster/cluster.py", "row.private_fqdn or row.fqdn", "row.private_fqdn or row.fqn"),
    ("cluster/cluster_model.py", "authorized_ip_ranges=blocks", "authorized_ip_range=blocks"),
    ("preflight.py", "answer.name_available),", "answer.name_is_available),"),
)
GCP = (
    ("nodes/pool_model.py", "accelerator_count=hardware", "accelerators_count=hardware"),
    ("nodes/pool_model.py", "total_max_node_count=nodes", "total_maximum_node_count=nodes"),
    ("nodes/pool_model.py", "node.flex_start = True", "node.flexible_start = True"),
    ("nodes/node_pools.py", "node_count=asked", "nodes_count=asked"),
    ("nodes/node_pools.py", "self.gke.delete_node_pool", "self.gke.remove_node_pool"),
    ("nodes/node_pools.py", "group.target_size for", "group.target_sizes for"),
    ("network/network.py", "private_ip_google_access=wanted", "private_ip_access=wanted"),
    ("network/network.py", "in row.secondary_ip_ranges", "in row.secondary_ranges"),
    (
        "network/network.py",
        "calls.set_private_ip_google_access_unary",
        "calls.set_private_google_access_unary",
    ),
    ("network/nat.py", "min_ports_per_vm=_PORTS", "minimum_ports_per_vm=_PORTS"),
    ("network/nat.py", ".RouterNatLogConfig(", ".RouterNatLoggingConfig("),
    ("network/firewall.py", "sorted(row.source_ranges)", "sorted(row.sources_ranges)"),
    ("storage/storage.py", "bucket.hierarchical_namespace_enabled", "bucket.hierarchical_names_enabled"),
    ("storage/lustre.py", "per_unit_storage_throughput=wanted", "per_unit_throughput=wanted"),
    ("cluster/cluster.py", "=row.label_fingerprint", "=row.labels_fingerprint"),
    ("cluster/cluster_model.py", "datapath_provider=of", "datapath_providers=of"),
    ("cluster/cluster_model.py", "Mode.BASIC)", "Mode.BASICS)"),
    ("registry/registry.py", "immutable_tags=resource", "immutable_tag=resource"),
    ("cleanup/ownership.py", "row.default_service)", "row.default_services)"),
    ("quotas.py", "in info.dimensions_infos", "in info.dimension_infos"),
    ("preflight.py", "info.billing_account_name or", "info.account_name or"),
)
MISSPELT = [
    (PROVIDERS / name / path, right, wrong)
    for name, seeds in {"aws": AWS, "azure": AZURE, "gcp": GCP}.items()
    for path, right, wrong in seeds
]


def test_lint_detects_misspelt_sdk_names(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    names = [_misspell(tree, *each) for each in MISSPELT]
    found = _mypy(tree)
    missed = [
        f"{path}: {name}"
        for path, name in names
        if not re.search(rf"^{path}:\d+: error: .*\b{name}\b", found, re.MULTILINE)
    ]
    assert not missed, found


def test_few_expressions_of_a_typed_provider_are_any(tmp_path: Path) -> None:
    _mypy(_tree(tmp_path), "--any-exprs-report", "report")
    report = (tmp_path / "report" / "any-exprs.txt").read_text()
    for provider, most in MOST_ANY.items():
        rows = re.findall(rf"^ *cloudrec\.providers\.{provider}\S* +(\d+) +(\d+)", report, re.MULTILINE)
        share = 100 * sum(int(anys) for anys, _ in rows) / sum(int(all_of) for _, all_of in rows)
        assert share <= most, f"{share:.1f} % of {provider} is Any; at most {most} % may be"


def _tree(at: Path) -> Path:
    """Return a folder with a copy of what mypy reads of the providers."""
    if not (at / "pyproject.toml").exists():
        without = shutil.ignore_patterns("__pycache__")
        for package in ("cloudrec", "cloudrec_contract"):
            shutil.copytree(ROOT / package, at / package, ignore=without)
        (at / "scripts").mkdir()
        shutil.copytree(ROOT / "typings", at / "typings")
        for path in ("scripts/mypy_sdks.py", "pyproject.toml"):
            shutil.copy(ROOT / path, at / path)
    return at


def _misspell(tree: Path, path: Path, right: str, wrong: str) -> tuple[Path, str]:
    """Misspell one name, and return the file and the misspelt name."""
    file = tree / path
    text = file.read_text()
    assert text.count(right) == 1, f"{path} has {right!r} {text.count(right)} times"
    file.write_text(text.replace(right, wrong))
    (name,) = set(re.findall(r"\w+", wrong)) - set(re.findall(r"\w+", right))
    return path, name


def _mypy(tree: Path, *flags: str) -> str:
    folders = [str(PROVIDERS / name) for name in MOST_ANY]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *flags, *folders]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout
