"""Two brokers of Kafka's whose controller is a broker of ours, in one process.

Under a load that node is killed, and stopped in order. While it is away after a kill nobody elects
other leaders, so it comes back at once; after a stop the brokers of Kafka's serve on without it.
"""

from contextlib import ExitStack
from pathlib import Path

from compat import clusters
from compat.cluster import Cluster
from compat.cluster_load import PARTITION_COUNT, TOPICS, Load
from compat.report import Report
from compat.tools import Tools
from compat.topics import create_topics

BOTH = 1
KAFKAS = (2, 3)


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Run a cluster on a new directory."""
    with ExitStack() as stack:
        cluster = Cluster(
            tools.java, tools.jars, directory, kafkas=KAFKAS, has_own_controller=True, both=BOTH
        )
        stack.enter_context(cluster)
        both, servers = cluster.brokers[BOTH], cluster.bootstrap_servers
        create_topics(servers, {each: {} for each in TOPICS}, partition_count=PARTITION_COUNT)
        report.check("each broker leads partitions", [*clusters.sync(cluster)])
        with Load(servers, has_kafka=True) as load:
            faults = [*load.wait_for_more()]
            both.kill()
            both.start()
            faults += [*load.wait_for_more(), *clusters.sync(cluster)]
            report.check("clients go on where the node of both roles is killed", faults)
            faults = [*load.wait_for_more()]
            both.stop()
            faults += load.wait_for_more()
            both.start()
            faults += [*load.wait_for_more(), *clusters.sync(cluster)]
            report.check("clients go on where it stops in order, and while it is away", faults)
        for name, faults in load.faults().items():
            report.check(f"after all that {name}", faults)
        # The one with the controller last: a broker that stops asks it.
        for number in (*KAFKAS, BOTH):
            cluster.brokers[number].stop()
        differing = [*clusters.unequal(cluster)]
        report.check("the replicas of each partition are the same bytes", differing)
