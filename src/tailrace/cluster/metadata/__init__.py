"""The cluster's state as Kafka has it: the image that the records of the metadata log describe."""
