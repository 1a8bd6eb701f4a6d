"""When the producer asks about its topics, and what is said to who waited in vain."""

import math
import re
from collections.abc import Callable, Mapping

import pytest

from tests.unit.client.producer.metadata_life import (
    AGE_S,
    BOOTSTRAP,
    IDLE_S,
    PAUSE_S,
    T0,
    Life,
    answer,
    part,
    settled,
    topic,
)

# -- when to ask --------------------------------------------------------------------------------


def test_the_first_request_is_due_at_once_and_goes_to_the_bootstrap_list() -> None:
    """A new producer asks before anything is sent, even with no topic."""
    life = Life()
    assert life.due_in == 0
    assert life.metadata.nodes == BOOTSTRAP
    assert life.ask()[0] == []


def test_all_topics_are_asked_about_at_their_maximal_age() -> None:
    """With nothing else going on a request is due metadata.max.age.ms after the last answer."""
    life = Life()
    life.round(answer())
    assert life.due_in == AGE_S
    life.now += AGE_S
    assert life.due_in == 0
    life.now += 5
    assert life.due_in == 0
    assert life.metadata.next_request(life.now) is not None


def test_an_update_that_is_asked_for_waits_for_the_backoff_and_not_for_the_age() -> None:
    """Right after an answer there is a pause of retry.backoff.ms; later there is none."""
    life = Life()
    life.round(answer())
    life.metadata.request_update()
    assert life.due_in == PAUSE_S
    life.now += 50
    assert life.due_in == 0


def test_nothing_is_due_while_a_request_is_in_flight() -> None:
    """There is one request at a time, whatever is asked for in between."""
    life = Life()
    life.ask()
    life.metadata.add_topic("t", life.now)
    life.metadata.request_update()
    assert life.due_in == math.inf
    assert life.metadata.next_request(life.now) is None


def test_failures_are_followed_by_growing_pauses() -> None:
    """Each failure in a row doubles the pause, up to retry.backoff.max.ms."""
    life = Life()
    pauses = []
    for _ in range(5):
        _, token = life.ask()
        life.metadata.failed(token, ConnectionError("gone"), life.now)
        life.metadata.request_update()
        pauses.append(life.due_in)
        life.now += life.due_in
    assert pauses == [0.125, 0.25, 0.5, 1.0, 1.0]


def test_pauses_differ_by_chance() -> None:
    """A pause varies by up to 20 in 100, so that clients do not retry at the same time."""
    pauses = set()
    for life in (Life(jitter=True), settled_with_chance()):
        life.metadata.request_update()
        _, token = life.ask()
        life.metadata.failed(token, ConnectionError("gone"), life.now)
        assert 0.1 <= life.due_in <= 0.15
        pauses.add(life.due_in)
    assert len(pauses) == 2


def settled_with_chance() -> Life:
    """A life whose chance has been used."""
    life = Life(jitter=True)
    life.settle(answer(topic("t", part(0))))
    return life


def test_answers_without_news_are_followed_by_growing_pauses() -> None:
    """While answers stay the same the pace slows down; with news it is as at first."""
    life = settled(part(0, -1))
    pauses = []
    for leader in (-1, -1, -1, 1):
        life.metadata.request_update()
        life.round(answer(topic("t", part(0, leader))))
        life.metadata.request_update()
        pauses.append(life.due_in)
    assert pauses == [0.125, 0.25, 0.5, 0.125]


def test_a_refresh_at_the_maximal_age_starts_the_pauses_anew() -> None:
    """A refresh because of age resets the backoff, since it is no failure."""
    life = settled(part(0))
    for _ in range(5):
        life.renew(answer(topic("t", part(0))))
    life.now += AGE_S
    life.renew(answer(topic("t", part(0))))
    life.metadata.request_update()
    assert life.due_in == PAUSE_S


def test_a_failed_refresh_is_tried_again() -> None:
    """Topics of a failed request are requested again, new ones too."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    _, token = life.ask()
    life.metadata.failed(token, ConnectionError("gone"), life.now)
    assert life.round(answer(topic("t", part(0)))) == ["t"]
    life.metadata.add_topic("u", life.now)
    _, token = life.ask()
    life.metadata.failed(token, ConnectionError("gone"), life.now)
    assert life.due_in == PAUSE_S
    assert life.round(answer(topic("u", part(0)))) == ["u"]


# -- new topics ---------------------------------------------------------------------------------


def test_a_new_topic_is_asked_about_at_once_and_alone() -> None:
    """The backoff does not apply to it, and topics that are known are not asked about."""
    life = Life()
    life.metadata.add_topic("a", life.now)
    life.round(answer(topic("a", part(0))))
    life.metadata.add_topic("a", life.now)
    assert life.due_in == AGE_S
    life.metadata.add_topic("b", life.now)
    life.metadata.add_topic("c", life.now)
    assert life.due_in == 0
    assert life.round(answer(topic("b", part(0)), topic("c", part(0)))) == ["b", "c"]
    assert life.due_in == AGE_S
    assert [life.metadata.partition_count(each) for each in "abc"] == [1, 1, 1]


def test_a_topic_that_is_added_during_a_request_needs_one_of_its_own() -> None:
    """The older request's answer is not about it, so a new one is due at once."""
    life = Life()
    life.round(answer())
    life.metadata.add_topic("a", life.now)
    _, token = life.ask()
    life.metadata.add_topic("b", life.now)
    life.take(token, answer(topic("a", part(0)), topic("b", part(0))))
    assert life.metadata.partition_count("b") is None
    life.now += PAUSE_S
    assert life.round(answer(topic("b", part(0)))) == ["b"]


