"""One module per record of the metadata log: its value, and the nested structs.

The classes declare the format as those of `messages` do, and are generated likewise.
`metadata_log_records` reads and writes the numbers in front of them.
"""
