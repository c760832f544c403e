"""What every test shares."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.taping import sitecustomize, tapes

# Wall-clock limits say more about the machine's neighbours than about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

sitecustomize.install()

# A shell ignores these for what it starts in the background, and so would all that we start:
# tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on the loop that Quarterdeck runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def taping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tapes.Tapes]:
    """Tape what every agent says, in this process and in those that tests start."""
    folder = tmp_path_factory.mktemp("tapes")
    os.environ[sitecustomize.VARIABLE] = str(folder)
    os.environ.update(tapes.environment())
    taped = tapes.Tapes(folder)
    yield taped
    taped.check()  # of processes that outlived their test


@pytest.fixture(autouse=True)
def _schema_checked(taping: tapes.Tapes) -> Iterator[None]:
    """Hold every message that an agent sent in this test against ACP's schema."""
    yield
    taping.check()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out agents that must be installed first, unless their marker was asked for."""
    is_asked_for = "real_agents" in str(config.getoption("markexpr"))
    return True if collection_path.name == "real_agents" and not is_asked_for else None
