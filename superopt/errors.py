"""The errors that superopt raises on purpose, each with its exit code on the command line."""

from superopt.policy import REPORT


class SuperoptError(Exception):
    """A failure that is reported in one line; `exit_code` is the exit code of the command line."""

    exit_code = 1


GLOBAL_ERRORS = frozenset({"StoreError", "ProviderError", "RuntimeMissingError", "TargetError", "CompilerError"})
"""The names of the error classes that end a run. Any other error ends only the attempt at one window or candidate model.

A window is a part of a model that one search rewrites.
"""


def failure(error: Exception) -> str:
    """Return the error's text in one line, so that a run can report the error and continue.

    The error ended the search of one window (a part of a model) or the check of one candidate model.

    Raises:
        SuperoptError: `error` itself, if its type is in `GLOBAL_ERRORS`. Such an error ends the run.
    """
    if isinstance(error, SuperoptError):
        if type(error).__name__ in GLOBAL_ERRORS:
            raise error
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= REPORT.max_failure_characters else f"{line[: REPORT.max_failure_characters - 1]}…"


class ShapeError(SuperoptError):
    """An operator is not defined for its operands, attributes or sizes."""

    exit_code = 10


class NotationError(SuperoptError):
    """Text that is not a term, a rule or an axiom in the notation of superopt's rule files."""

    exit_code = 11


class SpecError(SuperoptError):
    """The definition of an operator in specs/ is missing or invalid."""

    exit_code = 12


class StoreError(SuperoptError):
    """The stored rules cannot be read, or contain a rule without a proof or with an outdated proof."""

    exit_code = 13


class InstantiationError(SuperoptError):
    """No values of sizes and attributes were found that satisfy the given conditions."""

    exit_code = 15


class UnprovedError(SuperoptError):
    """An axiom or a stored rule was refuted, or no proof of it was found."""

    exit_code = 16


class SchedulerError(SuperoptError):
    """A long job cannot run on the given scheduler, or its finished tasks cannot be stored."""

    exit_code = 17


class UnreadableRulesError(SuperoptError):
    """A file of rules to compare has lines that cannot be read; all other lines were compared."""

    exit_code = 18


class ExampleError(SuperoptError):
    """Example inputs for the model cannot be read, or do not fit the inputs of the model."""

    exit_code = 19


class FixedInputError(SuperoptError):
    """A fixed value names no input or dimension of the model, or does not fit the input."""

    exit_code = 14


class ModelNotFoundError(SuperoptError):
    """The model file, or an external data file that the model names, is missing."""

    exit_code = 20


class InvalidModelError(SuperoptError):
    """The file is empty, is not an ONNX model, or cannot be loaded by ONNX Runtime."""

    exit_code = 21


class TargetError(SuperoptError):
    """The output file cannot be written; an existing file is unchanged."""

    exit_code = 22


class ProviderError(SuperoptError):
    """An execution provider is unknown, is not available, or fell back to another device."""

    exit_code = 23


class RuntimeMissingError(SuperoptError):
    """Neither onnxruntime-gpu nor onnxruntime is installed."""

    exit_code = 24


class CheckFailedError(SuperoptError):
    """A rewritten model does not compute the same outputs as the original."""

    exit_code = 25


class DimensionError(SuperoptError):
    """A size was given for a dimension that is not dynamic in the model."""

    exit_code = 26


class Undecidable(SuperoptError):  # noqa: N818 (a verdict, as much as an error)
    """Two terms cannot be compared over a finite field.

    The terms are not polynomials, or their outputs have too many regions. (A region is a box of output
    positions that are computed by one formula.)
    """

    exit_code = 27


class CertificateError(SuperoptError):
    """A certificate cannot be read, belongs to other models, or contains a step that could not be verified."""

    exit_code = 28


class ProfileError(SuperoptError):
    """A file cannot be read, is not a device profile, or is the profile of an execution provider that was not requested."""

    exit_code = 29


class OpsetError(SuperoptError):
    """The model cannot be converted to the requested opset."""

    exit_code = 30


class RuntimeDiedError(SuperoptError):
    """ONNX Runtime crashed while it loaded or ran the model. The crash ended only a child process."""

    exit_code = 31


class CacheError(SuperoptError):
    """The file of the time cache cannot be read or written, or is not a time cache."""

    exit_code = 32


class ReplayError(SuperoptError):
    """No rewrite of the certificate could be applied to the other model; the model was written unchanged."""

    exit_code = 33


class ResourceError(SuperoptError):
    """The operating system refused memory, a file or a process: for example, a name is too long, or the disk is full."""

    exit_code = 35


class OutputError(SuperoptError):
    """The standard output cannot be written, for example because the disk is full."""

    exit_code = 36


class CompilerError(SuperoptError):
    """Compiled kernels were requested, but no C compiler is installed, or the installed compiler does not work."""

    exit_code = 37


class PackError(SuperoptError):
    """Models cannot be packed into one model: their names, shared inputs or domains do not fit together."""

    exit_code = 38


def first_line(error: BaseException, limit: int = REPORT.max_failure_characters) -> str:
    """Return the first line of the error's text, shortened to `limit` characters.

    If the error has no text, the name of the error's type is returned.
    """
    text = str(error).strip().splitlines()
    line = text[0].strip() if text else type(error).__name__
    return line if len(line) <= limit else line[: limit - 1] + "…"
