"""Every error superopt raises on purpose, each with the exit code the command line ends with."""


class SuperoptError(Exception):
    """A failure that has one clear line to show; `exit_code` is what the command line returns for it."""

    exit_code = 1


GLOBAL_ERRORS = frozenset({"StoreError", "ProviderError", "RuntimeMissingError", "TargetError"})
"""Errors that are not about the one window or candidate that is tried when they occur: they end a run."""


def failure(error: Exception) -> str:
    """Return in one line why one window or candidate failed, so that the run can go on without it.

    Raises:
        Exception: The error itself, where it is not about that window or candidate alone.
    """
    if isinstance(error, SuperoptError):
        if type(error).__name__ in GLOBAL_ERRORS:
            raise error
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= FAILURE_LENGTH else f"{line[: FAILURE_LENGTH - 1]}…"


FAILURE_LENGTH = 160
"""Characters of a failure's text that a report repeats."""


class ShapeError(SuperoptError):
    """Operands, attributes or sizes that an operator is not defined for."""

    exit_code = 10


class NotationError(SuperoptError):
    """Text that is not a term, a rule or an axiom of the notation."""

    exit_code = 11


class SpecError(SuperoptError):
    """A file in specs/ that does not define an operator properly."""

    exit_code = 12


class StoreError(SuperoptError):
    """A rule store that cannot be read, or holds a rule that is stale or unproved."""

    exit_code = 13


class InstantiationError(SuperoptError):
    """Conditions on sizes and attributes that no small values were found for."""

    exit_code = 15


class UnprovedError(SuperoptError):
    """An axiom or a stored rule was refuted, or not proved."""

    exit_code = 16


class SchedulerError(SuperoptError):
    """A long job that cannot be run where it should, or whose finished tasks cannot be kept."""

    exit_code = 17


class UnreadableRulesError(SuperoptError):
    """A file of rules to compare has lines that cannot be read; all others were compared."""

    exit_code = 18


class EgglogMissingError(SuperoptError):
    """egglog, which only the generation of rules needs, is not installed."""

    exit_code = 19


class ModelNotFoundError(SuperoptError):
    """The model file, or the external data it names, is missing."""

    exit_code = 20


class InvalidModelError(SuperoptError):
    """The file is empty, not an ONNX model, or one that ONNX Runtime cannot load."""

    exit_code = 21


class TargetError(SuperoptError):
    """The output file cannot be written; what was there before is untouched."""

    exit_code = 22


class ProviderError(SuperoptError):
    """An execution provider that is unknown, absent, or fell back to another device."""

    exit_code = 23


class RuntimeMissingError(SuperoptError):
    """Neither onnxruntime-gpu nor onnxruntime is installed."""

    exit_code = 24


class CheckFailedError(SuperoptError):
    """A rewritten model does not compute what the original does."""

    exit_code = 25


class DimensionError(SuperoptError):
    """A size was given for a dimension that the model does not leave open."""

    exit_code = 26


class Undecidable(SuperoptError):  # noqa: N818 (a verdict, as much as an error)
    """Two programs that no test over a finite field compares: no polynomials, or of more boxes than the budget allows."""

    exit_code = 27


class CertificateError(SuperoptError):
    """A certificate that cannot be read, is of other models, or says of a step what is not shown to be right."""

    exit_code = 28


class ProfileError(SuperoptError):
    """A device profile that cannot be read, is no such file, or is of another provider than was asked for."""

    exit_code = 29


class OpsetError(SuperoptError):
    """An opset that a model cannot be brought to."""

    exit_code = 30


class RuntimeDiedError(SuperoptError):
    """ONNX Runtime itself crashes while it loads or runs the model: in a child process, so that nothing else is lost."""

    exit_code = 31


class OutputError(SuperoptError):
    """The standard output cannot be written, because the disk is full, say."""

    exit_code = 36


def first_line(error: BaseException, limit: int = 160) -> str:
    """The first line of an error's text, shortened to `limit` characters; its type where it has no text."""
    text = str(error).strip().splitlines()
    line = text[0].strip() if text else type(error).__name__
    return line if len(line) <= limit else line[: limit - 1] + "…"
