"""What every test shares."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres_server import Cluster, shared_cluster
from tests.taping import sitecustomize, tapes
from tools.servers import server

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


@pytest.fixture(scope="session")
def postgres_cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return the PostgreSQL of this run; it ends with the run."""
    if server("postgres") is None:
        pytest.skip("PostgreSQL is not installed; python3 -m tools.servers installs it")
    folder = tmp_path_factory.getbasetemp()
    return shared_cluster(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture(scope="session")
def postgres_database(postgres_cluster: Cluster) -> str:
    """Create the database of this worker; return its name."""
    name = f"test_{os.getpid()}"
    postgres_cluster.run(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def postgres_url(postgres_cluster: Cluster, postgres_database: str) -> str:
    """Return the URL of a database without tables; a worker has one, since they cost a second."""
    postgres_cluster.run("DROP SCHEMA IF EXISTS quarterdeck CASCADE", database=postgres_database)
    return postgres_cluster.url(postgres_database)


OPT_IN = ("real_agents", "container", "proof")
"""Folders whose tests need what `dev.py setup` does not install; each has a marker of its name."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what must be installed first, unless its marker was asked for."""
    name = collection_path.name
    return True if name in OPT_IN and name not in str(config.getoption("markexpr")) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what would be skipped on the build server, which has everything that tests need."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must not be skipped on CI: {report.longrepr}"
    return report
