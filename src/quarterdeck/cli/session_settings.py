"""Mode, model and options of a session, chosen on the command line.

What a user writes is looked up in what the agent offers, by id or by name, before anything is sent:
a mistake is answered with the choices. A model is the option of that category.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.errors import CommandFailed, Misused
from quarterdeck.http.client import HubApi
from quarterdeck.views.text import one_line

_SWITCH: Final = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


@dataclass(frozen=True, kw_only=True)
class ChosenSettings:
    """The settings that a command line names."""

    mode: str | None = None
    model: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Pairs of an option and its value."""

    def __bool__(self) -> bool:
        return self.mode is not None or self.model is not None or bool(self.options)


def parsed_options(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of `--option ID=VALUE`.

    Raises:
        Misused: if one has no `=`.
    """
    pairs = [word.partition("=") for word in words]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise Misused(f"--option takes ID=VALUE, not {name!r}; see quarterdeck run --help")
    return tuple((name, value) for name, _, value in pairs)


async def apply_settings(api: HubApi, path: str, chosen: ChosenSettings) -> None:
    """Set what was chosen; `path` is that of the session.

    Raises:
        CommandFailed: if the agent does not offer it.
    """
    if not chosen:
        return
    page = await api.call("GET", f"{path}/transcript?limit=1")
    state = page.get("state") if isinstance(page, Mapping) else None
    offered = _Offered(state if isinstance(state, Mapping) else {})
    # All are checked before the first is set.
    changes = [("mode", {"modeId": offered.mode(chosen.mode)})] if chosen.mode is not None else []
    if chosen.model is not None:
        changes.append(("options", offered.model(chosen.model)))
    changes += (("options", offered.option(name, value)) for name, value in chosen.options)
    for place, body in changes:
        await api.call("PUT", f"{path}/{place}", body)


class _Offered:
    """What an agent offers, by the state of a session."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        modes = state.get("modes")
        self._modes = modes if isinstance(modes, Mapping) else {}
        self._options = list(_tables(state.get("configOptions")))

    def mode(self, wanted: str) -> str:
        choices = [(each.get("id"), each.get("name")) for each in self._available_modes()]
        for option in self._options:
            if option.get("category") == "mode":
                choices += [(each.get("value"), each.get("name")) for each in _values(option)]
        if not choices:
            raise CommandFailed("the agent has no modes; drop --mode")
        return _chosen("mode", wanted, choices)

    def model(self, wanted: str) -> dict[str, Any]:
        found = (
            each for each in self._options if "model" in (each.get("category"), each.get("id"))
        )
        option = next(found, None)
        if option is None:
            raise CommandFailed("the agent offers no choice of models; drop --model")
        return _change(option, wanted, "model")

    def option(self, name: str, value: str) -> dict[str, Any]:
        if not self._options:
            raise CommandFailed("the agent has no options; drop --option")
        choices = [(each.get("id"), each.get("name")) for each in self._options]
        wanted = _chosen("option", name, choices)
        option = next(each for each in self._options if each.get("id") == wanted)
        return _change(option, value, f"value of {wanted}")

    def _available_modes(self) -> Iterator[Mapping[str, Any]]:
        return _tables(self._modes.get("availableModes"))


def _names(option: Mapping[str, Any]) -> tuple[Any, Any]:
    return option.get("category"), option.get("id")


def _change(option: Mapping[str, Any], wanted: str, what: str) -> dict[str, Any]:
    if option.get("type") == "boolean" or isinstance(option.get("currentValue"), bool):
        if wanted.lower() not in _SWITCH:
            raise CommandFailed(f"unknown {what} {wanted!r}; choose on or off")
        return {"configId": option.get("id"), "value": _SWITCH[wanted.lower()]}
    choices = [(each.get("value"), each.get("name")) for each in _values(option)]
    value = _chosen(what, wanted, choices) if choices else wanted
    return {"configId": option.get("id"), "value": value}


def _chosen(what: str, wanted: str, choices: Sequence[tuple[Any, Any]]) -> str:
    """Return the id that is wanted, given by itself or by its name."""
    ids = [each for each, _ in choices if isinstance(each, str)]
    if wanted in ids:
        return wanted
    for each, name in choices:
        if isinstance(each, str) and str(name).lower() == wanted.lower():
            return each
    listed = ", ".join(map(one_line, dict.fromkeys(ids)))
    raise CommandFailed(f"unknown {what} {wanted!r}; choose one of {listed}")


def _values(option: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the values of an option, those in groups included."""
    for each in _tables(option.get("options")):
        if "options" in each:
            yield from _tables(each["options"])
        else:
            yield each


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, Mapping))
