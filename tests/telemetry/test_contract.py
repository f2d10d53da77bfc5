"""schemathesis: no request that the OpenAPI document allows or forbids gets an answer it does not document."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flowlex.telemetry.app import create_app
from flowlex.telemetry.security import Role, new_token
from flowlex.telemetry.store import Store

if find_spec("schemathesis") is None:
    pytest.skip("schemathesis is not installed", allow_module_level=True)

import hypothesis
import schemathesis

#: Random cases per route, beside the examples and the coverage cases; more for a longer search.
EXAMPLES = int(os.environ.get("FLOWLEX_CONTRACT_EXAMPLES", "5"))

# A service that lives as long as the module: cases build on what earlier ones stored.
_FOLDER = tempfile.TemporaryDirectory(prefix="flowlex-contract-")
_STORE = Store(f"sqlite:///{Path(_FOLDER.name)}/service.db")
_TOKEN = new_token(_STORE, Role.ADMIN)
schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(_STORE))


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    _STORE.close()
    _FOLDER.cleanup()


@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_every_answer_is_documented(case: Any) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {_TOKEN}"})
