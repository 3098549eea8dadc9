"""`make live PROVIDER=aws`: one cluster of the cheapest GPU node, in a real account, up and down again.

What the conformance suite does on stand-ins is done here for money: `up`, `up` again, which must change
nothing, `status`, and `down`, whatever happens between. It asks first and tells the price. If this machine
dies, `cloudrec down PROVIDER --expired` from anywhere removes the cluster once its time to live is over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

NAME, TTL = "cloudrec-live", "2h"
CHEAPEST = {"aws": "g6.xlarge", "azure": "Standard_NC4as_T4_v3"}  # one GPU each


def main() -> int:
    """Return 0 when everything came up, stood still and went."""
    provider = os.environ.get("PROVIDER", "")
    if provider not in CHEAPEST:
        print(f"PROVIDER is {provider!r}; it can be {', '.join(sorted(CHEAPEST))}", file=sys.stderr)
        return 2
    wanted = ("up", provider, "--cluster", NAME, "--instance-types", CHEAPEST[provider], "--ttl", TTL)
    plan = ask(*wanted, "--dry-run")["clusters"][0]
    count, hourly_usd = len(plan["actions"]), plan["hourly_usd"]
    print(f"{count} resources in a real account, ${hourly_usd:.2f} an hour, {TTL} at most.")
    if input(f"Type {NAME} to go on: ").strip() != NAME:
        print("nothing was done")
        return 6
    try:
        ask(*wanted, "--yes")
        again = ask(*wanted, "--yes")["clusters"][0]
        changes = [action["resource"] for action in again["actions"] if action["step"] != "keep"]
        (cluster,) = ask("status", NAME)["clusters"]
        print(
            f"{cluster['state']}, ${cluster['hourly_usd']:.2f}/h; a second up changes {len(changes)} things"
        )
        came_up = cluster["state"] == "READY" and not changes
    finally:
        ask("down", provider, "--cluster", NAME, "--yes")
    left = [thing for thing in ask("leaks", provider)["resources"] if thing["cluster"] == NAME]
    print(f"{len(left)} resources left")
    return 0 if came_up and not left else 1


def ask(*arguments: str) -> Any:  # noqa: ANN401 - JSON
    """Run a command, its progress on stderr; what it answers."""
    command, *rest = arguments
    words = [sys.executable, "-m", "cloudrec", command, "-o", "json", *rest]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"cloudrec {command} ended with {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
