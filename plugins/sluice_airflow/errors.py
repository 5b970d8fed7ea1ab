"""What an error means for a task: permanent ones fail it at once, temporary ones have it retried. Used by every operator."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from pydantic import ValidationError

from sluice_ops.channel import ChannelAwayError, ConflictError, NotAllowedError
from sluice_ops.model.change import ChangeSpec
from sluice_ops.operations.expiry import UntilError
from sluice_ops.site.site_file import SiteError
from sluice_ops.site.validation_errors import explain


class StepFailedError(AirflowFailException):
    """The controller ended the step as failed. Permanent: a step of a run is carried out once."""


class UnusableFormError(AirflowFailException):
    """What the form says is not a change. Permanent; nothing was posted."""


class NothingLentError(AirflowFailException):
    """No slot is lent to batch jobs. Permanent for this run."""


class EndedByPersonError(AirflowFailException):
    """A person has ended the run, and what it left is cleared away. It only makes the run a failed one: nobody has to be told."""


class AwayError(AirflowException):
    """Something that the task needs cannot be reached now. Temporary: the task is retried, and finds what it posted before."""


class TierFailedError(AirflowException):
    """A tier's incarnation failed, or records of it are lost.

    The task shows it and is retried, which has the tier watched (and, if given up, started) again.
    """


@contextmanager
def kinds() -> Iterator[None]:
    """Turn the errors of the channel, the site file and the form into what Airflow should do about them."""
    try:
        yield
    except NotAllowedError as error:
        raise AirflowFailException(str(error)) from error
    except (ChannelAwayError, ConflictError, ConnectionError) as error:
        message = f"{error}. Nothing is lost: this task is tried again by itself, and goes on from what it had posted"
        raise AwayError(message) from error
    except (FileNotFoundError, SiteError) as error:
        raise AirflowFailException(str(error)) from error
    except UntilError as error:
        message = f"the form cannot be used: until: {error}. Nothing was posted; trigger the runbook again with this field put right"
        raise UnusableFormError(message) from error
    except ValidationError as error:
        wrong = "; ".join(explain(error, ChangeSpec))
        message = f"the form cannot be used: {wrong}. Nothing was posted; trigger the runbook again with these fields put right"
        raise UnusableFormError(message) from error
