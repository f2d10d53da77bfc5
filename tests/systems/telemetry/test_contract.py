"""schemathesis: valid and invalid requests get only answers that the OpenAPI document describes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, new_token

PARTS = 6


@pytest.fixture
def service(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A service for this test only: with work stealing, tests of a module run in any order and process."""
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/service.db")) as store:
        headers = {"Authorization": f"Bearer {new_token(store, Role.ADMIN)}"}
        yield {"app": create_app(store), "headers": headers}


@pytest.mark.rare
@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_documented(part: int, service: dict[str, Any]) -> None:
    """Test every sixth route; schemathesis is imported here, as that takes a second."""
    pytest.importorskip("schemathesis")
    import schemathesis

    schema = schemathesis.openapi.from_dict(service["app"].openapi())
    schema.app = service["app"]
    routes = [found.ok() for found in schema.get_all_operations()][part::PARTS]
    assert routes
    for route in routes:

        @hypothesis.given(case=route.as_strategy())
        @hypothesis.settings(max_examples=3, suppress_health_check=list(hypothesis.HealthCheck))
        def answers(case: Any) -> None:
            case.call_and_validate(**service)

        answers()
