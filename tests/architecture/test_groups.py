"""Tests of one group run in one worker: some share a browser, a port or a directory."""

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_of_tests_were_torn_apart_over_the_workers(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("one process runs every test")
    assert request.node.nodeid.endswith("@groups"), "pytest-xdist did not name the group"
