"""Partitions as a broker serves them: a log, its leader epoch, and the requests that wait."""
