"""Compaction: of each key only the newest record stays. Decisions, rewriting, and the exchange.

Not here: who cleans when. No thread, no timer, and no checkpoint of what was cleaned.
"""
