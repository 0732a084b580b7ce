"""Backups: what is kept in MongoDB, in one file, and back.

`container` is the file, `contents` what it says of itself; these two know no
database. `snapshot` reads a running cluster, `writing` makes the file of it, and
`restoring` fills an empty cluster from one.
"""
