"""What uWSGI loads in each of its processes."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from oj import redact
from oj.gateway.app import make_app
from oj.gateway.settings import load


class _Levelled(redact.Formatter):
    """Puts the level in front of each line, for the daemon that copies them to the journal."""

    _NUMBERS = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))

    def format(self, record: logging.LogRecord) -> str:
        number = next((n for level, n in self._NUMBERS if record.levelno >= level), 7)
        return "\n".join(f"<{number}>{line}" for line in super().format(record).splitlines())


_handler = logging.StreamHandler(sys.stderr)
_handler.setFormatter(_Levelled("%(message)s"))
logging.getLogger().handlers[:] = [_handler]
logging.getLogger().setLevel(logging.INFO)
redact.install_hooks(logging.getLogger("oj.gateway"))

application = make_app(load(Path(os.environ["OJ_GATEWAY_CONF"])))
