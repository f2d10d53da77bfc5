"""JSON Schema of solution files, from the classes that read them."""

from __future__ import annotations

from typing import Any

from flowlex.validation.certificates.verifier_interface import Document, verifier_for, verifier_kinds


def solution_schema() -> dict[str, Any]:
    """JSON Schema of solution files: what all hold, and for each kind its answer and proof."""
    schema = Document.model_json_schema()
    kinds = []
    for kind in verifier_kinds():
        verifier = verifier_for(kind)
        assert verifier is not None
        answer = _inline(verifier.answer.model_json_schema())
        proof = {"type": "object"} if verifier.proof is None else _inline(verifier.proof.model_json_schema())
        empty = {"type": "object", "maxProperties": 0}
        kinds.append(
            {
                "if": {"properties": {"kind": {"const": f"{kind}-solution"}}},
                "then": {"properties": {"answer": {"anyOf": [answer, empty]}, "proof": proof}},
            }
        )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "allOf": kinds}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references, so that it can stand inside another."""
    definitions = schema.pop("$defs", {})

    def resolve(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return resolve(definitions[part["$ref"].rsplit("/", 1)[1]])
            return {key: resolve(value) for key, value in part.items()}
        return [resolve(item) for item in part] if isinstance(part, list) else part

    return dict(resolve(schema))
