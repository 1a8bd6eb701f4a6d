"""`Operations`: which call of the user is allowed now, and the one whose outcome is still due.

If a caller gave up waiting for an operation, the same call returns the same `PendingOperation`, and
every other call is refused until then.
"""

from collections.abc import Callable
from typing import Final

from tailrace.client.nodes import AuthenticationError
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tailrace.client.producer.identity.flow import TransactionFlow
from tailrace.client.producer.identity.requests import PendingOperation
from tailrace.client.producer.identity.state import State, misplaced

COMMIT: Final = "commit_transaction"
"""Name of the operation whose unknown outcome the caller must get before the next transaction."""


class Operations:
    """The calls of one producer's user.

    The checks raise TransactionStateError in a wrong state, TransactionAbortableError in a failed
    transaction, and ProducerFencedError once another producer uses the transactional id.
    """

    def __init__(self, flow: TransactionFlow) -> None:
        self._flow = flow
        self._operation: tuple[str, PendingOperation] | None = None

    @property
    def unsettled(self) -> tuple[str, PendingOperation] | None:
        """The name and operation whose outcome the caller has not got yet, or None."""
        operation = self._operation
        return None if operation is None or operation[1].is_taken else operation

    def begin(self, name: str, start: Callable[[PendingOperation], None]) -> PendingOperation:
        """Start an operation, or return the same one if its caller gave up waiting for it."""
        self._check_transactional()
        self.check_settled(name)
        operation = self.unsettled
        if operation is None:
            before = self._flow.state
            # Set first: after Ctrl-C in `start`, a commit that was begun must still be known.
            try:
                operation = self._operation = (name, PendingOperation())
                start(operation[1])
            except BaseException:
                if self._flow.state is before:
                    self._operation = None
                raise
        return operation[1]

    def prepare(self) -> PreparedTransaction | None:
        """Give the open transaction away, once every batch is in the log; None if it is empty.

        From then on the producer can only be closed, which leaves the transaction open.
        """
        self.check("prepare_transaction")
        flow = self._flow
        if flow.state is not State.IN_TRANSACTION:
            raise misplaced(flow.state, "prepare_transaction")
        flow.move(State.PREPARED)
        if not flow.is_started:
            return None
        known = flow.sequences.producer
        return PreparedTransaction(
            flow.transactional_id or "", known.id, known.epoch, flow.version.level
        )

    def check(self, name: str) -> None:
        """Check that a call is allowed now."""
        self._check_transactional()
        self.check_settled(name)
        self.check_failure(name)

    def _check_transactional(self) -> None:
        if self._flow.transactional_id is None:
            raise TransactionStateError("set transactional.id to use transactions")

    def check_settled(self, name: str) -> None:
        """Check that the caller has got the outcome of every other operation."""
        operation = self.unsettled
        if operation is not None and operation[0] != name:
            advice = (
                "call finish_transaction() first, which waits for it and commits nothing else"
                if operation[0] == COMMIT
                else "the next transaction() waits for it before it begins"
            )
            raise TransactionStateError(
                f"{name}: the outcome of {operation[0]} has not been reported yet; {advice}"
            )

    def check_failure(self, name: str) -> None:
        """Check that neither the transaction nor the producer has failed."""
        if self._flow.state is State.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"{name}: the transaction has failed, abort it: {self._flow.error}"
            ) from self._flow.error
        if self._flow.state is State.FATAL_ERROR:
            kinds = (ProducerFencedError, AuthenticationError)
            kind = next((each for each in kinds if isinstance(self._flow.error, each)), None)
            raise (kind or TransactionStateError)(
                f"{name}: the producer has failed, close it: {self._flow.error}"
            ) from self._flow.error
