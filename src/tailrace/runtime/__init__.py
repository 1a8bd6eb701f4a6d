"""The seams to the outside world: clock, files, network, threads and randomness.

Everything that could differ between two runs goes through one of these seams, so that a test can
replace it by a double (`tailrace.testing`). Nothing here knows Kafka. `system` has all of them in
one value; importing it imports asyncio, which the tools for files do not need.
"""
