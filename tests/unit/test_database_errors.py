"""Which failures of the database are told as 'try again'."""

from __future__ import annotations

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
)

from oj.judicator.store.database import is_passing

FULL = "28: No space left on device"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (AutoReconnect("away"), True),
        (OperationFailure("not primary", 10107), True),
        (OperationFailure("operation was interrupted", 11601), True),
        (OperationFailure(FULL, 8), True),
        (BulkWriteError({"writeErrors": [{"code": 8, "errmsg": FULL}]}), True),
        (BulkWriteError({"writeErrors": [{"code": 10107, "errmsg": "not primary"}]}), True),
        (BulkWriteError({"writeErrors": [{"code": 11000, "errmsg": "twice"}]}), False),
        (DuplicateKeyError("twice", 11000), False),
        (OperationFailure("bad query", 2), False),
    ],
)
def test_what_may_pass_is_told_from_what_will_not(error: PyMongoError, passes: bool) -> None:
    assert is_passing(error) is passes
