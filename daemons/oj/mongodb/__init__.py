"""oj-mongodb: a mongod and its place in the replica set, under systemd's eye."""
