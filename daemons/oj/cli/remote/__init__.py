"""The cluster from outside: the same calls as over Thrift, through a gateway's HTTP API."""
