"""What errors and log lines may tell: never what users wrote or what programs printed.

The journal is read by people who may not see contestants' programs, tests or secrets, and is kept
and copied. Messages of our own are written with care. Those of libraries are not: the driver's
BulkWriteError holds the whole document, UnicodeDecodeError the whole text, KeyError its key. So of
a foreign message what is quoted, and what follows a brace, is left out; where it happened, and what
kind of error it is, is always told. Values of variables are in no traceback.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

LEFT_OUT = "…"
LONGEST = 300

# Their messages are about code: names of attributes, modules, types.
_OF_CODE = (AttributeError, ImportError, NameError, TypeError)
_NAME = re.compile(r"[A-Za-z_.]{1,32}\Z")
# Not the apostrophe of "can't". To the last quote, because what is quoted may hold quotes.
_QUOTED = re.compile(r"""(?<!\w)(?:[bru]{1,2})?(?P<open>['"`]).*(?P=open)""", re.DOTALL)
_OPEN = re.compile(r"""(?<!\w)(?:[bru]{1,2})?['"`].*""", re.DOTALL)
_QUERY = re.compile(r"\?\S+")


def redact(text: str) -> str:
    """A foreign message without what it quotes, documents and queries of addresses."""
    text, brace, _ = text.partition("{")
    text = _QUOTED.sub(LEFT_OUT, text.partition(", full error")[0])
    text = _QUERY.sub(f"?{LEFT_OUT}", _OPEN.sub(LEFT_OUT, text))
    if brace:
        text += LEFT_OUT
    return text if len(text) <= LONGEST else text[:LONGEST] + LEFT_OUT


def say(error: BaseException) -> str:
    """An error's message."""
    if _is_ours(error) or isinstance(error, _OF_CODE):
        return str(error)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return repr(error.args[0]) if _NAME.match(error.args[0]) else LEFT_OUT
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        where = f": {error.filename}" if isinstance(error.filename, str) else ""
        return f"[Errno {error.errno}] {redact(error.strerror)}{where}"
    return redact(str(error))


def describe(error: BaseException) -> str:
    """An error's kind and message, as the last line of a traceback."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__") and not _is_ours(error):
        name = f"{kind.__module__}.{name}"
    text = say(error)
    return f"{name}: {text}" if text else name


def _is_ours(error: BaseException) -> bool:
    """Not those of the Thrift IDL: the other side has filled them in."""
    module = type(error).__module__
    return module.startswith("oj.") and not module.startswith("oj.rpc.")


def format_exception(error: BaseException) -> str:
    """A traceback, with what led to the error, oldest first."""
    parts: list[str] = []
    seen: set[int] = set()
    found: BaseException | None = error
    link = ""
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        frames = "".join(traceback.format_tb(found.__traceback__))
        parts.append(f"Traceback (most recent call last):\n{frames}{describe(found)}{link}")
        if found.__cause__ is not None:
            found, link = found.__cause__, "\n\nwhich led to this:\n"
        elif found.__context__ is not None and not found.__suppress_context__:
            found, link = found.__context__, "\n\nand while that was handled:\n"
        else:
            found = None
    return "\n".join(reversed(parts))


class Formatter(logging.Formatter):
    """Tells exceptions so."""

    def formatException(self, info: Any) -> str:
        return format_exception(info[1])


def install_hooks(log: logging.Logger) -> None:
    """What nobody catches goes to the log as well: Python itself would print all of it."""

    def tell_last(
        _: type[BaseException], error: BaseException, __: TracebackType | None = None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            return
        log.critical("ended by an error", exc_info=error)

    def tell_of_thread(told: threading.ExceptHookArgs) -> None:
        if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
            name = told.thread.name if told.thread else "?"
            log.error("thread %s ended by an error", name, exc_info=told.exc_value)

    def tell_of_other(told: sys.UnraisableHookArgs) -> None:
        if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
            log.error("an error that nobody could catch", exc_info=told.exc_value)

    sys.excepthook = tell_last
    threading.excepthook = tell_of_thread
    sys.unraisablehook = tell_of_other
