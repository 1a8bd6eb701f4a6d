"""State machines of groups and transactions, whose state is a partition of an internal topic.

    decide(request) -> records and a reply      live traffic
    replay(record)  -> the state changes        live traffic and recovery, the same function

Groups and transactions are two users of this room's `Shard`; nothing in it knows either.

Not here: the wire (`handlers`), and how a log is written (`replication`); `broker` joins them.
"""
