"""Random ids of clusters, directories and topics."""

import random

from tailrace.runtime.ids import random_uuid
from tailrace.storage.checkpoints import format_topic_id


def test_an_id_never_looks_like_an_option() -> None:
    """Its text begins with no dash, as in Kafka: it is typed after the options of commands."""
    chance = random.Random(1)
    made = [random_uuid(chance) for _ in range(2000)]
    assert {each.version for each in made} == {4}
    assert not [each for each in map(format_topic_id, made) if each.startswith("-")]
