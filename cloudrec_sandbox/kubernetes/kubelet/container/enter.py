"""`python -m cloudrec_sandbox.kubernetes.kubelet.container.enter PID SPEC COMMAND REPORT`: a program there.

PID is the process that follows the container, SPEC the container's own, COMMAND a JSON list. The streams are
those of this process; with another argument they are a terminal. The descriptor REPORT gets the reason if
the command cannot be started. The exit code is the command's.
"""

from __future__ import annotations

import json
import os
import sys

from cloudrec_sandbox.kubernetes.kubelet.container import kernel, program


def main(arguments: list[str]) -> int:
    """Enter the container's namespaces, and run the command there."""
    kernel.die_with_parent()
    pid, path, command, report, *terminal = arguments
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes time to import
        spec = {**json.load(file), "command": json.loads(command)}
    spaces = [("mnt", kernel.NEW_NS), ("uts", kernel.NEW_UTS), ("net", kernel.NEW_NET)]
    # Those that it gives its children: it is no member of the container's own.
    spaces.append(("pid_for_children", kernel.NEW_PID))
    if not spec["is_root"]:
        spaces.insert(0, ("user", kernel.NEW_USER))
    opened = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind) for name, kind in spaces]
    for namespace, kind in opened:
        kernel.enter(namespace, kind)
        os.close(namespace)
    started, problem = program.start(spec, is_first=False, streams=(0, 1, 2), is_terminal=bool(terminal))
    if problem:
        os.write(int(report), problem.encode())
    os.close(int(report))
    for stream in (0, 1, 2):
        os.close(stream)  # they end with the command, although this process still waits for it
    _, status = os.waitpid(started, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
