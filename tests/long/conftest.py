import pytest


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """The duration of the load: a minute for each of `--rounds`."""
    return 60.0 * int(request.config.getoption("--rounds"))
