"""Producer ids that Kafka and we hand out in turn over one directory: nobody gets another's.

Both count their ids in the metadata log. A log that knows an id takes the first batch of a second
owner for one that was sent again, acknowledges it and drops it, or refuses it for its sequence.

    Kafka -> ours -> Kafka -> ours

Each turn's producers send a record each to one partition. Those of a turn are alike in all that a
log could tell them apart by, so that only the ids do.
"""

from compat import clients, ours
from compat.clients import Sender
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS, create_topics

TOPIC = "idempotent"
SENDERS = 8
"""Producers in each turn."""


def check(report: Report, kafka: Kafka) -> None:
    """Take turns on the directory of `kafka`, which is new: each begins with its first ids."""
    turns: list[tuple[str, list[Sender]]] = []
    for _ in range(2):
        with kafka:
            if not turns:
                create_topics(kafka.bootstrap_servers, {TOPIC: TOPICS[TOPIC]})
            turns.append(("Kafka", _send(kafka.bootstrap_servers, len(turns))))
        with ours.serving(kafka.logs) as servers:
            turns.append(("Tailrace", _send(servers, len(turns))))
    with ours.opened(kafka.logs) as logs:
        read = ours.read_log(ours.log_of(logs, TOPIC), is_committed=False)
    refused = [
        f"turn {number}, {broker}: {each}"
        for number, (broker, senders) in enumerate(turns)
        for sender in senders
        for each in sender.refused
    ]
    report.check("no producer is refused where Kafka and we hand out ids in turn", refused)
    acknowledged = [each for _, senders in turns for one in senders for each in one.acknowledged]
    report.check(
        "all that was acknowledged is there where Kafka and we hand out ids in turn",
        list(clients.lost(acknowledged, read)),
    )


def _send(bootstrap_servers: str, turn: int) -> list[Sender]:
    senders = [Sender(bootstrap_servers) for _ in range(SENDERS)]
    for number, sender in enumerate(senders):
        sender.send(TOPIC, b"turn %d producer %d" % (turn, number))
    for sender in senders:
        sender.flush()
    return senders
