"""One module per API: its request, its response, and their nested structs.

The classes declare the wire format: see `fields` for the declarations, and `apis` for the served
versions. Class names are Kafka's; attributes are Kafka's names in snake case.
"""
