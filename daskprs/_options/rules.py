"""Rules for the values of options; each returns the value in its standard form, or rejects it.

The table of options calls no rule for None where the type of the option allows None.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf, isnan
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._core.rate_limit import OF_RATE_LIMITS, RateLimit
from daskprs._inputs.source.sizes import parse_bytes
from daskprs._system.hidden_values import HiddenValues
from daskprs._system.interpreter import NoInterpreter, interpreter_at
from daskprs.errors import JobFolderError, Option, OptionError, UsageError, class_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MOST_PERCENT = 100
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
METRICS = ".prom"
"""The end of the names of files that a node exporter reads."""
PARTS = ("script", "input", "options")


def refused(name: str, value: Any, rule: str) -> OptionError:
    """Return the error that names the option, the rule and the value; of a frame only its class."""
    given = f"{Option(name, value)}"
    if "\n" in given:
        given = f"{Option(name)}, a {class_name(type(value))}"
    return OptionError(f"{given}: must be {rule}.")


def check_folder(name: str, folder: Any) -> None:
    """Reject what is no path; None stands for no folder."""
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise refused(name, folder, "a path")


def check_job_dir(job_dir: Any) -> None:
    """Reject a URL, since a job appends to its files and locks them, and what is no path."""
    check_folder("job_dir", job_dir)
    if job_dir is not None and "://" in str(job_dir):
        msg = (
            f"{Option('job_dir', str(job_dir))}: a job lives in a folder of this machine, or one "
            f"that is mounted. Its output may go to a URL, by {Option('output_dir')}."
        )
        raise OptionError(msg)


@contextmanager
def working_directory() -> Iterator[None]:
    """Raise a `UsageError` if a relative path fails since the working directory was removed."""
    try:
        yield
    except (OSError, UsageError, JobFolderError) as error:
        removed = removed_directory(error)
        if removed is None:
            raise
        raise removed from error


def removed_directory(error: Exception) -> UsageError | None:
    """Return the error of a removed working directory; None if the directory exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        msg = (
            "the working directory of this process was removed, and a relative path, such as the "
            f"default of job_dir, needs that directory ({error}). Change to a folder that exists, "
            "or give absolute paths."
        )
        return UsageError(msg)
    return None


def optional(rule: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a rule that also allows None."""
    return lambda name, value: None if value is None else rule(name, value)


def check_number(least: int, most: int | None = None) -> Callable[[str, Any], Any]:
    """Return a rule for whole numbers."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def rule(name: str, value: Any) -> Any:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            raise refused(name, value, f"a whole number {bounds}")
        return int(value)

    return rule


def check_function(name: str, value: Any) -> Any:
    """Return a function, or the name of one of the script; reject others."""
    if not callable(value) and not (isinstance(value, str) and value.isidentifier()):
        raise refused(name, value, "the name of a function of the script, or a function")
    return value


def check_percent(name: str, value: Any) -> Any:
    """Reject values other than a percentage."""
    if not is_number(value) or not 0 <= value <= MOST_PERCENT:
        raise refused(name, value, "a number from 0 to 100")
    return plain_number(value)


def check_gpus(name: str, value: Any) -> Any:
    """Reject values other than a whole number of devices or a fraction of one device."""
    fine = is_number(value) and 0 <= value < float("inf")
    if not fine or (value > 1 and value != int(value)):
        raise refused(name, value, "a whole number, or a part of 1 such as 0.5")
    return int(value) if value == int(value) else float(value)


def is_number(value: Any) -> bool:
    """Say whether a value is a number, and no boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def plain_number(value: Any) -> int | float:
    """Return a number, such as one of NumPy, as a Python number."""
    return int(value) if isinstance(value, Integral) else float(value)


def check_one_of(*allowed: Any, any_case: bool = False) -> Callable[[str, Any], Any]:
    """Return a rule for a choice."""

    def rule(name: str, value: Any) -> Any:
        given = value.upper() if any_case and isinstance(value, str) else value
        for choice in allowed:
            if type(given) is type(choice) and given == choice:
                return choice
        shown = ", ".join("None" if choice is None else repr(choice) for choice in allowed)
        raise refused(name, value, f"one of {shown}")

    return rule


def check_separator(name: str, value: Any) -> Any:
    """Reject values other than a single character."""
    if not isinstance(value, str) or len(value) != 1 or value in '\r\n"':
        raise refused(name, value, "a single character, neither a quote nor a line break")
    return value


def check_file_name(name: str, value: Any) -> Any:
    """Reject values other than the plain name of a file."""
    if not isinstance(value, str) or not value or "/" in value or value.startswith("."):
        raise refused(name, value, "a file name without a folder, not hidden")
    return value


def _each_once(name: str, value: Any, rule: str, fits: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the values of a list as a tuple, each once; a single one may be given as text."""
    given = (value,) if isinstance(value, str) else value
    is_list = isinstance(given, Sequence) and not isinstance(given, bytes)  # which has numbers
    if not is_list or not all(map(fits, given)):
        raise refused(name, value, rule)
    return tuple(dict.fromkeys(given))


def labels(name: str, value: Any) -> tuple[str | int, ...]:
    """Return column names as a tuple; columns of a frame may have whole numbers as names."""
    rule = "one or more different column names"
    found = _each_once(name, value, rule, _is_label)
    if not found or (len(found) != len(value) and not isinstance(value, str)):
        raise refused(name, value, rule)
    return tuple(one if isinstance(one, str) else int(one) for one in found)


def _is_label(value: Any) -> bool:
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and value != "")


