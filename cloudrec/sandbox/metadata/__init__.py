"""The clouds' metadata services, as a virtual machine sees them: what they tell of its coming end.

One server answers for all of them, since their paths differ. `POST /_control` takes a JSON object of

    aws       {"action": "terminate", "in_s": 120}, {"time": "..."} for a lie, {"rebalance": true}, or null
    azure     {"event": "Preempt", "in_s": 30, "status": "Scheduled", "resources": ["vm-0"]}, or null
    gcp       {"preempted": true}, or null
    fault     {"kind": "silence"|"trickle"|"garbage"|"status", "status": 500}, or null: of every answer
    delay_s   seconds before every answer
    expire_tokens  true: session tokens given so far are refused from now on

and changes only what is named. `GET /_control` tells all of it, and how often each path was asked for.
"""

from cloudrec.sandbox.metadata.server import serve

__all__ = ["serve"]
