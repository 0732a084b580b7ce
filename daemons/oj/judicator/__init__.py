"""The judicator: keeps tasks in MongoDB and hands them to executors."""
