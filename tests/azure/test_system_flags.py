"""System flags among a script's arguments set options; the script receives all arguments."""

from __future__ import annotations

from daskprs._options.run_options import TABLE
from daskprs.azure._system_flags import SYSTEM_FLAGS, read_flags


def test_known_flags_set_options_and_the_script_gets_all_arguments() -> None:
    """With a space or an equals sign; a switch may stand alone."""
    words = "--model /m --allowed_failed_percent 30 --task_overhead_timeout=1200 -x 1 --epochs 3"
    given = [*words.split(), "--copy_logs_to_parent", "--metrics_name_prefix=p"]
    flags, wrong = read_flags(given)
    assert not wrong
    assert flags.options == {"allowed_failed_percent": 30, "task_overhead_timeout": 1200}
    assert flags.others == {"copy_logs_to_parent": True, "metrics_name_prefix": "p"}
    assert flags.arguments == given
    assert not flags.warnings


def test_an_output_dir_of_the_script_is_no_system_flag() -> None:
    """However it is spelt."""
    given = ["--output-dir", "/o", "--output_dir=/p"]
    assert read_flags(given) == (({}, {}, given, []), [])


def test_a_misspelt_flag_is_a_warning_and_goes_to_the_script() -> None:
    """Published samples carry it."""
    flags, wrong = read_flags(["--resource_monitor_interva", "20"])
    assert not wrong
    assert flags.arguments == ["--resource_monitor_interva", "20"]
    told = "it is not a system flag. Is --resource_monitor_interval meant?"
    assert flags.warnings == [f"--resource_monitor_interva goes to the script alone: {told}"]


def test_what_has_no_effect_here_is_said() -> None:
    """The script may read it."""
    flags, _ = read_flags(["--resume_from", "an-id"])
    assert flags.arguments == ["--resume_from", "an-id"]
    effect = "a resume continues the whole pipeline, not one step"
    assert flags.warnings == [f"--resume_from is accepted without effect: {effect}"]


def test_flags_of_the_logs_set_options() -> None:
    """As any other flag does."""
    flags, _ = read_flags(["--resource_monitor_interval", "20", "--profiling_module=cProfile"])
    assert flags.options == {"resource_monitor_interval": 20, "profiling_module": "cProfile"}
    assert flags.warnings == []


def test_a_wrong_value_names_the_flag_the_rule_and_the_value() -> None:
    """All of them in one go."""
    words = ["--allowed_failed_percent", "130", "--task_overhead_timeout", "soon"]
    _, wrong = read_flags([*words, "--copy_logs_to_parent=perhaps", "--error_threshold"])
    assert wrong == [
        "--allowed_failed_percent 130: must be a number from 0 to 100.",
        "--task_overhead_timeout: has to be a number, not 'soon'",
        "--copy_logs_to_parent: has to be true or false, not 'perhaps'",
        "--error_threshold: its value is missing",
    ]


def test_every_option_that_a_flag_sets_exists() -> None:
    """By the name that it has in Python."""
    assert {flag.name for flag in SYSTEM_FLAGS if not flag.note} <= TABLE.keys()


def test_a_number_may_be_written_as_python_writes_it() -> None:
    """With an exponent, too; a whole number stays one."""
    flags, wrong = read_flags(["--allowed_failed_percent", "1e-05", "--error_threshold", "-1"])
    assert wrong == []
    assert flags.options == {"allowed_failed_percent": 1e-05, "error_threshold": -1}
    assert isinstance(flags.options["error_threshold"], int)
