"""Random ids, by the one source of chance that a test can seed."""

import random
from uuid import UUID


def random_uuid(chance: random.Random) -> UUID:
    """An id of version 4, as Kafka's `Uuid.randomUuid` makes them; never zero."""
    return UUID(int=chance.getrandbits(128), version=4)
