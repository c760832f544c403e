"""ACP's JSON schema as the declarations of Python types, in an order in which they can be written.

Why not datamodel-code-generator: of its msgspec output 58 of 241 types cannot be decoded (unions
with a variant that has no tag), and its enums and unions refuse what a newer peer sends. Here

    an object                        is a Struct; absent (UNSET) is not null (None)
    a string enum                    is `str` and a tuple of the values known today
    a union, each variant tagged     is a union that msgspec decodes in C
    any other union                  is left to the hook in `quarterdeck.acp.lenient`
    the variant "anything else"      is no type: unknown variants are kept as `Unknown`

A definition that only serves as the body of a variant gets no type of its own.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.acp_overlay import CLASS_NAMES, FALLBACK_FOR_ANY_TAG, Schema

# JSON-RPC messages; `quarterdeck.wire` has its own.
ENVELOPES = frozenset(
    f"{side}{kind}"
    for side in ("Agent", "Client", "Proxy")
    for kind in ("Request", "Response", "Notification")
)
_SCALARS = {
    "string": "str",
    "integer": "int",
    "number": "int | float",  # `float` would turn 1 into 1.0
    "boolean": "bool",
    "null": "None",
}


@dataclass(frozen=True)
class Field:
    wire_name: str
    name: str
    type: str
    is_required: bool
    defaults_on_error: bool
    skips_invalid_items: bool
    defaults_on_null: bool


@dataclass(frozen=True)
class StructDeclaration:
    name: str
    fields: tuple[Field, ...]
    tag: tuple[str, str] | None = None


@dataclass(frozen=True)
class FallbackDeclaration:
    struct: str
    required: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class UnionDeclaration:
    name: str
    tag_field: str | None
    variants: dict[str, str]
    fallbacks: tuple[FallbackDeclaration, ...]

    @property
    def is_native(self) -> bool:
        return len(self.variants) > 1 and not self.fallbacks

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.variants.values(), *(fallback.struct for fallback in self.fallbacks))


@dataclass(frozen=True)
class EnumDeclaration:
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class AliasDeclaration:
    name: str
    type: str


Declaration = StructDeclaration | UnionDeclaration | EnumDeclaration | AliasDeclaration


@dataclass(frozen=True)
class Shape:
    """The properties of an object after all its parts are merged."""

    properties: dict[str, Schema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()

    def joined_by(self, other: Shape) -> Shape:
        return Shape({**self.properties, **other.properties}, self.required | other.required)


class Model:
    """All declarations of one schema; `merged` names the definitions that are only bodies."""

    def __init__(self, schema: Schema) -> None:
        self.definitions: dict[str, Schema] = schema["$defs"]
        self.declarations: dict[str, Declaration] = {}
        self.merged: set[str] = set()
        self._started: set[str] = set(ENVELOPES)
        for name, definition in self.definitions.items():
            if "x-method" in definition:
                self._define(name)
        for name in self.definitions:
            if name not in self.merged:
                self._define(name)

    def structs(self) -> Iterator[StructDeclaration]:
        return (d for d in self.declarations.values() if isinstance(d, StructDeclaration))

    def unions(self) -> Iterator[UnionDeclaration]:
        return (d for d in self.declarations.values() if isinstance(d, UnionDeclaration))

    # --- definitions

    def _define(self, name: str) -> str:
        if name in self._started:
            return name
        self._started.add(name)
        definition = self.definitions[name]
        variants = _alternatives(definition)
        if variants and all(variant.get("type") == "string" for variant in variants):
            values = tuple(variant["const"] for variant in variants if "const" in variant)
            self._declare(EnumDeclaration(name, values))
        elif len(variants) > 1 and any(self._is_object(variant) for variant in variants):
            self._union(name, definition)
        elif definition.get("properties"):
            self._struct(name, self._shape(definition))
        else:
            self._declare(AliasDeclaration(name, self._type(definition, name)))
        return name

    def _declare(self, declaration: Declaration) -> None:
        if declaration.name in self.declarations:
            raise ValueError(f"two types would be named {declaration.name}; add to CLASS_NAMES")
        self.declarations[declaration.name] = declaration

    def _struct(self, name: str, shape: Shape, tag: tuple[str, str] | None = None) -> str:
        fields = tuple(
            self._field(name, wire_name, schema, is_required=wire_name in shape.required)
            for wire_name, schema in shape.properties.items()
            if tag is None or wire_name != tag[0]
        )
        self._started.add(name)
        self._declare(StructDeclaration(name, fields, tag))
        return name

    def _field(self, owner: str, wire_name: str, schema: Schema, *, is_required: bool) -> Field:
        name = "meta" if wire_name == "_meta" else snake(wire_name)
        field = Field(
            wire_name=wire_name,
            name=name + "_" if keyword.iskeyword(name) else name,
            type=self._type(schema, owner + pascal(wire_name)),
            is_required=is_required,
            defaults_on_error=schema.get("x-deserialize-default-on-error", False),
            skips_invalid_items=schema.get("x-deserialize-skip-invalid-items", False),
            defaults_on_null=schema.get("x-deserialize-default-on-null", False),
        )
        _check_assumptions(owner, field)
        return field

    # --- unions

    def _union(self, name: str, schema: Schema) -> str:
        common = Shape(schema.get("properties", {}), frozenset(schema.get("required", ())))
        tag_field: str | None = None
        variants: dict[str, str] = {}
        untagged: list[tuple[Schema, Shape]] = []
        for variant in _alternatives(schema):
            if "not" in variant:  # the variant "anything else"
                continue
            shape = common.joined_by(self._shape(variant))
            tag = _tag(variant)
            if tag is None:
                untagged.append((variant, shape))
            else:
                tag_field = tag[0]
                variants[tag[1]] = self._struct(self._variant_name(name, variant), shape, tag)
        fallbacks = tuple(self._fallback(name, *each, tag_field) for each in untagged)
        self._declare(UnionDeclaration(name, tag_field, variants, fallbacks))
        return name

    def _fallback(
        self, union: str, variant: Schema, shape: Shape, tag_field: str | None
    ) -> FallbackDeclaration:
        """Declare a variant without tag; it keeps the tag that a peer sends all the same."""
        name = self._variant_name(union, variant)
        if tag_field is not None and tag_field not in shape.properties:
            shape = Shape({tag_field: {"type": "string"}, **shape.properties}, shape.required)
        if name not in self._started:
            self._struct(name, shape)
        tags = (variant["title"],) if tag_field is not None else ()
        if union in FALLBACK_FOR_ANY_TAG:
            tags = ("*",)
        return FallbackDeclaration(name, tuple(sorted(shape.required)), tags)

    def _variant_name(self, union: str, variant: Schema) -> str:
        tag = _tag(variant)
        label = tag[1] if tag else variant["title"]
        if (union, label) in CLASS_NAMES:
            return CLASS_NAMES[union, label]
        return _only_reference(variant) or pascal(label) + union

    def _union_of_lists(self, variants: list[Schema], context: str) -> str:
        """Read `A[] | B[]` as `(A | B)[]`: msgspec cannot tell two kinds of lists apart."""
        name = context + "Item"
        items = [{"title": "", "allOf": [variant["items"]]} for variant in variants]
        return f"tuple[{self._union(name, {'anyOf': items})}, ...]"

    # --- type expressions

    def _type(self, schema: Schema, context: str) -> str:
        if (reference := _only_reference(schema)) is not None:
            return self._define(reference)
        variants = _alternatives(schema)
        if variants:
            return _or_none(self._type_of_variants(variants, schema, context), schema)
        kind = schema.get("type")
        if isinstance(kind, list):
            names = [self._type({**schema, "type": each}, context) for each in kind]
            return " | ".join(names)
        if kind == "array":
            return f"tuple[{self._type(schema.get('items', {}), context + 'Item')}, ...]"
        if kind == "object":
            return self._mapping(schema, context)
        return _SCALARS.get(str(kind), "Any")

    def _mapping(self, schema: Schema, context: str) -> str:
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values:
            return f"dict[str, {self._type(values, context + 'Value')}]"
        return "dict[str, Any]"

    def _type_of_variants(self, variants: list[Schema], schema: Schema, context: str) -> str:
        if len(variants) == 1:
            return self._type(variants[0], context)
        if all(variant.get("type") == "array" for variant in variants):
            return self._union_of_lists(variants, context)
        if any(self._is_object(variant) for variant in variants):
            return self._union(context, schema)
        names = [self._type(variant, context) for variant in variants]
        parts = [part for name in names for part in name.split(" | ")]
        return " | ".join(dict.fromkeys(parts))

    # --- shapes

    def _shape(self, schema: Schema) -> Shape:
        """Merge allOf and anyOf into one table of properties.

        What only one choice of an anyOf demands is optional in the whole.
        """
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            self.merged.add(name)
            return self._shape(self.definitions[name])
        shape = Shape()
        for part in schema.get("allOf", ()):
            shape = shape.joined_by(self._shape(part))
        own = Shape(schema.get("properties", {}), frozenset(schema.get("required", ())))
        shape = shape.joined_by(own)
        choices = [self._shape(v) for v in _alternatives(schema) if self._is_object(v)]
        merged: dict[str, Schema] = {}
        for choice in choices:
            merged = {**choice.properties, **merged}
        return Shape({**merged, **shape.properties}, shape.required)

    def _is_object(self, schema: Schema) -> bool:
        if "$ref" in schema:
            return self._is_object(self.definitions[schema["$ref"].rpartition("/")[2]])
        if schema.get("type") == "object" or "properties" in schema:
            return True
        return any(self._is_object(part) for part in schema.get("allOf", ()))


# --- reading one schema


def _check_assumptions(owner: str, field: Field) -> None:
    """Refuse a schema that `quarterdeck.acp.lenient` would misread."""
    if field.name == "meta" and (field.is_required or not field.defaults_on_error):
        raise ValueError(f"{owner}._meta is not optional and forgiven, as everywhere else")
    has_default = field.defaults_on_error or field.defaults_on_null
    if field.is_required and has_default and not field.type.startswith("tuple["):
        raise ValueError(f"{owner}.{field.wire_name} has a default that is not an empty list")


def _alternatives(schema: Schema) -> list[Schema]:
    variants = schema.get("oneOf") or schema.get("anyOf") or ()
    return [variant for variant in variants if variant.get("type") != "null"]


def _or_none(type_expression: str, schema: Schema) -> str:
    variants = schema.get("oneOf") or schema.get("anyOf") or ()
    if len(_alternatives(schema)) == len(variants) or "None" in type_expression.split(" | "):
        return type_expression
    return type_expression + " | None"


def _only_reference(schema: Schema) -> str | None:
    """Name the definition that `schema` consists of, apart from a title or a tag."""
    parts = schema.get("allOf", ())
    target: Any = parts[0] if len(parts) == 1 else schema
    return target["$ref"].rpartition("/")[2] if "$ref" in target else None


def _tag(variant: Schema) -> tuple[str, str] | None:
    for name, schema in variant.get("properties", {}).items():
        if isinstance(schema.get("const"), str):
            return name, schema["const"]
    return None


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def pascal(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_\-/ .$]", name) if part)
