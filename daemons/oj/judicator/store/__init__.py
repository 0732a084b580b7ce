"""Everything that is kept in MongoDB: the only part that knows pymongo.

`database` is the way there; each other module owns one or two collections, with
every query that is made on them and the indexes that these need.
"""
