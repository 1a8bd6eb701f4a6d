"""Log directories without a broker: what is in them, whether it is whole, and how to repair it.

Everything but `repair` only reads: it works on a read-only mount, on a backup, and beside a live
broker. `repair` holds the directory's lock while it changes anything.
"""
