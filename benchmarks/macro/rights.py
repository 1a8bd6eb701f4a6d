"""Small produce requests on a broker with many access control lists and quotas.

The peer is the same broker without an authorizer and without quotas, in the same run. The client is
the user whose entries and quota count; the others are of users and topics that it has nothing to do
with, half of them prefixes.
"""

from functools import partial

from benchmarks.macro.brokers import ONE_SEGMENT, BrokerProcess, serving
from benchmarks.macro.load import require_taken
from benchmarks.macro.requester import run_job
from benchmarks.macro.requests import COUNT, QUICK_COUNT, TOPIC, Load, figures_of, job_of, loads
from benchmarks.macro.secured import USER, Secured, renamed
from benchmarks.measure import Bench, Figure, interleave
from tailrace.client.admin import (
    AclBinding,
    AclOperation,
    AclResource,
    Admin,
    NewTopic,
    PatternType,
    QuotaEntity,
)

ENTRIES = 10_000
QUOTAS = 9_999
"""One is the client's own, and a broker has 10,000."""
ENTRIES_AT_ONCE = 1_000
PEER = "without"
AIM = 1.05
WARM_UP_COUNT = 5_000


def measure_rights(bench: Bench) -> list[Figure]:
    """Times and CPU of small produce requests, one at a time and many."""
    secured = Secured.make(bench.directory)
    settings = {
        **ONE_SEGMENT,
        **secured.settings,
        "listeners": secured.listeners,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{USER}",
    }
    with (
        serving(bench.directory / "rights", settings=settings) as ours,
        serving(bench.directory / "without") as peer,
    ):
        bench.say("rights: access control lists and quotas")
        _prepare(secured, entries=bench.scaled(ENTRIES, quick=100))
        peer.create_topic(TOPIC)
        figures = []
        for load in loads():
            if load.name.startswith("produce"):
                bench.say(f"rights: {load.name}")
                figures += _measure(bench, ours, peer, load)
        return figures


def _prepare(secured: Secured, *, entries: int) -> None:
    """Make the topic, entries of the client and of others, and quotas, as a super user."""
    with Admin(renamed(secured.client_settings("SASL_PLAINTEXT"))) as admin:
        assert not admin.create_topics([NewTopic(TOPIC)]).errors
        bindings = [
            AclBinding(
                resource=AclResource.TOPIC,
                name=f"topic-{number}",
                principal=f"User:user-{number % 1000}",
                operation=AclOperation.WRITE,
                pattern=PatternType.PREFIXED if number % 2 else PatternType.LITERAL,
            )
            for number in range(entries - 1)
        ]
        own = AclBinding(
            resource=AclResource.TOPIC,
            name=TOPIC,
            principal="User:ANONYMOUS",
            operation=AclOperation.WRITE,
        )
        bindings.append(own)
        for start in range(0, len(bindings), ENTRIES_AT_ONCE):
            assert not admin.create_acls(bindings[start : start + ENTRIES_AT_ONCE]).errors
        names = ["ANONYMOUS", *(f"user-{number}" for number in range(min(entries, QUOTAS)))]
        for start in range(0, len(names), ENTRIES_AT_ONCE):
            quotas = {
                QuotaEntity.of(user=each): {"producer_byte_rate": 1e12}
                for each in names[start : start + ENTRIES_AT_ONCE]
            }
            assert not admin.alter_client_quotas(quotas).errors


def _measure(bench: Bench, ours: BrokerProcess, peer: BrokerProcess, load: Load) -> list[Figure]:
    count = bench.scaled(COUNT, quick=QUICK_COUNT)
    for broker in (ours, peer):
        run_job(job_of(load, broker, bench.scaled(WARM_UP_COUNT, quick=64)))
    found = interleave(
        bench,
        {
            "ours": partial(run_job, job_of(load, ours, count)),
            "peer": partial(run_job, job_of(load, peer, count)),
        },
    )
    for runs in found.values():
        require_taken(bytes.fromhex(runs[-1].answer))
    name = f"{load.name}, with {ENTRIES} ACLs and quotas"
    return figures_of(name, found, peer_name=PEER, aims={"p50": AIM, "CPU": AIM})
