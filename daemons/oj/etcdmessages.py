"""The messages of etcd's interface about members, written and read by hand.

python3-etcd3 carries the interface of etcd 3.3, which knows no learners: its MemberAdd cannot ask
for one, its Member and Status cannot say that they are one, and MemberPromote is not there. The few
messages are small and part of etcd's stable interface (etcdserverpb/rpc.proto), so they are put
together here from protobuf's two plain shapes, a number and a string of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Value = int | str | bytes
Fields = dict[int, list[int | bytes]]

_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Member:
    """A member as the cluster lists it; one that was never started has neither name nor clients."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool = False


@dataclass(frozen=True)
class MemberStatus:
    """What one member says of itself, without asking the others."""

    version: str
    id: int
    leader_id: int
    db_size_bytes: int
    cluster_id: int = 0
    revision: int = 0
    learner: bool = False


def write(fields: Iterable[tuple[int, Value]]) -> bytes:
    """A message of these fields, numbered as in the .proto file."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += _write_number(number << 3 | _NUMBER) + _write_number(int(value))
        else:
            text = value.encode() if isinstance(value, str) else value
            out += _write_number(number << 3 | _BYTES) + _write_number(len(text)) + text
    return bytes(out)


def read(data: bytes) -> Fields:
    """The fields of a message; ValueError when it is none."""
    fields: Fields = {}
    at = 0
    while at < len(data):
        key, at = _read_number(data, at)
        value: int | bytes
        if key & 7 == _NUMBER:
            value, at = _read_number(data, at)
        else:
            if key & 7 == _BYTES:
                length, at = _read_number(data, at)
            elif key & 7 in (_FIXED64, _FIXED32):
                length = 8 if key & 7 == _FIXED64 else 4
            else:
                raise ValueError(f"field of an unknown kind {key & 7}")
            value, at = data[at : at + length], at + length
            if at > len(data):
                raise ValueError("the message ends within a field")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def write_add(peer_url: str, learner: bool) -> bytes:
    return write([(1, peer_url), (2, learner)])


def write_update(member_id: int, peer_url: str) -> bytes:
    return write([(1, member_id), (2, peer_url)])


def write_id(member_id: int) -> bytes:
    """The request of MemberRemove and of MemberPromote."""
    return write([(1, member_id)])


def read_members(data: bytes) -> tuple[int, list[Member]]:
    """The cluster's id and the members of an answer to MemberList."""
    fields = read(data)
    return _number(_header(fields), 1), [_read_member(raw) for raw in _all_bytes(fields, 2)]


def read_added(data: bytes) -> tuple[Member, list[Member]]:
    """The new member and all members, of an answer to MemberAdd."""
    fields = read(data)
    return _read_member(_all_bytes(fields, 2)[0]), [
        _read_member(raw) for raw in _all_bytes(fields, 3)
    ]


def read_status(data: bytes) -> MemberStatus:
    fields = read(data)
    header = _header(fields)
    return MemberStatus(
        version=_text(fields, 2),
        id=_number(header, 2),
        leader_id=_number(fields, 4),
        db_size_bytes=_number(fields, 3),
        cluster_id=_number(header, 1),
        revision=_number(header, 3),
        learner=bool(_number(fields, 10)),
    )


def _read_member(data: bytes) -> Member:
    fields = read(data)
    return Member(
        id=_number(fields, 1),
        name=_text(fields, 2),
        peer_urls=tuple(raw.decode() for raw in _all_bytes(fields, 3)),
        client_urls=tuple(raw.decode() for raw in _all_bytes(fields, 4)),
        learner=bool(_number(fields, 5)),
    )


def _header(fields: Fields) -> Fields:
    return read(b"".join(_all_bytes(fields, 1)))


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _text(fields: Fields, number: int) -> str:
    return b"".join(_all_bytes(fields, number)[-1:]).decode()


def _all_bytes(fields: Fields, number: int) -> list[bytes]:
    return [value for value in fields.get(number, []) if isinstance(value, bytes)]


def _write_number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message ends within a number")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
