"""schemathesis: no request that the OpenAPI document allows or forbids gets an answer it does not document."""

from __future__ import annotations

import contextlib
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

with tempfile.TemporaryDirectory() as folder, contextlib.closing(Store(f"sqlite:///{folder}/unused.db")) as unused:
    application = create_app(unused)  # never started; every call names its own
    schema = schemathesis.openapi.from_dict(application.openapi())
    schema.app = application


@pytest.fixture
def service(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A service of this route alone: under work stealing, cases of one module run in any order and any process."""
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/service.db")) as store:
        headers = {"Authorization": f"Bearer {new_token(store, Role.ADMIN)}"}
        yield {"app": create_app(store), "headers": headers}


@schema.parametrize()
@hypothesis.settings(max_examples=3, suppress_health_check=list(hypothesis.HealthCheck))
def test_every_answer_is_documented(case: Any, service: dict[str, Any]) -> None:
    case.call_and_validate(**service)
