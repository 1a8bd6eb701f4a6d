"""Partitions as a broker serves them: a log, its leader's epoch, and who waits for it."""
