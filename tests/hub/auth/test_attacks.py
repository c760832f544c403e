"""Every attack on every kind of endpoint, over real sockets, with both parsers of HTTP.

On every endpoint of a whole hub they are tried in `test_whole_hub`.
"""

from pathlib import Path

import pytest

from tests.hub.attacks import Target, attack_every
from tests.hub.auth.support import open_guarded
from tests.hub.served import PARSERS, Parser

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("parser", PARSERS)
async def test_no_attack_gets_through_to_any_kind_of_endpoint(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        browser, other = await guarded.browser("admin"), await guarded.browser("admin")

        def reached() -> int:
            return len(guarded.behind.reached)

        newest = guarded.auth.nonces.newest
        target = Target(guarded.served, guarded.owner, browser, other, newest, reached)
        holes = await attack_every(guarded.behind.endpoints(), target)
        assert not holes, "\n".join(holes)
        assert (await browser.call("GET", "/api/device")).status == 200
