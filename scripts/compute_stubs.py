"""Writes the types of Compute Engine's SDK that cloudrec uses to typings/.

The SDK itself has more than 800,000 lines, which mypy would read for minutes. So the messages and clients
that are named below are copied as stubs: messages with all of their fields, and the messages in these.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
STUBS = ROOT / "typings/google/cloud/compute_v1"
MESSAGES = (
    *("Firewall", "Network", "NetworksRemovePeeringRequest", "Operation", "ResourcePolicy", "Router"),
    *("Image", "Instance", "InstanceTemplate", "MachineImage", "Snapshot", "Subnetwork"),
    *("SubnetworksSetPrivateIpGoogleAccessRequest", "TargetVpnGateway", "VpnGateway", "VpnTunnel"),
)
# The folders of the clients that are used.
CLIENTS = (
    *("addresses", "advice", "backend_services", "disks", "firewalls", "forwarding_rules"),
    "future_reservations",
    "global_addresses",
    *("global_forwarding_rules", "global_network_endpoint_groups", "global_operations", "health_checks"),
    *("instance_group_managers", "instance_groups", "machine_types", "network_endpoint_groups"),
    *("network_profiles", "networks", "projects"),
    *("region_backend_services", "region_disks", "region_health_checks", "region_operations"),
    *("region_target_http_proxies", "region_target_https_proxies", "region_url_maps", "regions"),
    *("reservations", "resource_policies", "routers", "subnetworks", "target_http_proxies"),
    *("target_https_proxies", "target_pools", "url_maps", "zone_operations", "zones"),
)
METHODS = frozenset(
    {
        *("aggregated_list", "calendar_mode", "delete_unary", "get", "insert_unary", "list", "patch_unary"),
        "list_errors",
        "set_private_ip_google_access_unary",
    }
)
_TYPES = '''"""Messages of Compute Engine; written by scripts/compute_stubs.py."""

from collections.abc import MutableMapping, MutableSequence

import proto
from google.protobuf import any_pb2
'''
_CLIENTS = '''"""Clients of Compute Engine; written by scripts/compute_stubs.py."""

from collections.abc import Callable, Iterable

from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.cloud.compute_v1.types import compute
from google.cloud.compute_v1.types.compute import *
'''
_MAKE = """
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
"""
_CALL = """    def {name}(
        self,
        request: compute.{request} | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> {answer}: ...
"""


def main() -> None:
    """Write the stubs."""
    for path, text in stubs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stubs() -> Mapping[Path, str]:
    """Return the stubs by file."""
    sdk = _sdk()
    clients = [client for name in CLIENTS for client in _client(sdk / "services" / name)]
    used = {name for _, names in clients for name in names}
    types = _messages(sdk / "types/compute.py", {*MESSAGES, *used})
    texts = {
        STUBS / "types/compute.pyi": "\n".join((_TYPES, *types)),
        STUBS / "types/__init__.pyi": "from google.cloud.compute_v1.types.compute import *\n",
        STUBS / "__init__.pyi": "\n".join((_CLIENTS, *(text for text, _ in clients))),
    }
    return {path: _formatted(text) for path, text in texts.items()}


def _sdk() -> Path:
    found = find_spec("google.cloud")
    folders = [Path(each) / "compute_v1" for each in (found and found.submodule_search_locations) or ()]
    return next(each for each in folders if each.exists())


def _messages(path: Path, roots: set[str]) -> Iterator[str]:
    """Yield the named messages and those in their fields, by name."""
    classes = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    wanted, left = set[str](), sorted(roots)
    while left:
        name = left.pop()
        if name not in wanted:
            wanted.add(name)
            inner = {each.name for each in _enumerations(classes[name])}
            named = {each for field in _fields(classes[name]) for each in _named(field.annotation, classes)}
            left += sorted(named - inner)
    for name in sorted(wanted):
        fields = _fields(classes[name])
        lines = [f"{ast.unparse(field.target)}: {_plain(field.annotation)}" for field in fields]
        inner_lines = [each for node in _enumerations(classes[name]) for each in _members(node)]
        body = [f"    {line}" for line in (*inner_lines, *lines)]
        yield "\n".join((f"class {name}(proto.Message):", *(body or ["    ..."])))


def _enumerations(message: ast.ClassDef) -> list[ast.ClassDef]:
    """Return the enumerations in a message that its fields have as their types."""
    used = {_plain(field.annotation) for field in _fields(message)}
    return [node for node in message.body if isinstance(node, ast.ClassDef) and node.name in used]


def _members(enumeration: ast.ClassDef) -> list[str]:
    members = [ast.unparse(node) for node in enumeration.body if isinstance(node, ast.Assign)]
    return [f"class {enumeration.name}(proto.Enum):", *(f"    {member}" for member in members)]


def _fields(message: ast.ClassDef) -> list[ast.AnnAssign]:
    return [node for node in message.body if isinstance(node, ast.AnnAssign)]


def _plain(annotation: ast.expr) -> str:
    """Return an annotation without the quotes of what is defined further down."""
    return ast.unparse(annotation).replace("'", "")


def _named(annotation: ast.expr, known: Iterable[str]) -> list[str]:
    words = _plain(annotation).replace("[", " ").replace("]", " ").replace(",", " ").split()
    return [word for word in words if word in set(known)]


def _client(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield a client, and the names of the messages that it takes and gives."""
    listed = _pagers(folder / "pagers.py")
    for node in ast.parse((folder / "client.py").read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Client"):
            calls = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name in METHODS]
            told = [_call(each, listed) for each in sorted(calls, key=lambda call: call.name)]
            texts = [
                _CALL.format(name=name, request=request, answer=answer) for name, request, answer in told
            ]
            words = {word for _, request, answer in told for word in _words(f"compute.{request} {answer}")}
            yield f"class {node.name}:{_MAKE}{''.join(texts)}", words


def _call(method: ast.FunctionDef, listed: Mapping[str, str]) -> tuple[str, str, str]:
    """Return a method's name, its request and its answer."""
    request = next(each for each in method.args.args if each.arg == "request").annotation
    answer = ast.unparse(method.returns) if method.returns else ""
    (taken,) = _words(ast.unparse(request) if request else "")
    return method.name, taken, listed.get(answer.removeprefix("pagers."), answer)


def _pagers(path: Path) -> Mapping[str, str]:
    """Return what each of a module's pagers yields."""
    nodes = ast.parse(path.read_text()).body if path.exists() else []
    return {
        node.name: ast.unparse(each.returns).replace("Iterator", "Iterable").replace("Tuple", "tuple")
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__iter__" and each.returns
    }


def _words(text: str) -> list[str]:
    """Return the names of messages in a text."""
    parts = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return [part.removeprefix("compute.") for part in parts if part.startswith("compute.")]


def _formatted(text: str) -> str:
    command = [str(Path(sys.executable).parent / "ruff"), "format", "-", "--stdin-filename", "stub.pyi"]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
