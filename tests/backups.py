"""What tests of backup and restore share: the command, and documents as judicators store them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import Any

import servers
from oj.judicator.store.ids import IdMaker

OJ = [servers.PYTHON, str(servers.TREE / "daemons" / "bin" / "oj")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(servers.TREE / "daemons"), "LC_ALL": "C.UTF-8"}
IDS = IdMaker()


def oj(*words: object, code: int = 0) -> Any:
    done = subprocess.run(
        [*OJ, *map(str, words)], capture_output=True, env=ENVIRONMENT, timeout=120
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stderr.decode()}"
    assert b"Traceback" not in done.stderr
    return done


def quiet(_what: str, _done: int, _total: int) -> None:
    pass


def make_document(number: int, status: int = 10, **fields: Any) -> dict[str, Any]:
    document = {"_id": IDS.make(), "u": "ann", "l": "c", "p": 0, "n": 1, "s": status, "a": 1}
    return {**document, "h": number, "by": "j1:1", "b": b"task" * 50, **fields}


def store(database: Any, documents: list[dict[str, Any]]) -> None:
    """In pieces, so that no single call lasts long, however busy the machine is."""
    for at in range(0, len(documents), 500):
        database["tasks"].insert_many(documents[at : at + 500])


def make_blob(database: Any, data: bytes, piece_bytes: int = 1000) -> str:
    digest = hashlib.sha256(data).hexdigest()
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    file_id = IDS.make()
    for number, piece in enumerate(pieces):
        database["blobs.chunks"].insert_one({"files_id": file_id, "n": number, "data": piece})
    database["blobs.chunks"].create_index([("files_id", 1), ("n", 1)], name="piece", unique=True)
    database["blobs.files"].insert_one(
        {
            "_id": file_id,
            "filename": digest,
            "length": len(data),
            "chunkSize": piece_bytes,
            "uploadDate": file_id.generation_time,
        }
    )
    return digest
