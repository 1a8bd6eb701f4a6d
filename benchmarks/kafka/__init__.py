"""Tailrace and Apache Kafka in turn: the same clients, settings and data (`make bench-kafka`)."""