def test_an_answer_does_not_satisfy_a_want_that_came_after_its_request() -> None:
    """An update wanted during a request leads to one more request."""
    life = Life()
    life.round(answer())
    life.now += 1
    life.metadata.request_update()
    _, token = life.ask()
    life.metadata.request_update()
    life.take(token, answer())
    assert life.due_in < 1
    life.round(answer())
    assert life.due_in > 200


def test_an_answer_that_comes_twice_or_too_late_changes_nothing() -> None:
    """Only the request in flight can be answered, once."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    _, old = life.ask()
    life.metadata.failed(old, ConnectionError("gone"), life.now)
    life.now += 1
    _, token = life.ask()
    life.take(old, answer(topic("t", part(0), part(1))))
    life.metadata.failed(old, ConnectionError("gone"), life.now)
    assert life.metadata.partition_count("t") is None
    life.take(token, answer(topic("t", part(0))))
    life.take(token, answer(topic("t", part(0), part(1))))
    assert life.metadata.partition_count("t") == 1


def test_asking_for_a_new_topic_again_does_not_make_it_a_full_request() -> None:
    """A topic that waits for its first answer is asked about anyway; a known one counts for all."""
    life = Life()
    life.round(answer())
    life.now += 1
    for name in ("a", "b"):
        life.metadata.add_topic(name, life.now)
    life.metadata.request_topic("a")
    life.round(answer(topic("a", part(0)), topic("b", part(0))))
    assert life.due_in == AGE_S - 1
    life.metadata.request_topic("a")
    life.metadata.add_topic("c", life.now)
    known = [topic(each, part(0)) for each in "abc"]
    assert life.round(answer(*known)) == ["a", "b", "c"]
    assert life.due_in > 200


def test_a_partial_request_at_the_maximal_age_becomes_a_full_one() -> None:
    """When all topics are due anyway, a new one is asked about together with them."""
    life = settled(part(0))
    life.now += AGE_S
    life.metadata.add_topic("t", life.now)
    life.metadata.add_topic("u", life.now)
    assert life.ask()[0] == ["t", "u"]


def test_a_topic_that_is_not_used_is_forgotten() -> None:
    """After metadata.max.idle.ms without use a topic is not asked about and not known."""
    life = settled(part(0))
    life.now += IDLE_S / 2
    life.renew(answer(topic("t", part(0))))
    life.now += IDLE_S
    life.metadata.request_update()
    assert life.round(answer()) == []
    assert life.metadata.partition_count("t") is None
    assert life.leader(T0) is None
    life.metadata.add_topic("t", life.now)
    assert life.round(answer(topic("t", part(0)))) == ["t"]


def test_a_topic_that_waits_for_its_first_answer_is_not_forgotten() -> None:
    """However long the cluster was away, the topic is still asked about."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    life.now += IDLE_S * 2
    assert life.round(answer(topic("t", part(0)))) == ["t"]
    assert life.metadata.partition_count("t") == 1


# -- what is said -------------------------------------------------------------------------------


def failing(life: Life) -> None:
    """Have the request that is due fail."""
    _, token = life.ask()
    life.metadata.failed(token, ConnectionError("host-9 refused"), life.now)


WAITS: Mapping[str, tuple[Callable[[Life], object], str]] = {
    "nobody has answered": (lambda _: None, "no answer from boot-1:9092, boot-2:9092"),
    "a request failed": (failing, "no answer .*; the last failure: host-9 refused"),
    "the topic does not exist": (
        lambda life: life.round(answer(topic("t", error=3))),
        r"does not have that topic or partition \(UNKNOWN_TOPIC_OR_PARTITION\)$",
    ),
    "an error that is new": (
        lambda life: life.round(answer(topic("t", error=999))),
        "error 999, which this version does not know",
    ),
    "it is left out": (lambda life: life.round(answer()), "leaves it out"),
    "no such partition": (
        lambda life: life.round(answer(topic("t", part(0)))),
        "it has 1 partition, numbered from 0, so there is no partition 7",
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_a_timeout_names_the_topic_and_the_known_reason(case: str) -> None:
    """The text has the time waited, the topic, and the reason as far as it is known."""
    prepare, expected = WAITS[case]
    life = Life()
    life.metadata.add_topic("t", life.now)
    prepare(life)
    text = life.metadata.describe_wait("t", 60, partition=7)
    assert text.startswith("waited 60 s for metadata of topic t: ")
    assert re.search(expected, text), text


def test_the_last_failure_of_a_connection_is_said_first() -> None:
    """The text has the connection's error rather than that of the failed request."""
    life = Life()
    failing(life)
    text = life.metadata.describe_wait("t", 0.5, failure=ConnectionError("no route"))
    assert text.startswith("waited 0.5 s")
    assert text.endswith("the last failure: no route")
