"""The cluster is broken on purpose, under load, and must not lose, double or change a task.

Theory of operation:

- Six machines of the bed (tests/bed): judicators j1 j2 j3, executors e1 e2 and the client host c1
  (cluster.py). Faults (power.py, wires.py, ...) break one or several of them and mend them again;
  a plan (plan.py) says which ones in which order, from a seed.
- On c1 one program (load.py) adds, awaits, cancels, reads and searches tasks all the time and
  writes every call with its answer as one line of JSON. It also looks at the cluster for us, and
  reads what the database itself wrote down (the oplog). All machines have the host's monotonic
  clock, so times of different machines may be compared.
- In the end the checker (checker.py), a pure function of those lines (history.py), decides whether
  every acknowledged task has exactly one result, and figures.py reads from the same lines and from
  the journals how long things took.

`tests/faults/run --help` says how to run it.
"""
