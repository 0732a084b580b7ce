"""Sees to it that a secondary copies from the primary.

mongod refuses a source for 10 s after one call to it has failed, and be it only because it was made
over a connection from before the other machine lost its power. There is no setting for that, and no
other source, as all copy from the primary. After the loss of one of three members both others are
needed, and no write would be confirmed for as long. A source that is asked for is not refused.
"""

from __future__ import annotations

import logging
import threading

from oj.child import Silent
from oj.errors import Unavailable
from oj.mongodb.replicaset import Node, State

LOOK_EVERY_S = 0.25
SELDOM_S = 2.0  # who is no secondary looks less often; each look at a rollback is a line in the log
# So many looks in a row must find none. mongod itself looks for a source once a second, so that
# there is nothing to gain by asking sooner, and a new primary's is often found by then.
LOOKS = 3
REST = 6  # looks after it has asked, before it asks again

log = logging.getLogger("oj.mongodb")


class Patience:
    """When to ask, by what each look has found."""

    def __init__(self) -> None:
        self._left = LOOKS

    def is_over(self, state: State) -> bool:
        if state.word != "secondary" or not state.primary or state.source:
            self._left = LOOKS
            return False
        self._left -= 1
        if self._left > 0:
            return False
        self._left = REST
        return True


class SourceWatch:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)

    def __enter__(self) -> SourceWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        patience = Patience()
        pause_s = LOOK_EVERY_S
        while not self._stop.wait(pause_s):
            try:
                state = self._node.glance()
                pause_s = LOOK_EVERY_S if state.word == "secondary" else SELDOM_S
                if patience.is_over(state):
                    log.info("copies from nobody: asks for the primary, %s", state.primary)
                    self._node.copy_from(state.primary)
            except (Silent, Unavailable) as error:
                log.debug("cannot see to the source: %s", error)  # the check tells, if it lasts
            except Exception:
                log.exception("cannot see to the source")
