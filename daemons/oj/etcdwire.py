"""The wire to one etcd endpoint: the only user of gRPC and of the etcd library.

A Connection makes calls with a deadline each and turns every failure of the library into
`Unavailable` (or LeaseGone), so that nothing of gRPC leaves this module. What the calls mean is
registry's affair (keys, leases, election) and that of the package oj.etcd (members).

gRPC does not survive a fork: connect after forking, and fork nothing that is connected.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

# gRPC's own resolver waits 3 s where there is no name server; read when grpc is imported.
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

import grpc
from etcd3 import etcdrpc

from oj import etcdmessages
from oj.errors import Unavailable
from oj.etcdmessages import Member, MemberStatus

Answer = TypeVar("Answer")

_CHANNEL_OPTIONS = (
    # gRPC would wait up to two minutes before it tries a lost server again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Connecting again starts with the name, which is looked up every 30 s at most by default.
    ("grpc.dns_min_time_between_resolutions_ms", 200),
    # A connection of this channel's own, not one that hangs in another's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class LeaseGone(Exception):
    """etcd does not know the lease (any more)."""


@dataclass(frozen=True)
class Entry:
    """A key's value, the revisions that made and last changed it, the lease it lives by (or 0)."""

    value: str
    create_revision: int
    mod_revision: int
    lease_id: int = 0


@dataclass(frozen=True)
class Alarm:
    member_id: int
    name: str  # such as NOSPACE


class Connection:
    """A channel to one endpoint (HOST:PORT)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.failures = 0  # calls in a row that got no answer
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._kv = etcdrpc.KVStub(self._channel)
        self._lease = etcdrpc.LeaseStub(self._channel)
        self._maintenance = etcdrpc.MaintenanceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    # Keys

    def range(self, key: bytes, end: bytes = b"", *, timeout_s: float) -> dict[bytes, Entry]:
        request = etcdrpc.RangeRequest(key=key, range_end=end)
        answer = self._call(self._kv.Range, request, timeout_s)
        return {pair.key: _read_entry(pair) for pair in answer.kvs}

    def put(self, key: bytes, value: str, lease_id: int, *, timeout_s: float) -> None:
        request = etcdrpc.PutRequest(key=key, value=value.encode(), lease=lease_id)
        self._call(self._kv.Put, request, timeout_s)

    def delete(self, key: bytes, *, timeout_s: float) -> bool:
        request = etcdrpc.DeleteRangeRequest(key=key)
        return bool(self._call(self._kv.DeleteRange, request, timeout_s).deleted)

    def put_if(
        self, key: bytes, seen: Entry | None, value: str, lease_id: int, *, timeout_s: float
    ) -> tuple[bool, Entry | None]:
        """Puts when the key still is as seen (or absent); then or else says what stands there."""
        put = etcdrpc.PutRequest(key=key, value=value.encode(), lease=lease_id)
        answer = self._transact(key, seen, etcdrpc.RequestOp(request_put=put), timeout_s)
        if answer.succeeded:
            revision = answer.header.revision
            made = seen.create_revision if seen else revision
            return True, Entry(value, made, revision, lease_id)
        found = answer.responses[0].response_range.kvs
        return False, _read_entry(found[0]) if found else None

    def delete_if(self, key: bytes, seen: Entry, *, timeout_s: float) -> bool:
        delete = etcdrpc.DeleteRangeRequest(key=key)
        operation = etcdrpc.RequestOp(request_delete_range=delete)
        return bool(self._transact(key, seen, operation, timeout_s).succeeded)

    # Leases

    def grant(self, ttl_s: int, *, timeout_s: float) -> tuple[int, float]:
        """The lease's number and the seconds that etcd really gives."""
        request = etcdrpc.LeaseGrantRequest(TTL=ttl_s)
        answer = self._call(self._lease.LeaseGrant, request, timeout_s)
        return answer.ID, float(answer.TTL)

    def revoke(self, lease_id: int, *, timeout_s: float) -> None:
        request = etcdrpc.LeaseRevokeRequest(ID=lease_id)
        self._call(self._lease.LeaseRevoke, request, timeout_s)

    def keep_alive(self, requests: Iterator[Any]) -> Any:
        return self._lease.LeaseKeepAlive(requests)

    # The cluster

    def members(self, *, timeout_s: float) -> list[Member]:
        """As this member knows them, which may be old; a gRPC proxy shows only itself."""
        return self.members_of(timeout_s=timeout_s)[1]

    def members_of(self, *, timeout_s: float) -> tuple[int, list[Member]]:
        """The cluster's id, too."""
        return self._ask("Cluster/MemberList", b"", etcdmessages.read_members, timeout_s)

    def add_learner(self, peer_url: str, *, timeout_s: float) -> tuple[Member, list[Member]]:
        """The new member, not started yet, and all of them."""
        request = etcdmessages.write_add(peer_url, learner=True)
        return self._ask("Cluster/MemberAdd", request, etcdmessages.read_added, timeout_s)

    def promote(self, member_id: int, *, timeout_s: float) -> None:
        self._ask("Cluster/MemberPromote", etcdmessages.write_id(member_id), bytes, timeout_s)

    def remove_member(self, member_id: int, *, timeout_s: float) -> None:
        self._ask("Cluster/MemberRemove", etcdmessages.write_id(member_id), bytes, timeout_s)

    def update_member(self, member_id: int, peer_url: str, *, timeout_s: float) -> None:
        request = etcdmessages.write_update(member_id, peer_url)
        self._ask("Cluster/MemberUpdate", request, bytes, timeout_s)

    def status(self, *, timeout_s: float) -> MemberStatus:
        return self._ask("Maintenance/Status", b"", etcdmessages.read_status, timeout_s)

    def alarms(self, *, timeout_s: float) -> list[Alarm]:
        answer = self._call(self._maintenance.Alarm, etcdrpc.AlarmRequest(), timeout_s)
        return [
            Alarm(alarm.memberID, etcdrpc.AlarmType.Name(alarm.alarm)) for alarm in answer.alarms
        ]

    def disarm(self, alarm: Alarm, *, timeout_s: float) -> None:
        request = etcdrpc.AlarmRequest(
            action=etcdrpc.AlarmRequest.DEACTIVATE,
            memberID=alarm.member_id,
            alarm=etcdrpc.AlarmType.Value(alarm.name),
        )
        self._call(self._maintenance.Alarm, request, timeout_s)

    def compact(self, revision: int, *, timeout_s: float) -> None:
        """Forgets what was before the revision, and returns when that is done."""
        request = etcdrpc.CompactionRequest(revision=revision, physical=True)
        self._call(self._kv.Compact, request, timeout_s)

    def defragment(self, *, timeout_s: float) -> None:
        """Gives back what this member's file no longer uses; it serves nobody meanwhile."""
        self._call(self._maintenance.Defragment, etcdrpc.DefragmentRequest(), timeout_s)

    def _ask(
        self, method: str, request: bytes, read: Callable[[bytes], Answer], timeout_s: float
    ) -> Answer:
        """A call whose messages the library does not know."""
        ask = self._channel.unary_unary(f"/etcdserverpb.{method}")
        try:
            return read(self._call(ask, request, timeout_s))
        except LeaseGone as error:  # NOT_FOUND
            raise Unavailable(f"etcd at {self.address}: there is no such member") from error
        except (ValueError, IndexError) as error:
            raise Unavailable(f"etcd at {self.address}: an answer that is none") from error

    def _transact(self, key: bytes, seen: Entry | None, operation: Any, timeout_s: float) -> Any:
        kind = etcdrpc.Compare
        condition = kind(
            key=key,
            result=kind.EQUAL,
            target=kind.MOD,
            mod_revision=seen.mod_revision if seen else 0,
        )
        look = etcdrpc.RequestOp(request_range=etcdrpc.RangeRequest(key=key))
        request = etcdrpc.TxnRequest(compare=[condition], success=[operation], failure=[look])
        return self._call(self._kv.Txn, request, timeout_s)

    def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        try:
            answer = method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            code = error.code()
            unheard = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            self.failures = self.failures + 1 if code in unheard else 0
            if code == grpc.StatusCode.NOT_FOUND:
                raise LeaseGone from error
            raise self.unavailable(error) from error
        except ValueError as error:  # gRPC's way to say that the channel was closed meanwhile
            raise Unavailable(f"etcd at {self.address}: connection closed") from error
        self.failures = 0
        return answer

    def unavailable(self, error: Any) -> Unavailable:
        code = error.code()
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            what = "no answer in time"
        elif code == grpc.StatusCode.UNAVAILABLE and "connect" in (error.details() or ""):
            what = "cannot be reached"
        else:
            what = error.details() or code.name
        return Unavailable(f"etcd at {self.address}: {what}")


