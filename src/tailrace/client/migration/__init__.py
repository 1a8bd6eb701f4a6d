"""Moves a live cluster from some brokers to others, through the operations of `Admin` alone.

    survey      the state of the cluster that a move depends on
    plan        where each replica goes, and what prevents the move: pure
    throttles   the settings of KIP-73 for partitions that move
    moving      the move itself: batches, leaders, and the old brokers' registrations

Each is steps without I/O, as the operations of `admin` (decisions 44 and 81).

Invariant: everything that a later run needs is in the cluster: there is no file of its own.
"""
