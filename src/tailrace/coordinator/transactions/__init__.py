"""The transaction coordinator: which transactions are open, and how each of them ends.

    state, transitions               a transaction as a value, and the values that may follow it
    init_producer_id, adding, ending what a request makes of a transaction: pure decisions
    records                          a transaction as a record of `__transaction_state`
    machine                          the transactions of one partition, and their deadlines
    markers                          what comes after a prepared end: markers, then its completion
    leader_markers                   a marker on its way to the log of a partition
    coordinator                      requests to all partitions that this broker leads

Decisions answer with Kafka's error codes, as replies: a refusal, too, waits until the records are
committed that it rests on.
"""
