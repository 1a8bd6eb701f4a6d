"""One module per type of coordinator record: its key, its value, and their nested structs.

The classes declare the format as those of `messages` do, and are generated likewise.
`coordinator_records` reads and writes the number in front of them: the type of a key, the version
of a value.
"""
