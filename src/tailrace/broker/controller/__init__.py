"""A controller of our own: a quorum of one voter, whose log is Kafka's.

    start         opens the directory, and makes or checks the node
    node          the node: its port, its answers, its periodic work
    log_writer    decisions of many requests, on the device by one flush
    log_answers   what is answered about the log, as it is or in memory
    own_metadata  the images, to a broker in the same process

The rules are in `cluster.control`, the log in `cluster.metadata`. Nothing here is imported by a
broker that has no controller listener.
"""
