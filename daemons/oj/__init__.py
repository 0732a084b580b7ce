"""oj: an online judge as a cluster of systemd daemons."""

__version__ = "0.1.0"
