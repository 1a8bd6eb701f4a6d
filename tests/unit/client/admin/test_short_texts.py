"""Answers as people print them: names and counts, a line each."""

from uuid import UUID

from tailrace.client.admin.configs import ConfigEntry
from tailrace.client.admin.outcomes import SHOWN_MAX, Outcomes
from tailrace.client.errors import ClosedAdminError
from tailrace.client.reader import PartitionDescription, TopicDescription


def topic(count: int) -> TopicDescription:
    """A topic with so many partitions."""
    partitions = tuple(
        PartitionDescription(
            partition=number,
            leader=1,
            leader_epoch=0,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            offline=(),
        )
        for number in range(count)
    )
    return TopicDescription(
        name="flights", is_internal=False, partitions=partitions, topic_id=UUID(int=7)
    )


def test_a_topic_says_how_many_partitions_it_has() -> None:
    """One is shown whole, more are counted; what nobody asked for is left out."""
    for count in (2, 50):
        assert repr(topic(count)) == (
            f"TopicDescription(name='flights', is_internal=False, partitions=<{count} items>, "
            "topic_id=UUID('00000000-0000-0000-0000-000000000007'))"
        )
    assert "leader=1" in repr(topic(1))


def test_a_long_text_is_cut() -> None:
    """Brokers describe each setting in some sentences."""
    entry = ConfigEntry(name="retention.ms", value="1", source=5, documentation="word " * 100)
    assert repr(entry) == (
        "ConfigEntry(name='retention.ms', value='1', source=5, "
        f"documentation={('word ' * 12)!r}...)"
    )


def test_many_outcomes_are_counted() -> None:
    """The first are shown, with the number of the others and of all errors."""
    outcomes: Outcomes[str, None] = Outcomes(
        {f"t{number}": ClosedAdminError("closed") if number else None for number in range(500)}
    )
    text = repr(outcomes)
    assert text.startswith("Outcomes({'t0': None, 't1': ClosedAdminError('closed'), ")
    assert text.endswith(f", and {500 - SHOWN_MAX} more, 499 errors in all}})")
    assert repr(Outcomes({"t": None})) == "Outcomes({'t': None})"
