"""What every test shares."""

import pytest
from hypothesis import HealthCheck, settings

# Wall-clock limits say more about the machine's neighbours than about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on the loop that Quarterdeck runs on."""
    return "asyncio"
