"""The producer id with its sequence numbers, for every idempotent producer, and transactions.

The rest of the producer uses `TransactionManager` only.
"""

from tailrace.client.producer.transactions.manager import TransactionManager
from tailrace.client.producer.transactions.operations import COMMIT
from tailrace.client.producer.transactions.state import State

__all__ = ["COMMIT", "State", "TransactionManager"]
