"""Tokens of AWS MSK's login by IAM, from AWS's own signer (the extra `msk`).

A token is a signed URL. AWS's credentials are found in AWS's usual places, such as the environment,
a profile, or the identity of the machine or pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.login.bounded_call import LateError, bounded_call
from eos.login.tokens import Token, token_of


@dataclass(frozen=True, slots=True)
class MskSigner:
    """AWS's signer for the brokers of one region."""

    region: str

    def fetch(self, deadline: Deadline) -> Token:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ImportError as error:
            raise UsageError(
                "msk_signer_missing",
                "`mechanism: AWS_MSK_IAM` needs AWS's signer, which is not installed on this "
                "machine",
                hint="pip install 'spark-eos[msk]', on the driver and all executors",
            ) from error
        try:
            value, ends_ms = bounded_call(
                f"msk {self.region}",
                lambda: MSKAuthTokenProvider.generate_auth_token(self.region),
                deadline,
            )
        except Exception as error:
            is_late = isinstance(error, LateError)
            reason = "no answer in time" if is_late else f"{type(error).__name__}: {error}"
            raise UnavailableError(
                "msk_signer_failed",
                f"AWS's signer gives no token for {self.region}: {reason}",
                hint="check AWS's credentials of this machine: `aws sts get-caller-identity`",
            ) from error
        return token_of(value, ends_ms / 1000)