class KeepAlive:
    """One LeaseKeepAlive stream: a request every interval, each after the answer to the last."""

    def __init__(self, connection: Connection, lease_id: int, interval_s: float) -> None:
        self._connection = connection
        self._request = etcdrpc.LeaseKeepAliveRequest(ID=lease_id)
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._arrived = threading.Event()
        self._sent_s = 0.0
        self._call: Any = None
        self.answered = False

    def answers(self) -> Iterator[tuple[float, float]]:
        """(when the request was sent, seconds to live) for each answer; 0 to live: lease gone."""
        try:
            self._call = self._connection.keep_alive(self._requests())
            if self._ended.is_set():
                self._call.cancel()
            for answer in self._call:
                self.answered = True
                yield self._sent_s, float(answer.TTL)
                self._arrived.set()
        except grpc.RpcError as error:
            raise self._connection.unavailable(error) from error
        except ValueError as error:
            address = self._connection.address
            raise Unavailable(f"etcd at {address}: connection closed") from error

    def end(self) -> None:
        self._ended.set()
        self._arrived.set()
        if self._call is not None:
            self._call.cancel()

    def _requests(self) -> Iterator[Any]:
        """Run by gRPC's own thread for the stream."""
        while not self._ended.is_set():
            self._arrived.clear()
            self._sent_s = time.monotonic()
            yield self._request
            # A server that is stopped keeps its connections open: silence is the only sign.
            if not self._arrived.wait(max(self._interval_s, 1.0)):
                self._connection.failures += 1
                if self._call is not None:
                    self._call.cancel()
                return
            self._ended.wait(self._interval_s)


def _read_entry(pair: Any) -> Entry:
    return Entry(pair.value.decode(), pair.create_revision, pair.mod_revision, pair.lease)
