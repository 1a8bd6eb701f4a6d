"""Who the producer is to the brokers, and its transactions; the first part is always on.

`TransactionManager` is what the rest of the producer sees.
"""

from tailrace.client.producer.transactions.manager import COMMIT, TransactionManager
from tailrace.client.producer.transactions.state import State

__all__ = ["COMMIT", "State", "TransactionManager"]
