"""One partition's log, and the directory of logs: files, indexes, recovery.

Synchronous, one writer per log. The owner of a log calls on a worker thread what may wait on a
device. Nothing here knows the wire protocol, sockets or Spark.
"""
