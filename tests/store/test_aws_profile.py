"""Profiles of the AWS command line, with what goes before them."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import recmap as rm
from recmap.store.storage import profile_options
from tests.store_servers import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from tests.buckets import Bucket

CONFIG = """
[default]
region = eu-west-1
[profile work]
region = us-west-2
endpoint_url = http://127.0.0.1:1
[profile sso]
sso_session = mine
"""
CREDENTIALS = """
[default]
aws_access_key_id = first
aws_secret_access_key = 100%secret
[work]
aws_access_key_id = second
aws_secret_access_key = other
aws_session_token = token
"""


@pytest.fixture(autouse=True)
def _own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, text in (
        ("AWS_CONFIG_FILE", CONFIG),
        ("AWS_SHARED_CREDENTIALS_FILE", CREDENTIALS),
    ):
        path = tmp_path / variable.lower()
        path.write_text(text)
        monkeypatch.setenv(variable, str(path))


FIRST = {"access_key_id": "first", "secret_access_key": "100%secret"}
SECOND = {"access_key_id": "second", "secret_access_key": "other", "session_token": "token"}


def test_the_default_profile_is_used() -> None:
    assert profile_options(None, {}) == {**FIRST, "region": "eu-west-1"}


def test_a_profile_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    work = {**SECOND, "region": "us-west-2", "endpoint": "http://127.0.0.1:1"}
    assert profile_options("work", {}) == work
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert profile_options(None, {}) == work
    assert profile_options("default", {}) == {**FIRST, "region": "eu-west-1"}


def test_given_options_go_before_variables_and_these_before_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {"access_key_id": "mine", "secret_access_key": "x", "region": "there"}
    assert profile_options(None, given) == {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "variable")
    monkeypatch.setenv("AWS_REGION", "variable")
    assert profile_options(None, {}) == {}
    assert profile_options("work", {}) == {**SECOND, "endpoint": "http://127.0.0.1:1"}


def test_without_files_there_are_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "missing")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "missing")
    assert profile_options(None, {}) == {}
    with pytest.raises(rm.OptionError, match="profile 'work' is neither"):
        profile_options("work", {})


def test_credentials_that_need_the_aws_tools_are_refused() -> None:
    with pytest.raises(rm.OptionError, match="sso_session.*export-credentials --profile sso"):
        profile_options("sso", {})


def test_a_broken_file_is_named_but_not_quoted() -> None:
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text("canary = secret")
    with pytest.raises(rm.OptionError, match="not an AWS configuration file") as caught:
        profile_options(None, {})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_bucket_is_read_with_a_profile(bucket: Bucket) -> None:
    bucket.put("x.bin", b"x")
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(
        f"[lab]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(
        f"[profile lab]\nregion = us-east-1\nendpoint_url = {bucket.proxy.url}\n"
    )
    bucket.storage = {"profile": "lab"}
    assert bucket.store().head("x.bin").size == 1
