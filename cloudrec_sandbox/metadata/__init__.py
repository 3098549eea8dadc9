"""The clouds' metadata services in a virtual machine: the notices that it will be ended.

One server answers for all of them, since their paths differ. `POST /_control` takes a JSON object of

    aws       {"action": "terminate", "in_s": 120}, {"time": "..."} (a false time), {"rebalance": true}, null
    azure     {"event": "Preempt", "in_s": 30, "status": "Scheduled", "resources": ["vm-0"]}, or null
    gcp       {"preempted": true}, or null
    fault     {"kind": "silence"|"trickle"|"garbage"|"status", "status": 500}, or null: of every answer
    delay_s   seconds before every answer
    expire_tokens  true: session tokens given so far are refused from now on

and changes only what is named. `GET /_control` returns all of it, and how often each path was requested.
"""

from cloudrec_sandbox.metadata.server import serve

__all__ = ["serve"]
