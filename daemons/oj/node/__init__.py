"""This machine as a node of a cluster: its conf files, data directories, units and address."""