def names(name: str, value: Any) -> tuple[str, ...]:
    """Return column names, which are text, as a tuple."""
    found = labels(name, value)
    if not all(isinstance(one, str) for one in found):
        raise refused(name, value, "one or more different column names")
    return tuple(map(str, found))


def modules(name: str, value: Any) -> tuple[str, ...]:
    """Return names of modules as a tuple, each once."""
    rule = "names of installed packages, as import takes them"
    return _each_once(name, value, rule, _is_dotted)


def _is_dotted(value: Any) -> bool:
    parts = value.split(".") if isinstance(value, str) else [""]
    return all(one.isidentifier() and not keyword.iskeyword(one) for one in parts)


def folder_columns(name: str, value: Any) -> tuple[str, ...]:
    """Return columns that make folders; their names stand in paths."""
    given = names(name, value)
    if any(character in one for one in given for character in "/=\0"):
        raise refused(name, value, "one or more different column names without a slash or =")
    if any(one.startswith(("_", ".")) for one in given):
        rule = "names that do not begin with _ or a dot: readers of data sets skip such folders"
        raise refused(name, value, rule)
    return given


def check_path(name: str, value: Any) -> Any:
    """Reject values other than a path."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise refused(name, value, "a path")
    return value


@working_directory()
def check_metrics_file(name: str, value: Any) -> str:
    """Return the absolute path of a file that a node exporter reads."""
    text = str(value) if isinstance(value, (str, os.PathLike)) else ""
    if not text.endswith(METRICS) or "\0" in text or "://" in text:
        rule = f"the path of a file whose name ends with {METRICS}: a node exporter reads no others"
        raise refused(name, value, rule)
    return str(Path(text).absolute())


def refuse_lost_metrics(path: str | os.PathLike[str] | None) -> None:
    """Refuse a file of metrics that cannot be made: its folder may be misspelt."""
    folder = None if path is None else Path(path).parent
    if folder is None or (folder.is_dir() and os.access(folder, os.W_OK)):
        return
    why = "you may not write to" if folder.is_dir() else "there is no"
    msg = f"{Option('metrics_file', str(path))}: {why} folder {folder}."
    raise OptionError(msg)


@working_directory()
def check_python(name: str, value: Any) -> str:
    """Return the absolute path of an interpreter; an environment may be named by its folder."""
    rule = "the path of an interpreter of Python, or the folder of its environment"
    text = str(value) if isinstance(value, (str, os.PathLike)) else ""
    if not text or "\0" in text or "://" in text:
        raise refused(name, value, rule)
    try:
        return interpreter_at(text)
    except NoInterpreter as error:
        raise refused(name, value, f"{rule}: {error}") from error


def check_root(name: str, value: Any) -> Path:
    """Return the folder of a site's jobs; ``~`` and variables such as ``$SCRATCH`` are resolved."""
    text = os.path.expandvars(check_path(name, value))
    if "://" in text:
        raise refused(name, value, "a folder of this machine, or one that is mounted")
    return Path(text).expanduser()


def check_text(name: str, value: Any) -> Any:
    """Reject values other than non-empty text."""
    if not isinstance(value, str) or not value:
        raise refused(name, value, "text")
    return value


