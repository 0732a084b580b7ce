"""The executor's start-up proof, alone: every limit bites, or it says which does not.

Run inside the machine, at the top of the tree, with daemons/ in PYTHONPATH. The guest counts as CPU
time also what its host spent on others, so limits that a probe is not about are raised.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from oj.executor.proof import AMPLE, PROBES, Probe, Proof
from oj.executor.sandbox import Sandbox

SLOW = 20
START_S = 120.0


def main(box: str) -> None:
    with (
        Sandbox.start(box, 1, start_timeout_s=START_S) as sandbox,
        tempfile.TemporaryDirectory() as place,
    ):
        proof = Proof(sandbox, Path(place))
        for probe in PROBES:
            proof.prove(0, slow_down(probe))
    print(f"{len(PROBES)} probes ended as they should")


def slow_down(probe: Probe) -> Probe:
    limits = probe.limits
    if limits.cpu_ms == AMPLE.cpu_ms:
        limits = replace(limits, cpu_ms=limits.cpu_ms * SLOW)
    if limits.wall_ms == AMPLE.wall_ms:
        limits = replace(limits, wall_ms=limits.wall_ms * SLOW)
    return replace(probe, limits=limits)


main(sys.argv[1])
