"""Requests to EC2, and its errors."""

import time
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
)
from botocore.exceptions import NoCredentialsError as BotoNoCredentialsError

from sluice_ops.cloud.errors import (
    ACCOUNT_LIMITS,
    NO_ANSWER,
    CloudAwayError,
    CloudError,
    NextStep,
    NoCredentialsError,
    QuotaError,
    next_step,
)

MOST_SECONDS = 20
"""How long EC2 may take to answer."""
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0)
"""The pauses before a launch or a termination is repeated that EC2 throttled or did not answer."""


class Api:
    """The endpoint of EC2 in one region."""

    def __init__(self, url: str | None, region: str, pause: Callable[[float], None] = time.sleep) -> None:
        """Use the endpoint at `url`; None: the region's own."""
        self._url = url
        self._region = region
        self._pause = pause

    def insist(self, action: str, **request: Any) -> Any:
        """Repeat a request while EC2 throttles it or does not answer.

        A repeated launch has the same client token, so EC2 launches nothing twice.
        """
        for wait in WAITS:
            try:
                return self.call(action, tries=1, **request)
            except CloudAwayError:
                self._pause(wait)
        return self.call(action, tries=1, **request)

    def call(self, action: str, *, service: str = "ec2", tries: int = 3, **request: Any) -> Any:
        """Send a request; raise the errors of EC2 as CloudError, CloudAwayError or QuotaError."""
        url = self._url
        endpoint = url or "the cloud's own endpoint"
        embedded: dict[str, Any] = (
            {} if url is None else {"aws_access_key_id": "embedded", "aws_secret_access_key": "embedded"}
        )
        options = Config(
            connect_timeout=5,
            read_timeout=MOST_SECONDS,
            retries={"total_max_attempts": tries},
            proxies={} if url else None,
        )
        try:
            client = boto3.client(
                service, endpoint_url=url, region_name=self._region, config=options, **embedded
            )
            if client.can_paginate(action):
                return client.get_paginator(action).paginate(**request).build_full_result()
            return getattr(client, action)(**request)
        except (EndpointConnectionError, ConnectTimeoutError, HTTPClientError) as error:
            message = f"EC2 at {endpoint} does not answer: {error}"
            raise CloudAwayError(message, NO_ANSWER) from error
        except ClientError as error:
            raise _refusal(error, endpoint) from error
        except BotoNoCredentialsError as error:
            message = (
                "this machine has no AWS credentials: give them in the environment, in ~/.aws, or by an "
                "instance profile"
            )
            raise NoCredentialsError(message) from error
        except BotoCoreError as error:
            message = (
                f"no request can be sent to EC2 at {endpoint}: {error}. "
                "Check the `ec2` keys of the site file, and the AWS credentials"
            )
            raise CloudError(message) from error


def _refusal(error: ClientError, endpoint: str) -> CloudError:
    """Return the error of a request that EC2 refused."""
    reason = error.response.get("Error", {})
    code = reason.get("Code", "")
    message = f"EC2 at {endpoint} refused the request: {code}: {reason.get('Message')}"
    if code in ACCOUNT_LIMITS:
        advice = "ask for fewer workers, or have the quota raised in Service Quotas"
        return QuotaError(f"{message}. This is a limit of the AWS account: {advice}", code)
    return (CloudAwayError if next_step(code) is NextStep.RETRY else CloudError)(message, code)
