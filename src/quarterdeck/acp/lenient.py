"""The slow way to read ACP, for messages that the C decoder rejects: malformed or newer ones.

    an object that fits no variant of a union     Unknown: kept whole, encoded back exactly
    a known variant without a required field      rejected, except where the next two lines apply
    an unreadable item of a list that may skip    Unknown if its type is a union, else left out
    an unreadable field that may default          absent (UNSET), or empty if it is required
    a missing list that may default               empty: two agents answer set_config_option with {}
    1.0 where an integer belongs                  1

The schema defines which fields may skip or default (x-deserialize-…, in `field_rules`). Nothing is
lost: a caller that keeps the message (`codec.Received`) still has what was left out here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, ValidationError

from quarterdeck.acp import field_rules, schema
from quarterdeck.acp.model import AcpObject, FieldRules, UnionRule, Unknown
from quarterdeck.acp.unions import UNIONS

# At run time the alias of a hooked union is a class, that of a tagged one a plain union.
_HOOKED: dict[Any, UnionRule] = {}
_TAGGED: dict[frozenset[Any], UnionRule] = {}
_RULES: dict[str, FieldRules] = {}
"""By the module that has the types: two versions of ACP have types of the same name."""
_ABSENCE = (type(None), UnsetType)


def register(module: str, unions: Iterable[UnionRule], rules: FieldRules) -> None:
    """Know how the types of a module are read."""
    for rule in unions:
        if isinstance(rule.alias, type):
            _HOOKED[rule.alias] = rule
        else:
            _TAGGED[frozenset(typing.get_args(rule.alias))] = rule
    _RULES[module] = rules


register(schema.__name__, UNIONS, FieldRules.of(field_rules))


def dec_hook(expected: Any, obj: Any) -> Any:
    """Read a union that msgspec cannot; the variant itself must be valid."""
    rule = _HOOKED.get(expected)
    if rule is None:
        raise NotImplementedError(f"{expected} is not a type of ACP")
    variant = _variant(obj, rule)
    if variant is None:
        return _unknown(obj, rule)
    return msgspec.convert(obj, variant, dec_hook=dec_hook)


def lenient(obj: Any, expected: Any) -> Any:
    """Read `obj`, plain JSON data, as `expected`.

    Raises:
        msgspec.ValidationError: if it cannot be read even leniently.
    """
    try:
        return msgspec.convert(obj, expected, dec_hook=dec_hook)
    except ValidationError as refusal:
        return _piece_by_piece(obj, expected, refusal)


def _piece_by_piece(obj: Any, expected: Any, refusal: ValidationError) -> Any:
    alternatives = _alternatives(expected)
    rule = _union_rule(alternatives)
    if rule is not None:
        variant = _variant(obj, rule)
        return _unknown(obj, rule) if variant is None else _object(obj, variant)
    if len(alternatives) > 1:
        return _first_that_reads(obj, alternatives, refusal)
    (only,) = alternatives
    match obj:
        case list() if typing.get_origin(only) is tuple:
            (item_type, _ellipsis) = typing.get_args(only)
            return tuple(lenient(item, item_type) for item in obj)
        case dict() if typing.get_origin(only) is dict:
            (_key_type, value_type) = typing.get_args(only)
            return {key: lenient(value, value_type) for key, value in obj.items()}
        case dict() if isinstance(only, type) and issubclass(only, AcpObject):
            return _object(obj, only)
        case float() if only is int and obj.is_integer():
            return int(obj)
        case _:
            raise refusal


def _first_that_reads(obj: Any, alternatives: tuple[Any, ...], refusal: ValidationError) -> Any:
    for alternative in alternatives:
        try:
            return lenient(obj, alternative)
        except ValidationError:
            continue
    raise refusal


# --- unions


def _alternatives(expected: Any) -> tuple[Any, ...]:
    if typing.get_origin(expected) not in (types.UnionType, typing.Union):
        return (expected,)
    return tuple(each for each in typing.get_args(expected) if each not in _ABSENCE)


def _union_rule(alternatives: tuple[Any, ...]) -> UnionRule | None:
    if len(alternatives) == 1:
        return _HOOKED.get(alternatives[0])
    return _TAGGED.get(frozenset(alternatives))


def name_of(expected: Any) -> str:
    """Return the name of a type for a message."""
    rule = _union_rule(_alternatives(expected))
    return rule.name if rule is not None else getattr(expected, "__name__", str(expected))


def _variant(obj: Any, rule: UnionRule) -> type[AcpObject] | None:
    if not isinstance(obj, dict):
        raise ValidationError(f"{rule.name} must be an object")
    tag = _tag(obj, rule)
    if tag is not None and tag in rule.variants:
        return rule.variants[tag]
    for fallback in rule.fallbacks:
        is_named = tag is None or tag in fallback.tags or fallback.accepts_any_tag
        if is_named and fallback.required <= obj.keys():
            return fallback.struct
    return None


def _tag(obj: Any, rule: UnionRule) -> str | None:
    if rule.tag_field is None or not isinstance(obj, dict):
        return None
    tag = obj.get(rule.tag_field)
    return tag if isinstance(tag, str) else None


def _unknown(obj: Any, rule: UnionRule) -> Unknown:
    return Unknown(rule.name, _tag(obj, rule), obj)


# --- objects


@cache
def _fields(struct: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct)


def _object(obj: dict[str, Any], struct: type[AcpObject]) -> AcpObject:
    attributes = {}
    for field in _fields(struct):
        value = _field(obj, field, struct)
        if value is not UNSET:
            attributes[field.name] = value
    return struct(**attributes)


def _field(obj: dict[str, Any], field: msgspec.structs.FieldInfo, struct: type[AcpObject]) -> Any:
    owner, rules = struct.__name__, _RULES[struct.__module__]
    if field.encode_name not in obj:
        if not field.required:
            return UNSET
        refusal = ValidationError(f"{owner} lacks {field.encode_name}")
        return _default(field, struct, refusal)
    value = obj[field.encode_name]
    try:
        return lenient(value, field.type)
    except ValidationError as error:
        if isinstance(value, list) and field.name in rules.skip_invalid_items.get(owner, ()):
            return _readable_items(value, field.type)
        refusal = ValidationError(f"{owner}.{field.encode_name}: {error}")
        if value is None and field.name in rules.default_on_null.get(owner, ()):
            return _empty(field) if field.required else UNSET
        return _default(field, struct, refusal)


def _default(
    field: msgspec.structs.FieldInfo, struct: type[AcpObject], refusal: ValidationError
) -> Any:
    """Return the default for an unreadable value, if the schema allows one."""
    if field.name == "meta" and not field.required:
        return UNSET
    if field.name not in _RULES[struct.__module__].default_on_error.get(struct.__name__, ()):
        raise refusal
    return _empty(field) if field.required else UNSET


def _empty(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a required field; `field_rules` allows one only for lists."""
    assert any(typing.get_origin(each) is tuple for each in _alternatives(field.type)), field
    return ()


def _readable_items(items: list[Any], expected: Any) -> tuple[Any, ...]:
    (list_type,) = _alternatives(expected)
    (item_type, _ellipsis) = typing.get_args(list_type)
    rule = _union_rule(_alternatives(item_type))
    kept = []
    for item in items:
        try:
            kept.append(lenient(item, item_type))
        except ValidationError:
            if rule is not None:
                kept.append(_unknown(item, rule))
    return tuple(kept)
