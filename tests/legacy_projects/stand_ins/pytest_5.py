"""A plugin with which `pytest.fixture` takes the scope first, as before pytest 6."""

import pytest

_fixture = pytest.fixture


def fixture(first=None, **options):
    """Return `pytest.fixture`, whose first argument may be a scope."""
    if isinstance(first, str):
        return _fixture(scope=first, **options)
    return _fixture(first, **options)


pytest.fixture = fixture
