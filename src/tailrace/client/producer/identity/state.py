"""`State`: the states of an idempotent producer, and the allowed changes between them.

    UNINITIALIZED ─ INITIALIZING ─ READY ─ IN_TRANSACTION ─┬─ COMMITTING ── READY, or INITIALIZING
          ▲                                    │           └─ ABORTING ──── for a new epoch
          └─────────────────────────── ABORTABLE_ERROR ────────┘
                                         PREPARED: the transaction is in other hands
                                         FATAL_ERROR: from anywhere, and only `close` is left

Without a transactional id it goes to READY by itself and stays there.

Not here: the requests that change the state (`flow`).
"""

from enum import Enum

from tailrace.client.producer.errors import TransactionStateError


class State(Enum):
    """A state of the producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a failed transaction"
    PREPARED = "done with its transaction, which others end"
    FATAL_ERROR = "failed"


REACHED_FROM: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.IN_TRANSACTION, State.COMMITTING, State.INITIALIZING}),
    State.PREPARED: frozenset({State.IN_TRANSACTION}),
    State.FATAL_ERROR: frozenset(State),
}
"""The states from which each state may be reached."""


def misplaced(state: State, call: str) -> TransactionStateError:
    """The error for a call that is not allowed in a state."""
    return TransactionStateError(f"{call} is not allowed: the producer is {state.value}")
