"""Errors of tasks.

A permanent error fails its task at once; a temporary error has Airflow retry it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from pydantic import ValidationError

from sluice_airflow.hooks.sluice import ConnectionFieldError
from sluice_ops.channel import ChannelAwayError, ConflictError, NotAllowedError
from sluice_ops.model.change import ChangeSpec
from sluice_ops.operations.expiry import ExpiryError
from sluice_ops.site.endpoints import EndpointsError
from sluice_ops.site.site_file import SiteError
from sluice_ops.site.validation_errors import explain


class StepFailedError(AirflowFailException):
    """The controller reported the step as failed. Permanent: a run executes each step once."""


class AbortFailedError(StepFailedError):
    """The controller could not complete the abort of a change."""


class NothingPostedError(StepFailedError):
    """The task was refused before it posted an operation: no controller knows of it. Permanent."""


class PipelineFailedError(StepFailedError):
    """A run of several changes of tiers failed. The controller knows only its changes."""


class NoResultError(AirflowFailException):
    """The controller gave no result of an abort in time. Permanent: a run executes it once."""


class UnusableFormError(AirflowFailException):
    """The form's values are not a valid change. Permanent; no operation was posted."""


class UnusableJobError(AirflowFailException):
    """The site file can never give a batch job slots. Permanent; the job was not queued."""


class NoSlotsError(AirflowFailException):
    """A batch job got no slot until the run's deadline. Permanent for this run."""


class SlotsTakenBackError(AirflowException):
    """A running batch job lost all its slots. Airflow retries the task, which queues again."""


class EndedByPersonError(AirflowFailException):
    """A person ended the run, and this task has cleaned up.

    The run counts as failed, without an alert.
    """


class AwayError(AirflowException):
    """A service that the task needs does not answer.

    Temporary: the next try finds the operation that this try posted.
    """


class TierFailedError(AirflowException):
    """A tier's incarnation failed, or the tier has lost records or lags too far.

    Airflow retries the task: the retry watches the tier again, and starts it if the controller has
    given it up.
    """


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of the channel, the site file and the form as permanent or temporary task
    errors.
    """
    try:
        yield
    except NotAllowedError as error:
        raise AirflowFailException(str(error)) from error
    except (ChannelAwayError, ConflictError, ConnectionError) as error:
        message = (
            f"{error}. Nothing is lost: Airflow retries this task, and it continues from the posted operation"
        )
        raise AwayError(message) from error
    except (FileNotFoundError, SiteError, EndpointsError, ConnectionFieldError) as error:
        raise AirflowFailException(str(error)) from error
    except ExpiryError as error:
        message = (
            f"the form cannot be used: until: {error}. No operation was posted; "
            "correct this field and trigger the runbook again"
        )
        raise UnusableFormError(message) from error
    except ValidationError as error:
        mistakes = "; ".join(explain(error, ChangeSpec))
        message = (
            f"the form cannot be used: {mistakes}. No operation was posted; "
            "correct these fields and trigger the runbook again"
        )
        raise UnusableFormError(message) from error
