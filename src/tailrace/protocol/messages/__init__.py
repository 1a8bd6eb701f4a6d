"""One module per API: its request, its response, and their nested structs.

The classes declare the wire format of every version that Kafka has: see `fields` for the
declarations, and `apis` for the served versions. Class names are Kafka's; attributes are Kafka's
names in snake case. The modules are generated (decision 31): `make messages` writes them.
"""
