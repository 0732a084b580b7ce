"""The network of a bed: a bridge in a namespace of its own, one cable per machine, and scissors.

A machine has its interface `host0` in its own namespace; the other end is a port of the bridge and
bears the machine's name. Cables are cut by an nft table of family bridge, so that peers see
silence, as with a real cable, and not a closed connection.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from .errors import BedError, CommandFailed
from .tools import call

NETWORK = "10.66.0"
PREFIX_BITS = 24
OUTSIDE = 254  # the bridge itself: where tests sit that are in no machine
BRIDGE = "bridge0"
RULES = """
table bridge bed {
    set alone { type ifname; }
    set apart { type ifname . ifname; }
    chain forward {
        type filter hook forward priority 0;
        iifname @alone drop
        oifname @alone drop
        iifname . oifname @apart drop
    }
    chain input {
        type filter hook input priority 0;
        iifname @alone drop
    }
    chain output {
        type filter hook output priority 0;
        oifname @alone drop
    }
}
"""


class Network:
    """One bridge; machines are known to it by their names."""

    def __init__(self, name: str) -> None:
        self.namespace = name
        self._numbers: dict[str, int] = {}

    def make(self) -> None:
        call("ip", "netns", "add", self.namespace)
        self._ip(
            self.namespace,
            "link set lo up",
            f"link add {BRIDGE} address {_hardware(OUTSIDE)} type bridge forward_delay 0",
            f"address add {NETWORK}.{OUTSIDE}/{PREFIX_BITS} dev {BRIDGE}",
            f"link set {BRIDGE} up",
        )
        self._nft(RULES)

    def add(self, machine: str, number: int | None = None) -> None:
        """Give a machine its address; `number` repeats one given before."""
        known = number is not None
        number = number or max(self._numbers.values(), default=0) + 1
        if number >= OUTSIDE:
            raise BedError(f"a bed has room for {OUTSIDE - 1} machines")
        if not known:
            for name in self._numbers:
                if self.path_of(name).exists():
                    self._ip(self.namespace_of(name), _neighbour(number, "host0"))
            self._ip(self.namespace, _neighbour(number, BRIDGE))
        self._numbers[machine] = number

    def number(self, machine: str) -> int:
        return self._numbers[machine]

    def address(self, machine: str) -> str:
        return f"{NETWORK}.{self._numbers[machine]}"

    def hosts(self) -> str:
        """The text of /etc/hosts for every machine."""
        lines = ["127.0.0.1 localhost", f"{NETWORK}.{OUTSIDE} outside"]
        lines += [f"{self.address(machine)} {machine}" for machine in self._numbers]
        return "\n".join(lines) + "\n"

    def namespace_of(self, machine: str) -> str:
        return f"{self.namespace}-{machine}"

    def path_of(self, machine: str) -> Path:
        return Path("/run/netns") / self.namespace_of(machine)

    def plug_in(self, machine: str) -> None:
        """Make the machine's namespace with its cable.

        A boot gets a fresh one: connections of before a power-off must not live on in the kernel.
        Everybody knows everybody's hardware address beforehand: otherwise a cut would also stop
        the questions for it, and a healed network would be silent for up to a second more.
        """
        self.unplug(machine)
        namespace = self.namespace_of(machine)
        number = self._numbers[machine]
        call("ip", "netns", "add", namespace)
        self._ip(
            self.namespace,
            f"link add {machine} type veth "
            f"peer name host0 address {_hardware(number)} netns {namespace}",
            f"link set {machine} master {BRIDGE} up",
        )
        others = [other for other in (*self._numbers.values(), OUTSIDE) if other != number]
        self._ip(
            namespace,
            "link set lo up",
            "link set host0 up",
            f"address add {self.address(machine)}/{PREFIX_BITS} dev host0",
            *(_neighbour(other, "host0") for other in others),
        )

    def unplug(self, machine: str) -> None:
        """Take the cable away at once; what still runs in the machine reaches nobody."""
        with suppress(CommandFailed):
            self._ip(self.namespace, f"link delete {machine}")
        with suppress(CommandFailed):
            call("ip", "netns", "delete", self.namespace_of(machine))

    def cut(self, one: str, other: str | None = None, *, one_way: bool = False) -> None:
        """Cut `one` off from everybody, or only from `other`.

        With one_way only packets from `one` to `other` are lost.
        """
        self._change("add", one, other, one_way)

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Undo the cut between two machines, all cuts of one machine, or every cut."""
        if one is None:
            self._nft("flush set bridge bed alone; flush set bridge bed apart")
            return
        peers = [other] if other else [name for name in self._numbers if name != one]
        if other is None:
            self._change("delete", one, None, False)
        for peer in peers:
            self._change("delete", one, peer, False)

    def split(self, *sides: list[str]) -> None:
        """Cut every machine off from those of the other sides."""
        for index, side in enumerate(sides):
            for other_side in sides[index + 1 :]:
                for one in side:
                    for other in other_side:
                        self.cut(one, other)

    def _change(self, verb: str, one: str, other: str | None, one_way: bool) -> None:
        for name in (one, other):
            if name is not None and name not in self._numbers:
                raise BedError(f"there is no machine {name} in this network")
        # Deleting what is not in a set is an error, so it is added first.
        if other is None:
            elements = [("alone", f'"{one}"')]
        else:
            elements = [("apart", f'"{one}" . "{other}"')]
            if not one_way:
                elements.append(("apart", f'"{other}" . "{one}"'))
        verbs = ["add", "delete"] if verb == "delete" else ["add"]
        self._nft(
            "\n".join(
                f"{word} element bridge bed {name} {{ {element} }}"
                for word in verbs
                for name, element in elements
            )
        )

    def _ip(self, namespace: str, *lines: str) -> None:
        call("ip", "-n", namespace, "-batch", "-", input_text="\n".join(lines) + "\n")

    def _nft(self, text: str) -> None:
        # `ip netns exec` would remount /sys, which is not needed here.
        call("nsenter", f"--net=/run/netns/{self.namespace}", "nft", "-f", "-", input_text=text)


def _hardware(number: int) -> str:
    return f"02:6f:6a:00:00:{number:02x}"


def _neighbour(number: int, device: str) -> str:
    address = f"{NETWORK}.{number}"
    return f"neighbour replace {address} lladdr {_hardware(number)} dev {device} nud permanent"
