"""Base classes of the generated ACP types; tables and decoding are in `field_rules` and `codec`.

A union of ACP is open: a newer peer may send a variant that this version does not know. Static
types include it (`ContentBlock` has `Unknown`, and a closed `match` must handle it); at run time
msgspec must not see `Unknown`, because it cannot mix it with structs. The two aliases below are
that difference:

    Tagged[A | B]   every variant has a constant in one field; msgspec selects it in C
    Hooked[A | B]   a variant without such a constant exists; `lenient.dec_hook` selects it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct
from typing_extensions import override

Variants = TypeVar("Variants")


if TYPE_CHECKING:
    # `Unknown` is defined below; only a type checker reads these two lines.
    Tagged: TypeAlias = "Variants | Unknown"
    Hooked: TypeAlias = "Variants | Unknown"
else:

    class Tagged:
        """At run time: the plain union."""

        def __class_getitem__(cls, variants: Any) -> Any:
            return variants

    class _Marker(type):
        # msgspec checks what `dec_hook` returns with isinstance(); the hook has already chosen.
        def __instancecheck__(cls, instance: object) -> bool:
            return True

    class Hooked:
        """At run time: a class of its own, which makes msgspec call `dec_hook`."""

        def __class_getitem__(cls, variants: Any) -> type:
            return _Marker(f"Hooked[{variants}]", (), {})


class AcpObject(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename="camel"):
    """Base of every ACP object. A field that was absent is `UNSET`; one that was null is `None`."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A variant that is not recognised by its tag but by the fields it must have."""

    struct: type[AcpObject]
    required: frozenset[str]
    tags: frozenset[str] = frozenset()
    """Tags of this variant although it needs none, such as "stdio"."""
    accepts_any_tag: bool = False


@dataclass(frozen=True, slots=True)
class UnionRule:
    """How the variant of one union is chosen; `tag_field` is None if no variant has a tag."""

    name: str
    alias: Any
    tag_field: str | None
    variants: dict[str, type[AcpObject]]
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldRules:
    """Attributes of structs, by their names, whose malformed values are tolerated."""

    default_on_error: Mapping[str, tuple[str, ...]]
    skip_invalid_items: Mapping[str, tuple[str, ...]]
    default_on_null: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, module: Any) -> FieldRules:
        """Return the tables of a generated module `field_rules`."""
        return cls(module.DEFAULT_ON_ERROR, module.SKIP_INVALID_ITEMS, module.DEFAULT_ON_NULL)


class Unknown:
    """A variant of `union` that this version cannot read; it is encoded as exactly `data`.

    Not a dataclass and not a Struct: msgspec would write its three attributes instead of `data`.
    """

    __slots__ = ("data", "tag", "union")

    union: Final[str]
    tag: Final[str | None]
    data: Final[Any]

    def __init__(self, union: str, tag: str | None, data: Any) -> None:
        self.union = union
        self.tag = tag
        self.data = data

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unknown):
            return NotImplemented
        return (self.union, self.tag, self.data) == (other.union, other.tag, other.data)

    @override
    def __hash__(self) -> int:
        # `data` is JSON and may hold lists; equal objects have equal unions and tags.
        return hash((self.union, self.tag))

    @override
    def __repr__(self) -> str:
        return f"Unknown(union={self.union!r}, tag={self.tag!r}, data={self.data!r})"
