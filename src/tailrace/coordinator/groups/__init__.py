"""Consumer groups: members, generations and committed offsets."""
