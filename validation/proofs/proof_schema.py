"""JSON Schema of the proofs that `flowlex.validation.proofs.proof.from_document` reads."""

from __future__ import annotations

from typing import Any

from flowlex.validation.proofs.proof import FORMAT

_NUMBER = {"type": ["number", "string"], "description": 'Exact: integer, decimal, or a text such as "3/2".'}


def proof_schema() -> dict[str, Any]:
    """Leaves and multipliers of each objective, derived rows, leaves without an answer, or a point and a ray."""

    def by_name(values: dict[str, Any], description: str) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": values, "description": description}

    def listed(items: dict[str, Any], description: str) -> dict[str, Any]:
        return {"type": "array", "items": items, "description": description}

    def record(description: str, required: list[str], **properties: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "description": description,
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    name: dict[str, Any] = {"type": "string"}
    term = {"type": "array", "prefixItems": [name, name, _NUMBER], "minItems": 3, "maxItems": 3}
    row = listed(term, "Terms: variable, label and coefficient of each.")
    vector = listed(term, "Variable, label and value of each that is not 0.")
    rows = by_name(
        record("Multipliers of rows of one name.", [], default=_NUMBER, at=by_name(_NUMBER, "By label.")),
        "Multipliers of rows, by name.",
    )
    branch = record(
        "A side of an integer combination of integer variables.",
        ["row", "relation", "side"],
        row={"anyOf": [row, name], "description": "Its terms, or the name of a sum."},
        relation={"enum": ["<=", ">="]},
        side={"type": ["integer", "string"]},
        multiplier=_NUMBER,
    )
    leaf = record(
        "Answers that satisfy all branches, and multipliers that bound the objective over them.",
        [],
        rows=rows,
        shared={"type": "string", "description": "The name of multipliers that several leaves share."},
        complete=listed(name, "Names of rows whose best multipliers the checker finds."),
        blocks=listed(name, "Names of blocks whose columns are bounded by their copies."),
        earlier={
            "anyOf": [by_name(_NUMBER, "By name."), _NUMBER],
            "description": "Multipliers of earlier objectives, at most 0: by name, or one number for all of them.",
        },
        derived=by_name(_NUMBER, "Multipliers of derived rows, by their number, at least 0."),
        branches=listed(branch, "From the root on."),
        with_earlier={"type": "boolean", "description": "Add the leaves of earlier objectives as often as it helps."},
        own=_NUMBER | {"description": "Of the objective itself: 1; 0 where the leaf is shown to have no answer."},
    )
    leaves = listed(leaf, "They cover all answers.")
    derived = record(
        "A row that follows in each of its cases, rounded up where it is an integer.",
        ["row"],
        row=row,
        stage={"type": "integer", "minimum": 0, "description": "How many objectives are fixed where it holds."},
        cases=leaves,
    )
    return record(
        "What proves the claims of the file.",
        [],
        format={"const": FORMAT},
        shared=by_name(rows, "Multipliers of several leaves, by a name."),
        sums=by_name(row, "Sums of variables that several branches compare, by a name."),
        stages=by_name(
            {"anyOf": [leaves, name]},
            "The leaves that bound each objective, by its name; or the name of one listed before with the same.",
        ),
        derived=listed(derived, "Each may use those before it."),
        points=by_name(vector, "Of objectives with `within`: an answer that attains the optimum."),
        empty=listed(leaf, "Leaves that show that there is no answer."),
        point=vector,
        ray=vector | {"description": "A direction along which an objective improves without end from the point."},
    )
