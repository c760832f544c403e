"""Families of events: those whose types begin alike, such as `tool:`."""

from __future__ import annotations

from typing import Any, Literal, TypeGuard, TypeVar, overload

from quarterdeck.dialects.context.events import (
    EVENT_CLASSES,
    ApprovalEvents,
    ContextEvent,
    CustomEvent,
    EnvironmentEvents,
    FileEvents,
    GitEvents,
    InteractionEvents,
    MessageEvents,
    ProgressEvents,
    ResourceEvents,
    SessionEvents,
    SubAgentEvents,
    ThinkingEvents,
    ToolEvents,
    WebEvents,
)

E_co = TypeVar("E_co", bound=ContextEvent, covariant=True)


class EventFilter(tuple[type[E_co], ...]):
    """The classes of one family of events: for `isinstance`, or to be called with an event."""

    def __call__(self, event: object) -> TypeGuard[E_co]:
        """Say whether an event is one of the family, for `filter` too."""
        return isinstance(event, self)

    @property
    def types(self) -> tuple[str, ...]:
        """The `type` of each of them."""
        return tuple(event_class.type for event_class in self)


ACPEventByPrefix = EventFilter


@overload
def events_by_prefix(prefix: Literal["session:"]) -> EventFilter[SessionEvents]: ...
@overload
def events_by_prefix(prefix: Literal["message:"]) -> EventFilter[MessageEvents]: ...
@overload
def events_by_prefix(prefix: Literal["thinking:"]) -> EventFilter[ThinkingEvents]: ...
@overload
def events_by_prefix(prefix: Literal["tool:"]) -> EventFilter[ToolEvents]: ...
@overload
def events_by_prefix(prefix: Literal["approval:"]) -> EventFilter[ApprovalEvents]: ...
@overload
def events_by_prefix(prefix: Literal["file:"]) -> EventFilter[FileEvents]: ...
@overload
def events_by_prefix(prefix: Literal["subagent:"]) -> EventFilter[SubAgentEvents]: ...
@overload
def events_by_prefix(prefix: Literal["progress:"]) -> EventFilter[ProgressEvents]: ...
@overload
def events_by_prefix(prefix: Literal["resource:"]) -> EventFilter[ResourceEvents]: ...
@overload
def events_by_prefix(prefix: Literal["environment:"]) -> EventFilter[EnvironmentEvents]: ...
@overload
def events_by_prefix(prefix: Literal["interaction:"]) -> EventFilter[InteractionEvents]: ...
@overload
def events_by_prefix(prefix: Literal["git:"]) -> EventFilter[GitEvents]: ...
@overload
def events_by_prefix(prefix: Literal["web:"]) -> EventFilter[WebEvents]: ...
@overload
def events_by_prefix(prefix: Literal["custom"]) -> EventFilter[CustomEvent]: ...
@overload
def events_by_prefix(prefix: str) -> EventFilter[ContextEvent]: ...
def events_by_prefix(prefix: str) -> EventFilter[Any]:
    """Return the events whose type begins so; a prefix that none has gives an empty filter."""
    return EventFilter(
        event_class for name, event_class in EVENT_CLASSES.items() if name.startswith(prefix)
    )
