"""Of all that apt says, the bed tells first why it did not install."""

from __future__ import annotations

from bed.repository import apt_reason

UNMET = """Reading package lists...
Some packages could not be installed. This may mean that you have
requested an impossible situation.

The following packages have unmet dependencies:
 oj-mongod : Depends: libcurl4t64 (>= 7.16.2) but it is not installable
             Depends: libssl3t64 (>= 3.0.0) but it is not installable
"""
GIVEN_UP = "E: Unable to correct problems, you have held broken packages.\n"
AWAY = """W: Some index files failed to download.
Err:1 http://mirror.example/debian bookworm InRelease
E: Failed to fetch http://mirror.example/debian/dists/bookworm/InRelease  Temporary failure
E: Some index files failed to download.
"""


def test_a_dependency_that_does_not_fit_comes_first() -> None:
    wanted = "oj-mongod : Depends: libcurl4t64 (>= 7.16.2) but it is not installable"
    assert apt_reason(UNMET, GIVEN_UP) == wanted


def test_else_it_is_the_first_error() -> None:
    assert apt_reason("", GIVEN_UP) == GIVEN_UP.strip()
    assert "Temporary failure" in apt_reason("Reading package lists...\n", AWAY)


def test_silence_is_said() -> None:
    assert apt_reason("", "") == "apt-get gave no reason"