def check_encoding(name: str, value: Any) -> Any:
    """Reject values other than the name of a text encoding that Python knows."""
    try:
        bytes(4).decode(value)  # Python does not look up the encoding of empty bytes
    except (LookupError, TypeError, ValueError) as error:
        raise refused(name, value, "the name of a text encoding, such as 'utf-8'") from error
    return value


def strings(name: str, value: Any) -> tuple[str, ...]:
    """Return arguments as a tuple of text; numbers and paths become text."""
    given = () if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) else value
    fine = all(isinstance(one, (str, os.PathLike)) or is_number(one) for one in given)
    texts = tuple(str(one) for one in given)
    if given is not value or not fine or any("\0" in text for text in texts):
        raise refused(name, value, "a list of strings")
    return texts


def _checked_mapping(
    name: str, value: Any, rule: str, fits: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """Return a mapping with keys of text as a dict, after checking each key and value."""
    fine = isinstance(value, Mapping) and all(
        isinstance(key, str) and key and fits(key, one) for key, one in value.items()
    )
    if not fine:
        raise refused(name, value, rule)
    return dict(value)


def types_of_columns(name: str, value: Any) -> dict[str, Any] | None:
    """Return types by column name; None instead of an empty mapping."""
    rule = "a mapping of column names to types"
    return _checked_mapping(name, value, rule, lambda *_: True) or None


def _null_words(value: Any) -> Any:
    """Return text and numbers as a list, or as lists by column name; None for anything else."""
    if isinstance(value, Mapping):
        lists = {name: _null_words(one) for name, one in value.items()}
        fine = all(isinstance(name, str) and type(one) is list for name, one in lists.items())
        return lists if fine else None
    is_one = isinstance(value, str) or is_number(value)
    words = [value] if is_one else value
    if not isinstance(words, (list, tuple, set, frozenset)):
        return None
    fine = all(isinstance(word, str) or (is_number(word) and not isnan(word)) for word in words)
    plain = (
        [word if isinstance(word, str) else plain_number(word) for word in words] if fine else []
    )
    return sorted(plain, key=str) if fine else None


def _truth(value: Any) -> bool | None:
    """Return a boolean, which the command line writes as text; None for anything else."""
    return {"true": True, "false": False}.get(str(value).lower())


def _mark(value: Any) -> str | None:
    """Return a character that may stand in a number; None for anything else."""
    is_mark = isinstance(value, str) and len(value) == 1 and value.isascii() and value.isprintable()
    return value if is_mark and not value.isalnum() and value not in '"+-' else None


CSV_OPTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "na_values": (_null_words, "text, numbers, a list of them, or such lists by column name"),
    "keep_default_na": (_truth, "True or False"),
    "decimal": (_mark, "a single ASCII character that is neither a letter nor a digit"),
    "thousands": (_mark, "a single ASCII character that is neither a letter nor a digit"),
}
"""By name, as in pandas: a function that returns the standard form, or None, and its rule."""


def check_csv_options(name: str, value: Any) -> dict[str, Any] | None:
    """Return options for the cells of delimited text; None instead of an empty mapping."""
    rule = f"a mapping with some of the names {', '.join(CSV_OPTIONS)}, as in pandas.read_csv"
    given = _checked_mapping(name, value, rule, lambda key, _: key in CSV_OPTIONS)
    found = {}
    for key, one in given.items():
        if one is None and key != "keep_default_na":  # pandas' default
            continue
        form, wanted = CSV_OPTIONS[key]
        found[key] = form(one)
        if found[key] is None:
            raise refused(name, value, f"a mapping in which {key} is {wanted}")
    if found.get("thousands") == found.get("decimal", "."):
        raise refused(name, value, "a mapping in which thousands and decimal differ")
    return found or None


def announced_columns(name: str, value: Any) -> dict[str, Any] | None:
    """Return types by column name, in the order of a frame or a mapping; None for no columns."""
    rule = "a frame without rows, or a mapping of column names to types"
    if hasattr(value, "dtypes"):
        if len(value):
            raise refused(name, value, rule)
        value = dict(value.dtypes)
    return _checked_mapping(name, value, rule, lambda *_: True) or None


