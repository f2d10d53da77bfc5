"""JSON Schema of solution files, from the classes that read them."""

from __future__ import annotations

from typing import Any

from flowlex.validation.certificates.verifier_interface import Document, verifier_for, verifier_kinds
from flowlex.validation.proofs.proof_document import ProofDocument
from flowlex.validation.proofs.solution_file import SolutionDocument

_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def solution_schema() -> dict[str, Any]:
    """JSON Schema of solution files: of the kinds with a verifier of their own, and of all other problems."""
    known = {"properties": {"kind": {"enum": [f"{kind}-solution" for kind in verifier_kinds()]}}}
    families, problems = _inline(family_solution_schema()), _inline(problem_solution_schema())
    title = {"title": "Solution", "description": "A solution file."}
    return {**_DIALECT, **title, "type": "object", "if": known, "then": families, "else": problems}


def family_solution_schema() -> dict[str, Any]:
    """JSON Schema of solution files of flowlex's own models: what all hold, and for each kind its answer and proof."""
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
    return {**_DIALECT, **Document.model_json_schema(), "allOf": kinds}


def problem_solution_schema() -> dict[str, Any]:
    """JSON Schema of solution files of problems and models of one's own, proof included."""
    schema = SolutionDocument.model_json_schema()
    schema["properties"]["proof"] = _inline(ProofDocument.model_json_schema())
    return {**_DIALECT, **schema}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references, so that it can stand inside another."""
    definitions = schema.pop("$defs", {})
    schema.pop("$schema", None)

    def resolve(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return resolve(definitions[part["$ref"].rsplit("/", 1)[1]])
            return {key: resolve(value) for key, value in part.items()}
        return [resolve(item) for item in part] if isinstance(part, list) else part

    return dict(resolve(schema))
