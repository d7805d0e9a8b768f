"""Documents against the JSON Schemas of docs/schemas/: as much of JSON Schema as those use, so that tests need no package."""

import json
import math
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas"


def violations(document, name):
    """What of it is not as NAME.schema.json says, a line each."""
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    return list(_violations(document, schema, schema, "$"))


def _violations(value, schema, root, at):
    known = {"$schema", "title", "description", "$defs", "$ref", "type", "properties", "required", "additionalProperties",
             "items", "minItems", "maxItems", "enum", "const", "minimum", "exclusiveMinimum", "anyOf"}
    assert not set(schema) - known, f"this test does not know {set(schema) - known}"
    if "$ref" in schema:
        yield from _violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema and all(list(_violations(value, each, root, at)) for each in schema["anyOf"]):
        yield f"{at}: none of anyOf"
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float),
             "integer": int}
    wanted = schema.get("type", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    fits = [isinstance(value, types[each]) and (each == "boolean" or not isinstance(value, bool)) for each in wanted]
    if wanted and not any(fits):
        yield f"{at}: {value!r} is not {wanted}"
        return
    if "enum" in schema and value not in schema["enum"] or "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not legal"
    number = isinstance(value, (int, float))
    if number and (value < schema.get("minimum", -math.inf) or value <= schema.get("exclusiveMinimum", -math.inf)):
        yield f"{at}: {value!r} is too small"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            yield f"{at}: {len(value)} items"
        for i, each in enumerate(value):
            yield from _violations(each, schema.get("items", {}), root, f"{at}[{i}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{at}: no {name}"
        for name, each in value.items():
            if name in properties:
                yield from _violations(each, properties[name], root, f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{at}: {name} is not in the schema"