def given_schema(name: str, value: Any) -> str | None:
    """Return the schema of what `run` returns as text; None instead of an empty mapping."""
    if isinstance(value, Mapping) and not value:
        return None
    from daskprs._output.rows.given_schema import schema_text  # which imports pandas

    try:
        return schema_text(value)
    except (AttributeError, TypeError, ValueError) as error:
        rule = "an Arrow schema, a mapping of column names to types, or a frame without rows"
        raise refused(name, value, f"{rule}: {error}") from error


def check_fit_for_nulls(schema: str, included: Collection[str]) -> None:
    """Reject a schema that rows of nulls with an error do not fit."""
    from daskprs._output.rows.given_schema import unfit_for_nulls  # which imports pandas

    if why := unfit_for_nulls(schema, included):
        msg = f"{Option('on_error', 'null')}: not with this {Option('schema')}: {why}."
        raise OptionError(msg)


def variables(name: str, value: Any) -> HiddenValues | None:
    """Return environment variables by name; None instead of an empty mapping.

    A message that refuses them shows no value.
    """

    def fits(key: str, text: Any) -> bool:
        return isinstance(text, str) and "=" not in key and "\0" not in key + text

    hidden = HiddenValues(value) if isinstance(value, Mapping) else type(value)
    rule = "a mapping of names to strings"
    try:
        return HiddenValues(_checked_mapping(name, value, rule, fits)) or None
    except OptionError:
        raise refused(name, hidden, rule) from None


def variable_names(name: str, value: Any) -> tuple[str, ...] | None:
    """Return names of environment variables, each once; None for none."""
    rule = "names of environment variables, without their values"
    return _each_once(name, value, rule, _is_variable) or None


def _is_variable(name: Any) -> bool:
    return isinstance(name, str) and name != "" and "=" not in name and "\0" not in name


@working_directory()
def named_paths(name: str, value: Any) -> dict[str, str] | None:
    """Return a dict of absolute paths by name; None instead of an empty mapping."""

    def fits(_: str, path: Any) -> bool:
        text = str(path) if isinstance(path, (str, os.PathLike)) else ""
        return bool(text) and "://" not in text and "\0" not in text

    paths = _checked_mapping(name, value, "a mapping of names to paths of this machine", fits)
    return {key: os.path.abspath(path) for key, path in paths.items()} or None  # noqa: PTH100


def check_rate_limit(name: str, value: Any) -> dict[str, Any]:
    """Return the limits of an endpoint as a dict of what is given; texts become numbers."""
    if isinstance(value, RateLimit):
        return value.given
    rule = f"a daskprs.RateLimit, or a mapping with some of the names {', '.join(OF_RATE_LIMITS)}"
    given = _checked_mapping(name, value, rule, lambda key, _: key in OF_RATE_LIMITS)
    numbers = {key: _number_of(one) for key, one in given.items() if key != "name"}
    return RateLimit(**{**given, **numbers}).given


def _number_of(value: Any) -> Any:
    """Return a number that the command line writes as text; anything else unchanged."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value


def check_size(name: str, value: Any) -> Any:
    """Reject values other than a size; a number becomes a Python number, text stays unchanged."""
    size = parse_bytes(value, name)
    return value if isinstance(value, str) else size


def check_mini_batch_size(name: str, value: Any) -> Any:
    """Return a number as a Python number, and text as it is: other options say what it counts."""
    del name
    return plain_number(value) if is_number(value) else value


def check_cost(name: str, value: Any) -> Any:
    """Return a function, or the name of a column or of a function of the script; reject others."""
    if not callable(value) and not (isinstance(value, str) and value):
        raise refused(name, value, "a column of numbers, or a function of the script")
    return value


def check_amounts(name: str, value: Any) -> dict[str, float] | None:
    """Return a dict of numbers above 0 by name; None instead of an empty mapping."""
    rule = "a mapping of names to numbers above 0"
    checked = _checked_mapping(name, value, rule, lambda _, one: 0 < _amount(one) < inf)
    return {key: _amount(one) for key, one in checked.items()} or None


def _amount(value: Any) -> float:
    """Return a number, also one that is written as text; 0 for anything else."""
    with suppress(TypeError, ValueError, OverflowError):
        return 0.0 if isinstance(value, bool) else float(value)
    return 0.0


def check_parts(name: str, value: Any) -> tuple[str, ...]:
    """Return the parts of a job that may have changed as a tuple, each once."""
    rule = f"some of {', '.join(map(repr, PARTS))}"
    return _each_once(name, value, rule, PARTS.__contains__)
