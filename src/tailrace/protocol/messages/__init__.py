"""One module per API: its request, its response, and the structs inside of them.

The classes are the tables of the protocol: `fields` says how to read a declaration, `apis` which
versions are served. Names are Kafka's, attributes in snake case.
"""
