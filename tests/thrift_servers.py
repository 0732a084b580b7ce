"""A Thrift service of a test's own, through Thrift's own library."""

from __future__ import annotations

import socket
import threading
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TFramedTransportFactory

import servers


class ThriftServer(TThreadedServer):
    """Serves until it is closed; the library's own loop goes on then, as fast as it can."""

    def __init__(self, processor: Any) -> None:
        self.port = servers.free_port()
        super().__init__(
            processor,
            TServerSocket("127.0.0.1", self.port),
            TFramedTransportFactory(),
            TBinaryProtocolFactory(),
            daemon=True,
        )
        self.serverTransport.listen()
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()

    def serve(self) -> None:
        while True:
            try:
                client = self.serverTransport.accept()
            except (AttributeError, OSError):  # closed
                return
            threading.Thread(target=self.handle, args=(client,), daemon=True).start()

    def close(self) -> None:
        self.serverTransport.handle.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join()
        self.serverTransport.close()
