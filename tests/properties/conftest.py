"""How many examples a property gets: `--hypothesis-profile=slow` for the long run."""

from hypothesis import HealthCheck, settings

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=200, deadline=None, suppress_health_check=QUIET)
settings.register_profile("slow", max_examples=10_000, deadline=None, suppress_health_check=QUIET)
