"""What runs inside the machine, and how its output is told apart on the way back.

The script takes NUL-terminated commands from the tree's tar. Around each one it prints a line
that starts with a byte no test prints at a line's start, with the command's number and, at its
end, its exit code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

UNIT_PATH = "etc/systemd/system/oj-vm-job.service"
SCRIPT_PATH = "usr/local/sbin/oj-vm-job"
COMMANDS_NAME = ".oj-vm-commands"
MARK = "\x1e"

# Delegate=yes as oj-executor.service has it: oj-box makes its cgroups below this unit's.
UNIT = f"""\
[Unit]
Description=Commands of the test run
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
ExecStart=/{SCRIPT_PATH}
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
TimeoutStartSec=infinity
StandardInput=null
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS1
Environment=LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 OJ_SLOW=1 HOME=/root
"""

SCRIPT = f"""\
#!/bin/bash
stty raw -echo <&1
mark=$'\\x1e'
mkdir /run/tree && mount -t tmpfs -o size=512m tree /run/tree && cd /run/tree || exit
tar -xf /dev/vdb --no-same-owner || exit
mapfile -d '' commands <{COMMANDS_NAME}
for number in "${{!commands[@]}}"; do
    echo "${{mark}}start $number"
    bash -c "${{commands[number]}}" 2>&1
    echo "${{mark}}end $number $?"
done
echo "${{mark}}done"
stty -F /dev/ttyS1 sane # which waits until all is sent
"""

_END = re.compile(f"{MARK}end ([0-9]+) ([0-9]+)$")


@dataclass(frozen=True)
class Ended:
    """A command that was run in the machine."""

    command: str
    exit_code: int
    output: str


def parse(output: str, commands: Sequence[str]) -> list[Ended]:
    """The commands that came to their end, in order."""
    ended = []
    lines: list[str] = []
    for line in output.split("\n"):
        found = _END.match(line)
        if line.startswith(f"{MARK}start "):
            lines = []
        elif found:
            command = commands[int(found[1])]
            ended.append(Ended(command, int(found[2]), "\n".join(lines)))
        else:
            lines.append(line)
    return ended
