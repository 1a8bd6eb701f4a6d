"""A client that asks for high watermarks, over and over, and writes what it is told."""

from contextlib import closing

from tests.chaos.life import EVENTS, Life, named
from tests.histories.history import Outcome, See


def watch(life: Life) -> None:
    """Ask for the high watermark of some partition, until the end of the life."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": life.plan.bootstrap,
        "group.id": life.plan.name,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    # One client for all of the life: it keeps the newest leader epoch that it has heard of, by
    # which a leader that was deposed refuses it.
    with closing(Consumer(settings)) as consumer:
        while not life.stopping.wait(life.pause_s()):
            partition = life.partition()
            number = life.recorder.begin(See(partition=named(EVENTS, partition)))
            try:
                _, watermark = consumer.get_watermark_offsets(
                    TopicPartition(EVENTS, partition), timeout=life.plan.timeout_ms / 1000
                )
            except KafkaException:
                life.recorder.end(number, Outcome.INFO)
            else:
                life.recorder.end(number, Outcome.OK, watermark=watermark)
