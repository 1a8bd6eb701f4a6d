"""What the cluster knows of itself: topics, their settings, and who may change them."""
