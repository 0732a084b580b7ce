"""oj-etcd: an etcd member, or a proxy to members, under systemd's eye."""
