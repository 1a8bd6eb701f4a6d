"""When two topics of a name are the same, and what is said where nobody knows."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs.topics import (
    SOURCES,
    TopicIdentity,
    compare_identities,
    format_identities,
    parse_identities,
)

A, B, METADATA = uuid.UUID(int=5), uuid.UUID(int=6), uuid.UUID(int=1)

IDENTITIES = st.builds(
    TopicIdentity,
    topic_id=st.sampled_from([None, A, B, METADATA]),
    cluster_id=st.sampled_from([None, "x", "y"]),
)


@pytest.mark.parametrize(
    ("known", "found", "is_other", "is_certain"),
    [
        ((A, "x"), (A, "x"), False, True),
        ((A, "x"), (B, "x"), True, True),
        ((A, "x"), (A, "y"), False, True),
        ((A, None), (A, "x"), False, True),
        ((A, "x"), (None, "x"), False, False),
        ((A, "x"), (None, "y"), True, False),
        ((None, "x"), (A, "y"), True, False),
        ((None, None), (A, "x"), False, False),
        ((METADATA, "x"), (METADATA, "y"), True, True),
        ((METADATA, "x"), (METADATA, "x"), False, True),
        ((METADATA, None), (METADATA, "x"), False, False),
    ],
)
def test_topic_ids_decide_and_else_clusters(
    known: tuple[uuid.UUID | None, str | None],
    found: tuple[uuid.UUID | None, str | None],
    *,
    is_other: bool,
    is_certain: bool,
) -> None:
    """The id of the metadata log, which each cluster has, decides nothing."""
    before = TopicIdentity(topic_id=known[0], cluster_id=known[1])
    here = TopicIdentity(topic_id=found[0], cluster_id=found[1])
    assert before.is_other(here) == here.is_other(before) == is_other
    assert before.is_comparable(here) == here.is_comparable(before) == is_certain
    is_one_cluster = known[1] is not None and known[1] == found[1]
    assert before.is_here(here) == here.is_here(before) == (is_one_cluster and not is_other)


@given(
    st.dictionaries(st.sampled_from("abc"), IDENTITIES),
    st.dictionaries(st.sampled_from("abc"), IDENTITIES),
    st.sets(st.sampled_from("abc")),
)
def test_every_topic_is_taken_refused_or_told(
    noted: dict[str, TopicIdentity], found: dict[str, TopicIdentity], begun: set[str]
) -> None:
    """A topic that was begun is the same for certain, or has a sentence; no known id is lost."""
    result = compare_identities(noted, found, begun=begun, what="the job has records")
    told = {each.split(":")[0] for each in result.unchecked}
    assert told | result.others.keys() <= begun & found.keys()
    assert not told & result.others.keys()
    for topic in begun & found.keys() - told - result.others.keys():
        assert noted[topic].topic_id == found[topic].topic_id
    for topic, known in noted.items():
        if topic in begun and topic not in result.others:
            assert known.or_else(result.noted[topic]) == result.noted[topic]
    for topic in found.keys() - begun:
        assert result.noted[topic] == found[topic]


@given(st.dictionaries(st.text(), IDENTITIES))
def test_a_manifest_says_identities_as_they_are(identities: dict[str, TopicIdentity]) -> None:
    """An unknown id is not known afterwards either; an older manifest knows none."""
    settings = {SOURCES: format_identities(identities)}
    assert parse_identities(settings, SOURCES) == identities
    assert parse_identities({}, SOURCES) == {}
