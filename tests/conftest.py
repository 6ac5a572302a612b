"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.uncompiled import IS_COMPILED, use_compiled_arithmetic

# The first example of a test may wait for the compiler: no deadline.  Examples are the same in
# every run, so that a failure is a failure for everybody.
settings.register_profile(
    "reproducible",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
# HYPOTHESIS_PROFILE=search looks for new examples instead, more of them.
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile("reproducible")

if IS_COMPILED:
    collect_ignore = ["test_uncompiled.py"]
else:
    use_compiled_arithmetic()
