"""What a judicator can be asked, in the model's terms, and how blobs travel.

Large data of a task becomes blobs by itself: a caller adds a task and need not
know the limits of the wire. How a call reaches a judicator is for the client.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Self

from oj import codec, model, pieces
from oj.clock import Deadline
from oj.errors import Missing, Oversized, Unavailable
from oj.link import FRAME_BYTES
from oj.rpc import ttypes as rpc
from oj.tokens import make_secret

TIMEOUT_S = 10.0  # of a call that is given no deadline
ANSWER_S = 0.3  # kept of a deadline for the answer to a wait
UPLOAD_BYTES_PER_S = 1 << 20  # the slowest transfer that is worth waiting for
BATCH_INLINE_BYTES = FRAME_BYTES - (4 << 20)  # leaves room for what is not data

REJUDGED = "rejudge:"
GET_SUMMARY, GET_TASK, GET_RESULT, GET_ATTEMPTS, GET_ALL = 0, 1, 2, 4, 7


class Calls(ABC):
    """What a judicator can be asked, in the model's terms."""

    @abstractmethod
    def _call(
        self,
        method: str,
        *arguments: Any,
        deadline: Deadline | None = None,
        wait_s: float = 0.0,
        once: bool = False,
    ) -> Any:
        """The judicator's answer; `once`: no other one is asked when it does not come."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connections that no call is using."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ping(self, deadline: Deadline | None = None) -> None:
        """Returns if a judicator can serve."""
        self._call("ping", deadline=deadline)

    def version(self, deadline: Deadline | None = None) -> rpc.Version:
        return self._call("version", deadline=deadline)

    def add(self, task: model.Task, deadline: Deadline | None = None) -> str:
        """Adds the task once, however often it has to be sent, and returns its id."""
        return self.add_many([task], deadline)[0]

    def add_many(self, tasks: Sequence[model.Task], deadline: Deadline | None = None) -> list[str]:
        """Adds all or none; ids in the same order. Large data travels as blobs."""
        keyed = [t if t.key is not None else replace(t, key=os.urandom(16).hex()) for t in tasks]
        return self._add(self._store_large(keyed, deadline), deadline)

    def _add(self, tasks: Sequence[model.Task], deadline: Deadline | None) -> list[str]:
        sent = [codec.task_to_rpc(task) for task in tasks]
        if len(sent) == 1:
            return [self._call("add", sent[0], deadline=deadline)]
        return list(self._call("addMany", sent, deadline=deadline))

    def rejudge(self, task_id: str, deadline: Deadline | None = None) -> str:
        """Adds the same task once more, tagged with the first one's id; the new id."""
        info = self.get(task_id, GET_TASK, deadline)
        assert info.task is not None
        tags = {tag for tag in info.task.tags if not tag.startswith(REJUDGED)}
        again = replace(
            info.task, key=None, tags=frozenset({*tags, f"{REJUDGED}{task_id}"}), webhook=None
        )
        return self.add(again, deadline)

    def cancel(self, task_id: str, deadline: Deadline | None = None) -> bool:
        """True if this cancelled it, false if it was done already."""
        return bool(self._call("cancel", task_id, deadline=deadline))

    def get(
        self, task_id: str, what: int = GET_SUMMARY, deadline: Deadline | None = None
    ) -> model.TaskInfo:
        return codec.info_from_rpc(self._call("get", task_id, what, deadline=deadline))

    def wait(
        self,
        task_id: str,
        known: model.TaskInfo | None = None,
        wait_s: float = 20.0,
        what: int = GET_SUMMARY,
        deadline: Deadline | None = None,
    ) -> model.TaskInfo:
        """Answers when the task is no longer as `known`, or is done, or after wait_s.
        With nothing known, only its end counts."""
        status = int(known.status) if known else None
        tests_done = known.tests_done if known else -1
        if deadline:
            wait_s = min(wait_s, max(0.0, deadline.left_s - ANSWER_S))
        answer = self._call(
            "wait",
            task_id,
            status,
            int(wait_s * 1000),
            what,
            tests_done,
            deadline=deadline,
            wait_s=wait_s,
        )
        return codec.info_from_rpc(answer)

    def wait_done(
        self, task_id: str, what: int = GET_RESULT, deadline: Deadline | None = None
    ) -> model.TaskInfo:
        """The task once it is done; Unavailable if that takes past the deadline."""
        while True:
            info = self.wait(task_id, what=what, deadline=deadline)
            if info.done:
                return info
            if deadline and deadline.left_s <= ANSWER_S:
                raise Unavailable(f"task {task_id} is still {info.status.word}")

    def follow(self, task_id: str) -> Iterator[model.TaskInfo]:
        """The task as it is now, and after every change until it is done."""
        info = self.get(task_id)
        yield info
        while not info.done:
            info = self.wait(task_id, info)
            yield info

    def files(self, task_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Everything that belongs to a task, as paths and contents; see oj.pieces."""
        info = self.get(task_id, GET_TASK | GET_RESULT)
        for path, data in pieces.of_task(info):
            if isinstance(data, bytes):
                yield path, iter([data])
            elif data.inline is not None:
                yield path, iter([data.inline])
            else:
                yield path, self.get_blob(data.digest or "")

    def search(
        self,
        *,
        cursor: str = "",
        limit: int = 50,
        deadline: Deadline | None = None,
        **conditions: Any,
    ) -> tuple[list[model.TaskInfo], str]:
        """One page and the cursor of the next, empty on the last. Conditions as in the IDL."""
        page = self._call("search", rpc.Conditions(**conditions), cursor, limit, deadline=deadline)
        return [codec.info_from_rpc(info) for info in page.tasks], page.cursor or ""

    def executors(self, deadline: Deadline | None = None) -> list[rpc.ExecutorInfo]:
        return list(self._call("executors", deadline=deadline))

    def languages(self, deadline: Deadline | None = None) -> dict[str, list[str]]:
        """Every language that an executor offers now, with the versions that there are."""
        found: dict[str, set[str]] = {}
        for executor in self.executors(deadline):
            if executor.silent or executor.facts is None:
                continue
            for name, version in (executor.facts.languages or {}).items():
                found.setdefault(name, set()).add(version)
        return {name: sorted(found[name]) for name in sorted(found)}

    def judicators(self, deadline: Deadline | None = None) -> list[rpc.JudicatorInfo]:
        return list(self._call("judicators", deadline=deadline))

    def stats(self, deadline: Deadline | None = None) -> rpc.Stats:
        return self._call("stats", deadline=deadline)

    def cluster(self, deadline: Deadline | None = None) -> rpc.Cluster:
        """Who belongs to the cluster and how they fare, as one judicator sees it now.

        Rejected by a judicator that is older than this call.
        """
        return self._call("cluster", deadline=deadline)

    def announce(
        self, gateway: rpc.GatewayInfo, *, leaving: bool = False, deadline: Deadline | None = None
    ) -> None:
        """Says that a gateway serves. Rejected by a judicator that is older than this call."""
        self._call("announce", gateway, leaving, deadline=deadline)

    def drain(self, executor: str, on: bool = True, deadline: Deadline | None = None) -> None:
        self._call("drain", executor, on, deadline=deadline)

    def forget(self, executor: str, deadline: Deadline | None = None) -> None:
        """Takes an executor that is gone for good off the list.

        Missing where it is not on it; Rejected by a judicator that is older than this call.
        """
        self._call("forget", executor, deadline=deadline)

    # -------------------------------------------------------- for gateways

    def events(self, cursor: str = "", wait_s: float = 20.0, limit: int = 500) -> rpc.Events:
        """What happened to tasks after the cursor; with none, from now on."""
        return self._call("events", cursor, int(wait_s * 1000), limit, wait_s=wait_s)

    def happenings(self, cursor: str = "") -> Iterator[rpc.Events]:
        """What happens to tasks after the cursor, or from now on, without end."""
        while True:
            news = self.events(cursor, 20.0 if cursor else 0.0)
            cursor = news.cursor
            yield news

    def history(self, since_ms: int, deadline: Deadline | None = None) -> list[rpc.Minute]:
        return list(self._call("history", since_ms, deadline=deadline))

    def add_token(self, token: rpc.Token, secret: str, deadline: Deadline | None = None) -> Any:
        return self._call("addToken", token, hash_secret(secret), deadline=deadline)

    def issue_token(
        self, token: rpc.Token, deadline: Deadline | None = None
    ) -> tuple[rpc.Token, str]:
        """Adds it with a new secret, which is told this once; also what signs its webhooks."""
        secret = make_secret()
        made = self.add_token(token, secret, deadline)
        made.webhook_secret = self.find_token(secret, deadline).webhook_secret
        return made, secret

    def find_token(self, secret: str, deadline: Deadline | None = None) -> rpc.Token:
        """Missing if there is none (any more)."""
        return self._call("findToken", hash_secret(secret), deadline=deadline)

    def tokens(self, deadline: Deadline | None = None) -> list[rpc.Token]:
        return list(self._call("tokens", deadline=deadline))

    def remove_token(self, token_id: str, deadline: Deadline | None = None) -> None:
        self._call("removeToken", token_id, deadline=deadline)

    def spend(self, token_id: str, tasks: int, deadline: Deadline | None = None) -> rpc.Quota:
        return self._call("spend", token_id, tasks, deadline=deadline)

    def store(
        self, user: str, amount_bytes: int, most_bytes: int, deadline: Deadline | None = None
    ) -> rpc.Quota:
        """Rejected by a judicator that is older than this call."""
        return self._call("store", user, amount_bytes, most_bytes, deadline=deadline)

    def claim_hooks(
        self,
        limit: int = 20,
        busy_users: Sequence[str] = (),
        busy_receivers: Sequence[str] = (),
    ) -> list[rpc.Hook]:
        return list(self._call("claimHooks", limit, list(busy_users), list(busy_receivers)))

    def finish_hook(self, task_id: str, attempt: int, delivered: bool, message: str = "") -> None:
        self._call("finishHook", task_id, attempt, delivered, message)

    def report(
        self,
        executor: str,
        incarnation: str,
        complete: list[rpc.Completed],
        executing: list[rpc.Executing],
        vacant: int,
        facts: rpc.Facts | None,
        wait_ms: int,
        number: int,
        settled: int,
        deadline: Deadline | None = None,
    ) -> rpc.ReportReply:
        """One try; after Unavailable the next report goes to another judicator."""
        return self._call(
            "report",
            executor,
            incarnation,
            complete,
            executing,
            vacant,
            facts,
            wait_ms,
            number,
            settled,
            deadline=deadline,
            wait_s=wait_ms / 1000,
            once=True,
        )

    # ---------------------------------------------------------------- blobs

    def has_blobs(self, digests: Iterable[str], deadline: Deadline | None = None) -> set[str]:
        """Those that are stored."""
        return set(self._call("hasBlobs", set(digests), deadline=deadline))

    def put_blob(self, content: bytes | Path, deadline: Deadline | None = None) -> str:
        """Stores the content, unless it is stored already, and returns its digest."""
        digest = digest_of(content)
        self.put_blobs({digest: content}, deadline)
        return digest

    def put_blobs(
        self, contents: Mapping[str, bytes | Path], deadline: Deadline | None = None
    ) -> None:
        """Stores those of the contents, by digest, that are not stored already."""
        if not contents:
            return
        stored = self.has_blobs(contents, deadline)
        for digest, content in contents.items():
            if digest not in stored:
                self._upload(digest, content, deadline)

    def _upload(self, digest: str, content: bytes | Path, deadline: Deadline | None) -> None:
        size_bytes = _size_bytes(content)
        if size_bytes > model.BLOB_BYTES:
            raise Oversized(f"larger than {model.BLOB_BYTES} bytes", model.BLOB_BYTES)
        deadline = deadline or Deadline(TIMEOUT_S + size_bytes / UPLOAD_BYTES_PER_S)
        offset = 0
        while True:
            chunk = _chunk(content, offset)
            last = offset + len(chunk) >= size_bytes
            # The answer says where to go on: from the start, if the call had to
            # move to a judicator that does not have the beginning.
            offset = self._call("putBlob", digest, offset, chunk, last, deadline=deadline)
            if offset >= size_bytes:
                return
            deadline.check(f"upload of blob {digest}")

    def get_blob(self, digest: str, deadline: Deadline | None = None) -> Iterator[bytes]:
        """The blob's content in pieces, not checked against the digest."""
        offset = 0
        while True:
            piece = self._call("getBlob", digest, offset, model.CHUNK_BYTES, deadline=deadline)
            if piece:
                yield piece
            offset += len(piece)
            # A short piece is the last one.
            if len(piece) < model.CHUNK_BYTES:
                return

    def get_blob_piece(
        self, digest: str, offset: int, length: int, deadline: Deadline | None = None
    ) -> bytes:
        """Up to `length` (and CHUNK_BYTES) bytes from an offset; empty past the end."""
        return bytes(self._call("getBlob", digest, offset, length, deadline=deadline))

    def blob_size(self, digest: str, deadline: Deadline | None = None) -> int:
        """How long a stored blob is; Missing if it is not stored."""
        if digest not in self.has_blobs([digest], deadline):
            raise Missing(f"there is no blob {digest}", digest)
        # Sending what is stored already is answered with its length.
        return int(self._call("putBlob", digest, 0, b"", False, deadline=deadline))

    def fetch_blob(self, digest: str, into: BinaryIO, deadline: Deadline | None = None) -> int:
        """Writes the blob, checks it against its digest, and returns its length."""
        sha256, size_bytes = hashlib.sha256(), 0
        for piece in self.get_blob(digest, deadline):
            sha256.update(piece)
            into.write(piece)
            size_bytes += len(piece)
        if sha256.hexdigest() != digest:
            raise Unavailable(f"blob {digest} arrived damaged")
        return size_bytes

    def _store_large(
        self, tasks: Sequence[model.Task], deadline: Deadline | None
    ) -> list[model.Task]:
        """The tasks with blobs in place of what is too large to be sent inline."""
        large = choose_blobs(tasks)
        if not large:
            return list(tasks)
        digests = {content: digest_of(content) for content in large}
        self.put_blobs({digest: content for content, digest in digests.items()}, deadline)

        def move(data: model.Data | None) -> Any:
            if data is None or data.inline is None or data.inline not in digests:
                return data
            return model.Data(digest=digests[data.inline])

        return [
            replace(
                task,
                source=tuple(replace(f, data=move(f.data)) for f in task.source),
                data=tuple(replace(f, data=move(f.data)) for f in task.data),
                tests=tuple(
                    replace(t, input=move(t.input), expected=move(t.expected)) for t in task.tests
                ),
            )
            for task in tasks
        ]


def choose_blobs(tasks: Sequence[model.Task]) -> list[bytes]:
    """Which inline contents have to become blobs: each that is too large itself, and
    the largest of those that are too much together, in one task or in the request."""
    chosen: dict[bytes, None] = {}
    total_bytes = 0
    kept: list[bytes] = []
    for task in tasks:
        inline = [
            data.inline
            for data in (
                *(file.data for file in (*task.source, *task.data)),
                *(data for test in task.tests for data in (test.input, test.expected)),
            )
            if data is not None and data.inline is not None
        ]
        task_bytes = sum(map(len, inline))
        for content in sorted(inline, key=len, reverse=True):
            if len(content) > model.INLINE_BYTES or task_bytes > model.TASK_INLINE_BYTES:
                chosen[content] = None
                task_bytes -= len(content)
            else:
                kept.append(content)
        total_bytes += task_bytes
    for content in sorted(kept, key=len, reverse=True):
        if total_bytes <= BATCH_INLINE_BYTES:
            break
        chosen[content] = None
        total_bytes -= len(content)
    return list(chosen)


def _size_bytes(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def digest_of(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_secret(secret: str) -> str:
    """What is told of a token's secret. It is random and long, so that a plain hash hides it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _chunk(content: bytes | Path, offset: int) -> bytes:
    if isinstance(content, bytes):
        return content[offset : offset + model.CHUNK_BYTES]
    with content.open("rb") as file:
        file.seek(offset)
        return file.read(model.CHUNK_BYTES)
