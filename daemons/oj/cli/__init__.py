"""The command `oj`."""
