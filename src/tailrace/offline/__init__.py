"""Log directories without a broker: what is in them, and whether it is whole.

Everything here only reads: it works on a read-only mount, on a backup, and beside a live broker.
"""
