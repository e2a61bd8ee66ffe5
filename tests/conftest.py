"""Hypothesis profiles: `check` draws the same examples on every run; `search` draws new ones, and many (for finding bugs)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("check", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=3000, suppress_health_check=list(HealthCheck))
settings.load_profile("check")
