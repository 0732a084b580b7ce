"""Whether all slots together may use more memory than the machine has. Pure.

What runs get that ask for nothing must fit, whatever the configuration says. What tasks may ask for
([most]) must fit where an administrator has set it. Its default is a bound for all machines and no
promise of this one: that all slots run a task that asks for as much, at one time, is told by a note
only, or every small machine would be warned of in the configuration that it came with.
"""

from __future__ import annotations

from dataclasses import dataclass

from oj.settings import Advice

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Demand:
    """What slots may use."""

    slots: int
    run_bytes: int
    compile_bytes: int
    most_bytes: int
    most_is_set: bool  # in the file, as opposed to the default


def reserve_bytes(total_bytes: int) -> int:
    """What the system and daemons need: an eighth, at least 512 MiB and at most 4 GiB."""
    return min(max(total_bytes // 8, 512 * MIB), 4 * GIB)


def advise(demand: Demand, total_bytes: int) -> Advice:
    reserve = reserve_bytes(total_bytes)
    usable = max(0, total_bytes - reserve)
    most = ("most.memory", demand.most_bytes)
    usual = ("run.memory", demand.run_bytes)
    if demand.compile_bytes > demand.run_bytes:
        usual = ("compile.memory", demand.compile_bytes)
    for key, each in (most, usual) if demand.most_is_set else (usual,):
        if demand.slots * each > usable:
            return Advice(warnings=(_say(key, each, demand.slots, total_bytes, reserve),))
    if demand.slots * demand.most_bytes > usable:
        return Advice(notes=(_say(*most, demand.slots, total_bytes, reserve),))
    return Advice()


def _say(key: str, each_bytes: int, slots: int, total_bytes: int, reserve_bytes: int) -> str:
    usable = total_bytes - reserve_bytes
    word = "slot" if slots == 1 else "slots"
    what = (
        f"{slots} {word} of up to {_show(each_bytes)} of memory ({key}) are "
        f"{_show(slots * each_bytes)}, and this machine has {_show(max(0, usable))} for programs "
        f"({_show(total_bytes)} less {_show(reserve_bytes)} for the system)"
    )
    ways = []
    if (fewer := max(0, usable) // each_bytes) and slots > 1:
        ways.append(f"slots = {fewer}")
    if (smaller := max(0, usable) // slots // (64 * MIB) * 64) > 0:
        ways.append(f"{key} = {smaller}M")
    return f"{what}; {'set ' + ' or '.join(ways) if ways else 'give it more memory'}"


def _show(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"
