"""The producer id with its sequence numbers, for every idempotent producer, and transactions.

The rest of the producer uses `TransactionManager` only.
"""

from tailrace.client.producer.identity.manager import TransactionManager
from tailrace.client.producer.identity.operations import COMMIT
from tailrace.client.producer.identity.state import State

__all__ = ["COMMIT", "State", "TransactionManager"]
