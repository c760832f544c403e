"""The API's document: made from the route table, and true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    CHECKS,
)

from quarterdeck.server import Hub, hub_endpoints
from tests.server.api.kit import Client, options, running
