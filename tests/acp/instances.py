"""Random instances of ACP's definitions, the same ones in every run, and a strict comparison."""

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema

from quarterdeck.acp import schema, v2
from tools.acp_model import ENVELOPES, Model, StructDeclaration
from tools.acp_overlay import with_overlay

Schema = dict[str, Any]

TEXTS = ("", "a", "end_turn", "é😀\u2028", 'q"\n\\', "/abs/p", "\x00\x7f")
JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1.5,
    "s",
    [],
    {"a": [1, {"b": None}]},
    [1, "2", None],
)
# Deep enough for every type; beyond it optional fields become rare.
DEEP = 7


def canonical(value: Any) -> str:
    """Distinguish what Python's == does not: true and 1, 1 and 1.0."""
    return json.dumps(value, sort_keys=True)


def instances(schema: Schema, name: str, count: int) -> Iterator[Any]:
    """Yield `count` valid instances of one definition; jsonschema is the judge."""
    definition = schema["$defs"][name]
    validator = jsonschema.Draft202012Validator({**definition, "$defs": schema["$defs"]})
    maker = _Maker(schema, random.Random(name))
    for _ in range(count):
        instance = maker.make(definition, 0)
        validator.validate(instance)
        yield instance


def typed_definitions(
    schema_document: Schema, version: int = 1
) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield name, our type, and the tag to add where the type is that of a union's variant."""
    model = Model(with_overlay(schema_document, version))
    types = schema if version == 1 else v2.schema
    for name in schema_document["$defs"]:
        if name in ENVELOPES or name not in model.declarations:
            continue
        declaration = model.declarations[name]
        tag = declaration.tag if isinstance(declaration, StructDeclaration) else None
        yield name, getattr(types, name), {tag[0]: tag[1]} if tag else {}


class _Maker:
    def __init__(self, schema: Schema, chance: random.Random) -> None:
        self.definitions = schema["$defs"]
        self.chance = chance

    def make(self, schema: Schema, depth: int) -> Any:
        if "$ref" in schema:
            return self.make(self.definitions[schema["$ref"].rpartition("/")[2]], depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("type") == "object" or "properties" in schema or "allOf" in schema:
            return self._object(schema, depth)
        variants = schema.get("oneOf") or schema.get("anyOf")
        if variants:
            return self.make(self.chance.choice(variants), depth + 1)
        kind = schema.get("type")
        return self._value(
            self.chance.choice(kind) if isinstance(kind, list) else kind, schema, depth
        )

    def _object(self, schema: Schema, depth: int) -> Any:
        """Make the common properties first, so that the constant of a variant wins over them."""
        made = self._properties(schema, depth)
        parts = list(schema.get("allOf", ()))
        variants = schema.get("oneOf") or schema.get("anyOf")
        if variants:
            parts.append(self.chance.choice(variants))
        for part in parts:
            value = self.make(part, depth + 1)
            if not isinstance(value, dict):
                return value
            made = {**value, **made} if part not in (variants or ()) else {**made, **value}
        return made

    def _properties(self, schema: Schema, depth: int) -> dict[str, Any]:
        made = {}
        for name, each in schema.get("properties", {}).items():
            likely = self.chance.random() < (0.5 if depth < DEEP else 0.1)
            if likely or name in schema.get("required", ()):
                made[name] = self.make(each, depth + 1)
        values = schema.get("additionalProperties")
        if "properties" not in schema and isinstance(values, dict):
            made.update({key: self.make(values, depth + 1) for key in ("", "k")})
        elif "properties" not in schema and values is True:
            made["x"] = self.chance.choice(JSON_VALUES)
        return made

    def _value(self, kind: str | None, schema: Schema, depth: int) -> Any:
        match kind:
            case "object":
                return self._object({**schema, "type": "object"}, depth)
            case "array":
                count = self.chance.randint(schema.get("minItems", 0), 2)
                return [self.make(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return self._text(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self.chance.random() < 0.5
            case "null":
                return None
            case _:
                return self.chance.choice(JSON_VALUES)

    def _text(self, schema: Schema) -> str:
        if schema.get("format") == "uri":
            return "https://example.org/a?b=c"
        return self.chance.choice(
            [text for text in TEXTS if len(text) >= schema.get("minLength", 0)]
        )

    def _integer(self, schema: Schema) -> int:
        least: int = schema.get("minimum", -(2**40))
        most: int = schema.get("maximum", 2**63 - 1)
        return self.chance.choice((least, most, min(7, most)))

    def _number(self, schema: Schema) -> float:
        least, most = schema.get("minimum", -1), schema.get("maximum", 1e308)
        values = (0, 1, 1.0, -0.25, 1e300, 2**53)
        return self.chance.choice([each for each in values if least <= each <= most])
