"""The cluster's state: topics and their settings, and the controller that changes them."""
