"""Credentials and region from the configuration files of the AWS command line."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from typing import Any

from recmap.errors import OptionError

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
# What only the AWS tools can turn into credentials.
_INDIRECT = ("sso_session", "sso_start_url", "role_arn", "credential_process")


def profile_options(profile: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a profile sets and that neither ``given`` nor variables set.

    Without ``profile``, use the one in ``AWS_PROFILE``, or else "default" if it exists.
    """
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    named = name != "default" or profile is not None
    found = {
        **_section("AWS_CONFIG_FILE", "~/.aws/config", name, prefix="profile "),
        **_section("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    }
    if named and not found:
        raise OptionError(f"profile {name!r} is neither in ~/.aws/config nor in ~/.aws/credentials")
    options: dict[str, Any] = {}
    own_keys = "access_key_id" in given or (profile is None and "AWS_ACCESS_KEY_ID" in os.environ)
    if not own_keys:
        # All of them or none: keys of two sources do not fit together.
        options |= {key.removeprefix("aws_"): found[key] for key in _KEYS if key in found}
        indirect = [key for key in _INDIRECT if key in found]
        if named and indirect and not options:
            raise OptionError(
                f"profile {name!r} gets its credentials by {indirect[0]}, which recmap does not "
                f"support; run: eval $(aws configure export-credentials --profile {name} "
                "--format env)"
            )
    for option, key, variables in (
        ("region", "region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        ("endpoint", "endpoint_url", ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")),
    ):
        if key in found and option not in given and not any(v in os.environ for v in variables):
            options[option] = found[key]
    return options


def _section(variable: str, usual: str, name: str, prefix: str = "") -> dict[str, str]:
    path = os.path.expanduser(os.environ.get(variable) or usual)
    parser = configparser.RawConfigParser(strict=False)
    broken = False
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        broken = True
    if broken:  # raised here, because the original quotes lines of the file
        raise OptionError(f"{path}: not an AWS configuration file")
    for section in (f"{prefix}{name}", name if name == "default" else ""):
        if section and parser.has_section(section):
            return dict(parser.items(section))
    return {}
