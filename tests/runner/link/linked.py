"""A runner behind a link, in the place of one in this process."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from quarterdeck.runner import Runner, RunnerApi, RunnerOptions
from quarterdeck.runner.link import LinkServer, RemoteRunner, connected_runner, serving_link


class LinkedRunner(Runner):
    """Opens a `Runner` and serves it; everything of `RunnerApi` goes over the link."""

    runner: Runner
    server: LinkServer
    remote: RemoteRunner

    def __init__(self, options: RunnerOptions) -> None:  # not super's: it has a runner
        self.runner = Runner(options)
        self._options = options
        self._open_parts = AsyncExitStack()

    @override
    async def __aenter__(self) -> Self:
        path = self._options.home / "runner.sock"
        try:
            await self._open_parts.enter_async_context(self.runner)
            self.server = await self._open_parts.enter_async_context(
                serving_link(self.runner, path)
            )
            self.remote = await self._open_parts.enter_async_context(connected_runner(path))
        except BaseException:
            await self._open_parts.aclose()
            raise
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._open_parts.__aexit__(kind, error, traceback)

    def __getattr__(self, name: str) -> Any:
        """Return what tests look at beyond `RunnerApi`: parts of the runner itself."""
        return getattr(self.runner, name)


def _late(name: str) -> Any:
    # The hub takes some methods before it is opened.
    def method(self: LinkedRunner, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self.remote, name)(*arguments, **keywords)

    return method


for _name, _ in inspect.getmembers(RunnerApi, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(LinkedRunner, _name, _late(_name))
setattr(LinkedRunner, "endpoint", property(lambda self: self.remote.endpoint))  # noqa: B010
