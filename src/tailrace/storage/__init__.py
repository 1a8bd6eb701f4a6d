"""One partition's log, and the directory of logs: files, indexes, recovery.

Synchronous, one writer per log. What may wait on a device is called from a thread by whoever owns
the log. Nothing here knows the wire protocol, sockets or Spark.
"""
