"""The transaction coordinator: which transactions are open, and how each of them ends.

    state                  a transaction as a value, and the values that may follow it
    requests               what a request makes of a transaction: pure decisions
    records                a transaction as a record of `__transaction_state`
    machine                the transactions of one partition, and their deadlines
    markers                what comes after a prepared end: markers, then its completion
    coordinator            requests to all partitions that this broker leads
    add_partitions_to_txn  the one request that comes from producers and from brokers

Decisions answer with Kafka's error codes, as replies: a refusal, too, waits until the records are
committed that it rests on.
"""
