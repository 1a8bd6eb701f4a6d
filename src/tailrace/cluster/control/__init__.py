"""Rules of a Kafka controller: from a request and the state of the cluster to records.

    state         the image, sessions and settings, with what all rules ask of them
    requests      the rule of each API
    brokers       registrations, heartbeats, fencing, unregistering
    heartbeats    when each broker was heard of last, and how far it has read
    leaders       changes of partitions that follow from brokers, elections
    alter_partition, reassignments, directories, topics, placement, configs, levels, producer_ids,
    acls, credentials, quotas

Pure: no device, no network, no clock but the `now_ms` of a call. The owner of a controller appends
the records to the metadata log, has the state replay them, and answers once they are committed. So
the same rules serve a test, a simulated cluster and a controller.
"""
