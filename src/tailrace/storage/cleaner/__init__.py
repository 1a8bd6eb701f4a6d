"""Compaction: keep only the newest record of each key. Planning, rewriting, exchange of segments.

No thread and no timer here: `broker.cleaning` decides when a log is compacted.
"""
