"""Options: every value is checked before anything starts, and says what is wrong with it."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import daskprs
from daskprs import OptionError, RunOptions, UsageError
from daskprs._cli import main
from daskprs._cli.options import descriptions
from daskprs._core.limits import Limits
from daskprs._core.rate_limit import RateLimit
from daskprs._job.request import check_call
from daskprs._lazy.map_batches import NOT_OF_JOBS
from daskprs._options.arguments import Default, LazyOptions, MoreOptions
from daskprs._options.run_options import INPUT, TABLE
from daskprs._options.site_defaults import SITE
from daskprs._system.user_key import keyed_digest
from tests.support import options_page
from tests.support.versions import dtype_of

OWN_PARAMETERS = ("data", "script", "client", "job_dir", "output_dir", "detach")
MOST_NAMES = 30
"""Names in the signature of `parallel_run`: what most users need. Others are behind `more`."""
LINES_OF_HELP = 125
OPTIONS = {field.name: field for field in fields(RunOptions)}
SPELLED = [name for name in inspect.signature(daskprs.parallel_run).parameters if name in OPTIONS]
OTHERWISE_ON_THE_COMMAND_LINE = {
    "arguments": None,  # what follows --
    "progress": "quiet",
    "meta": None,  # it takes no Delayed objects
}

RATES = {"requests_per_minute": 600, "tokens_per_minute": 100_000}
REFUSED: list[tuple[str, Any]] = [
    ("on_error", "ignore"),
    ("independent_rows", "yes"),
    ("agent_max_mini_batches", 0),
    ("preprocess", "of images"),
    ("postprocess", 3),
    ("preprocess_processes", 0),
    ("preprocess_processes", 1001),
    ("concurrency_per_process", 0),
    ("report", "sometimes"),
    ("concurrency_per_process", 1001),
    ("rate_limit", {"requests_per_second": 3}),
    ("rate_limit", 600),
    ("preload", ["torch", "a-b"]),
    ("preload", "import"),
    ("preload", 3),
    ("source_directory", 3),
    ("source_directory", ""),
    ("python", 3),
    ("python", ""),
    ("python", "no-such-python"),
    ("python", 256 * "n"),
    ("python", "/etc"),
    ("arguments", "--one --two"),
    ("arguments", [None]),
    ("arguments", [True]),
    ("arguments", ["a\0b"]),
    ("arguments", 7),
    ("side_inputs", {"model": 1}),
    ("side_inputs", {"model": "s3://bucket/model"}),
    ("side_inputs", {"": "model"}),
    ("side_inputs", ["model"]),
    ("secrets", ["A=b"]),
    ("secrets", [""]),
    ("secrets", {"A": "b"}),
    ("secrets", 3),
    ("shared", "yes"),
    ("metrics_file", "scored.txt"),
    ("metrics_file", "s3://bucket/scored.prom"),
    ("metrics_file", 3),
    ("batch_format", "arrow"),
    ("logging_level", "LOUD"),
    ("logging_level", 20),
    ("input_type", "tables"),
    ("mini_batch_size", "10kbmb"),
    ("mini_batch_size", "10 tb"),
    ("mini_batch_size", "0"),
    ("mini_batch_size", 0),
    ("mini_batch_size", -5),
    ("mini_batch_size", "-5"),
    ("mini_batch_size", "0 rows"),
    ("mini_batch_size", "ten rows"),
    ("mini_batch_size", 1.5),
    ("mini_batch_size", True),
    ("mini_batch_cost", ""),
    ("mini_batch_cost", 3),
    ("partition_keys", []),
    ("partition_keys", ["a", "a"]),
    ("partition_keys", ["a", ""]),
    ("partition_keys", 3),
    ("partition_keys", [1.5]),
    ("partition_keys", [True]),
    ("partition_keys", [0, np.int64(0)]),
    ("partition_format", ""),
    ("partition_format", 3),
    ("columns", ["a", None]),
    ("columns", [True]),
    ("columns", b"ab"),
    ("dtypes", ["int"]),
    ("dtypes", {1: "int"}),
    ("meta", ["a"]),
    ("meta", pd.DataFrame({"a": [1]})),
    ("delimiter", ""),
    ("delimiter", ",,"),
    ("delimiter", "\n"),
    ("delimiter", '"'),
    ("header", "first"),
    ("header", True),
    ("encoding", "utf-99"),
    ("encoding", "hex"),
    ("encoding", None),
    ("support_multi_line", 1),
    ("csv_options", ["NA"]),
    ("csv_options", {"sep": ";"}),
    ("csv_options", {"na_values": True}),
    ("csv_options", {"na_values": [None]}),
    ("csv_options", {"na_values": {"a": float("nan")}}),
    ("csv_options", {"keep_default_na": "never"}),
    ("csv_options", {"decimal": ",,"}),
    ("csv_options", {"thousands": "7"}),
    ("csv_options", {"thousands": "."}),
    ("include_path_column", "yes"),
    ("node_count", 0),
    ("process_count_per_node", 0),
    ("process_count_per_node", True),
    ("process_count_per_node", 2.0),
    ("gpus_per_process", -1),
    ("gpus_per_process", 1.5),
    ("gpus_per_process", True),
    ("gpus_per_process", float("nan")),
    ("gpus_per_process", "1"),
    ("start_method", "forkserver"),
    ("error_threshold", -2),
    ("error_threshold", None),
    ("allowed_failed_count", -2),
    ("allowed_failed_count", 1.5),
    ("allowed_failed_percent", -1),
    ("allowed_failed_percent", 100.1),
    ("allowed_failed_percent", float("nan")),
    ("allowed_failed_percent", True),
    ("run_invocation_timeout", 0),
    ("run_invocation_timeout", 259_201),
    ("run_invocation_timeout", float("inf")),
    ("run_invocation_timeout", float("nan")),
    ("run_invocation_timeout", None),
    ("run_invocation_timeout", "60 moons"),
    ("run_invocation_timeout", ""),
    ("run_invocation_timeout", "4 days"),
    ("run_max_try", 0),
    ("retry_delay", -1),
    ("retry_delay", "a while"),
    ("retry_delay", float("nan")),
    ("retry_delay", True),
    ("retry_delay", None),
    ("task_overhead_timeout", -1),
    ("first_task_creation_timeout", 0),
    ("progress_update_timeout", 0),
    ("init_timeout", True),
    ("init_idle_timeout", None),
    ("shutdown_timeout", 0),
    ("no_workers_timeout", 0),
    ("deadline", 0),
    ("deadline", "-2h"),
    ("deadline", "soon"),
    ("deadline", "25:00"),
    ("deadline", "2030-02-31T06:30"),
    ("deadline", True),
    ("deadline", timedelta(0)),
    ("agent_memory_limit", "2 furlongs"),
    ("agent_memory_limit", 0),
    ("store_requests", 0),
    ("max_node_losses", 0),
    ("resource_monitor_interval", -1),
    ("resource_monitor_interval", 0.5),
    ("resource_monitor_interval", None),
    ("profiling_module", "yappi"),
    ("output", ""),
    ("output", 3),
    ("output", "scores.xlsx"),
    ("output", "scores.csv.gz"),
    ("output", "scores.csv/"),
    ("output", ".scores.csv"),
    ("output", "/"),
    ("output", "s3://scores.csv"),
    ("output", Path("s3://bucket/scores.csv")),
    ("output_action", "append"),
    ("output_format", "csv"),
    ("output_file_size", 0),
    ("output_file_size", "much"),
    ("output_partition_by", []),
    ("output_partition_by", "a/b"),
    ("output_single_file", "yes"),
    ("append_row_file_name", ""),
    ("append_row_file_name", "out/rows.txt"),
    ("append_row_file_name", ".."),
    ("append_row_file_name", ".rows"),
    ("append_row_dataframe_header", 1),
    ("append_row_dataframe_sep", ", "),
    ("append_row_dataframe_sep", None),
    ("keep_rows", None),
    ("include_columns", []),
    ("include_columns", ["id", "id"]),
    ("schema", {"a": "object"}),
    ("schema", ["a"]),
    ("schema", "a"),
    ("schema", {"a": "number"}),
    ("overwrite", "no"),
    ("fail_on_timeout", "yes"),
    ("resume", 1),
    ("resume", "all"),
    ("accept_changes", "outputs"),
    ("accept_changes", ["script", 1]),
    ("accept_changes", 7),
    ("trust", "yes"),
    ("retain", "logs"),
    ("usage_limits", {"tokens": 0}),
    ("usage_limits", {"tokens": "many"}),
    ("usage_limits", {"tokens": float("nan")}),
    ("usage_limits", {"tokens": True}),
    ("usage_limits", {"": 5}),
    ("usage_limits", 5),
    ("retain", None),
    ("progress", "bar"),
    ("show_output", "all"),
]

TAKEN: list[tuple[str, Any, Any]] = [
    ("arguments", ["--rate", 0.5, 3, Path("/model")], ("--rate", "0.5", "3", "/model")),
    ("output", Path("/scores.CSV"), "/scores.CSV"),
    ("output", "a/scores/", str(Path.cwd() / "a/scores")),
    ("output", "~/scores.csv", str(Path.home() / "scores.csv")),
    ("output", "s3://bucket/scores/", "s3://bucket/scores"),
    ("logging_level", "debug", "DEBUG"),
    ("partition_keys", "store", ("store",)),
    ("partition_keys", [0, np.int64(1), "0"], (0, 1, "0")),
    ("partition_keys", ["store", "brand"], ("store", "brand")),
    ("mini_batch_size", "10 kB", "10 kB"),
    ("mini_batch_size", "100 rows", "100 rows"),
    ("mini_batch_size", np.int64(10), 10),
    ("agent_memory_limit", np.uint32(1 << 31), 1 << 31),
    ("run_invocation_timeout", 0.5, 0.5),
    ("run_invocation_timeout", 259_200, 259_200),
    ("run_invocation_timeout", "1m", 60),
    ("run_invocation_timeout", "1.5 hours", 5400),
    ("resource_monitor_interval", "0", 0),
    ("run_max_try", np.int64(2), 2),
    ("retry_delay", "exponential", "exponential"),
    ("retry_delay", "2.5", 2.5),
    ("retry_delay", "1m", 60),
    ("retry_delay", np.int64(0), 0),
    ("allowed_failed_percent", np.float32(12.5), 12.5),
    ("error_threshold", -1, -1),
    ("encoding", "utf-16", "utf-16"),
    ("delimiter", "\t", "\t"),
    ("environment_variables", {}, None),
    ("side_inputs", {}, None),
    ("side_inputs", {"model": Path("/models/a")}, {"model": "/models/a"}),
    ("columns", [np.int64(1), "a"], (1, "a")),
    ("dtypes", {"a": float}, {"a": float}),
    ("csv_options", {}, None),
    ("csv_options", {"na_values": {"?"}}, {"na_values": ["?"]}),
    ("csv_options", {"na_values": {"a": np.int64(-9)}}, {"na_values": {"a": [-9]}}),
    ("csv_options", {"keep_default_na": "False"}, {"keep_default_na": False}),
    ("meta", pd.DataFrame({"a": ["b"]})[:0], {"a": dtype_of("str")}),
    ("schema", {"b": float, "a": pa.string()}, '{"b": "float", "a": "string"}'),
    ("schema", pd.DataFrame({"a": [1]})[:0], '{"a": "int64"}'),
    ("schema", '{"a": "int64"}', '{"a": "int64"}'),
    ("progress", False, False),
    ("rate_limit", RateLimit(in_flight=3, name="a"), {"in_flight": 3, "name": "a"}),
    ("rate_limit", {"requests_per_minute": "600", "tokens_per_minute": "1e5"}, RATES),
]


@pytest.mark.parametrize("name", ["schema", "dtypes"])
def test_a_frame_is_refused_without_its_rows(name: str) -> None:
    """Its text has many lines."""
    with pytest.raises(OptionError, match=rf"^{name}, a pandas.DataFrame: must be [^\n]*$"):
        RunOptions(**{name: pd.DataFrame({"a": range(99)})})


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=repr)
def test_a_value_out_of_range_is_refused_by_name_and_value(name: str, value: Any) -> None:
    """The message names the option, shows the value or that it is a frame, and tells the rule."""
    with pytest.raises(OptionError) as error:
        RunOptions(**{name: value})
    shown = f"{name}, a pandas.DataFrame" if "\n" in repr(value) else f"{name}={value!r}"
    assert str(error.value).startswith(f"{shown}: must be ")


@pytest.mark.parametrize(("name", "value", "becomes"), TAKEN, ids=repr)
def test_a_value_is_brought_into_one_form(name: str, value: Any, becomes: Any) -> None:
    """However it was written, the job sees one form of it."""
    taken = RunOptions(**{name: value})[name]
    assert taken == becomes
    assert type(taken) is type(becomes)


def test_every_option_that_is_checked_has_a_value_that_is_refused() -> None:
    """A new option comes with its rule."""
    apart = {"environment_variables"}  # whose values no message shows
    assert {name for name, _ in REFUSED} | apart == OPTIONS.keys()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition_keys": "a", "mini_batch_size": 10}, "not with partition_keys"),
        ({"output_file_size": "1 MB"}, "not with output_format='text'"),
        ({"output_partition_by": "a"}, "not with output_format='text'"),
        ({"output_single_file": True}, "not with output_format='text'"),
        (
            {"output_format": "arrow", "output_single_file": True, "output_file_size": 1},
            "not with output_single_file",
        ),
        ({"output_format": "jsonl", "output_action": "summary_only"}, "not with output_action"),
        ({"output": "a.csv", "output_action": "summary_only"}, "not with output_action"),
        ({"output": "a.csv", "output_file_size": 1}, "not with output=.*, since text is one file"),
        ({"output": "a.arrow", "output_file_size": 1}, "not with output=.*, which makes one file"),
        (
            {"output": "a", "append_row_file_name": "b", "output_format": "jsonl"},
            "^output='.*/a': not with append_row_file_name='b', output_format='jsonl'",
        ),
        (
            {"output": "a.csv", "append_row_dataframe_sep": ";"},
            r"^output='.*/a\.csv': not with append_row_dataframe_sep=';'",
        ),
        ({"output": "a.arrow", "output_single_file": True}, "not with output_single_file=True"),
        ({"on_error": "drop", "allowed_failed_count": 1}, "not with on_error='drop'"),
        ({"on_error": "isolate", "partition_keys": "a"}, "all rows of a key"),
        (
            {"on_error": "isolate", "output_action": "summary_only"},
            "add independent_rows=True",
        ),
        ({"rate_limit": {"in_flight": 1}, "python": sys.executable}, "not with python="),
        ({"rate_limit": {"in_flight": 0}}, "in_flight=0 must be a whole number from 1"),
        ({"rate_limit": {"name": "a"}}, "it limits nothing"),
        ({"accept_changes": "script"}, "only with resume=True"),
        ({"trust": True}, "only with resume=True"),
        ({"keep_rows": True, "output_action": "summary_only"}, "not with output_action"),
        ({"include_columns": ["a"], "output_action": "summary_only"}, "not with output_action"),
        ({"schema": {"a": "int8"}, "output_action": "summary_only"}, "not with output_action"),
    ],
)
def test_options_at_odds_with_each_other_are_refused(given: dict[str, Any], said: str) -> None:
    """One of the two would do nothing."""
    with pytest.raises(OptionError, match=said):
        RunOptions(**given)
    apart = {"output", "on_error"} & given.keys()  # before which a site's default gives way
    assert apart or given.keys().isdisjoint(SITE), "a site's default would refuse calls"


def test_what_only_text_has_is_refused_with_a_data_set() -> None:
    """A part file has no header line and no separator."""
    with pytest.raises(OptionError, match="append_row_dataframe_sep=',': not with output_format"):
        RunOptions(output_format="arrow", append_row_dataframe_sep=",")


def test_a_name_of_another_format_is_refused_before_a_job_begins(tmp_path: Path) -> None:
    """No reader would know what the file is."""
    data, names = pd.DataFrame({"n": [1]}), {"append_row_file_name": "rows.parquet"}
    places = {"job_dir": tmp_path / "job", "output_dir": tmp_path / "out"}
    said = "^append_row_file_name='rows.parquet': the output is lines of text, which no reader"
    with pytest.raises(OptionError, match=said):
        daskprs.parallel_run(data, same, **names, **places)
    assert not list(tmp_path.iterdir())
    check_call(data, same, RunOptions(**names, output_format="parquet"), **places)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("mini_batchsize", "mini_batch_size"),
        ("run_invocation_time_out", "run_invocation_timeout"),
        ("max_try", "run_max_try"),
        ("partition_key", "partition_keys"),
        ("batch_rows", "mini_batch_size"),
        ("concurrency", "process_count_per_node"),
        ("run_timeout", "run_invocation_timeout"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest_name(unknown: str, nearest: str) -> None:
    """A slip of the pen costs one look at the message."""
    given: Any = {unknown: 1}
    with pytest.raises(OptionError, match=f"{unknown}: .* Did you mean {nearest}"):
        RunOptions(**given)


def test_an_unknown_limit_of_an_endpoint_is_answered_with_the_nearest_name() -> None:
    """Also with the one that it begins."""
    given: Any = {"requests": 5}
    with pytest.raises(OptionError, match=r"requests is none of .* mean requests_per_minute\?"):
        RateLimit(**given)


@pytest.mark.parametrize("name", ["job_dir", "output_dir"])
def test_a_folder_that_is_no_path_is_refused_by_its_name(name: str) -> None:
    """As all other options are."""
    given: Any = {name: 5}
    with pytest.raises(OptionError, match=f"^{name}=5: must be a path"):
        daskprs.parallel_run(FRAME, same, **given)


def test_what_resembles_nothing_gets_no_suggestion() -> None:
    """A far-fetched guess would lead astray."""
    for name, instead in (
        ("zzz", ""),
        ("rps", "RateLimit(requests_per_minute=600)"),
        ("requests_per_second", "context.permit()"),
    ):
        with pytest.raises(OptionError) as error:
            RunOptions(**{name: 1})
        assert "Did you mean" not in str(error.value)
        assert instead in str(error.value)


def test_parallel_run_spells_out_what_people_use_with_the_defaults_of_the_table() -> None:
    """A default that Dask's config may replace says so."""
    parameters = inspect.signature(daskprs.parallel_run).parameters
    assert list(parameters) == [*OWN_PARAMETERS, *filter(SPELLED.__contains__, OPTIONS), "more"]
    assert len(parameters) <= MOST_NAMES
    assert {name: parameters[name].default for name in SPELLED} == {
        name: Default(TABLE[name].default) if name in SITE else TABLE[name].default
        for name in SPELLED
    }


def test_each_option_has_the_type_of_the_table_wherever_it_is_typed() -> None:
    """Type checkers see one type, in a signature and behind `more`."""
    of_lazy = [name for name in OPTIONS if name not in {*NOT_OF_JOBS, "schema", "meta", "on_error"}]
    having: dict[Any, list[str]] = {
        daskprs.parallel_run: SPELLED,
        MoreOptions: [name for name in OPTIONS if name not in SPELLED] + ["survive"],
        LazyOptions: of_lazy,
        daskprs.plan: [name for name, row in TABLE.items() if row.group == INPUT],
    }
    of_table = {**RunOptions.__annotations__, "survive": "bool"}
    for one, names in having.items():
        typed = {
            name: getattr(kind, "__forward_arg__", kind)
            for name, kind in one.__annotations__.items()
            if name not in {*OWN_PARAMETERS, "unknown", "more", "return"}
        }
        assert typed == {name: of_table[name] for name in names}, one


def test_the_options_describe_each_of_them_in_the_order_of_the_table() -> None:
    """The reference, the command line and the config file have these texts."""
    assert [name for name in descriptions(RunOptions) if name in OPTIONS] == list(OPTIONS)
    assert list(descriptions(MoreOptions)) == ["survive"]
    assert all(field.default is not MISSING for field in OPTIONS.values())


def test_the_help_of_parallel_run_fits_a_screen_and_a_half() -> None:
    """As a notebook shows it: a line for each parameter, and the docstring."""
    signature = inspect.signature(daskprs.parallel_run)
    lines = [*map(str, signature.parameters.values()), "*", "parallel_run(", ")", "Docstring:"]
    lines += (inspect.getdoc(daskprs.parallel_run) or "").splitlines()
    assert len(lines) <= LINES_OF_HELP
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("call", [daskprs.parallel_run, daskprs.start])
def test_the_help_of_a_call_names_every_option(call: Any) -> None:
    """The common ones have a line with their meaning each, below their group."""
    told = inspect.getdoc(call) or ""
    groups = dict(re.findall(r"^(\S.*)\n((?:    .*\n)+)", told, re.MULTILINE))
    for name, row in TABLE.items():
        if name != "output":  # among the parameters
            assert re.search(rf"\b{name}\b", groups[row.group]), name
        if name in SPELLED and name != "output":
            assert re.search(rf"^    {name}: \w.*\.$", groups[row.group], re.MULTILINE), name


@pytest.mark.parametrize(("name", "value"), dict(REFUSED).items())
def test_every_call_checks_every_option_that_it_has(name: str, value: Any) -> None:
    """None is lost on its way through a signature, before anything starts."""
    calls: list[Any] = [partial(daskprs.parallel_run, FRAME, same)]
    calls.append(partial(daskprs.start, FRAME, same))
    calls.append(partial(daskprs.parallel_run, FRAME, same, detach=True))
    if TABLE[name].group == INPUT:
        calls.append(partial(daskprs.plan, FRAME))
    if name not in NOT_OF_JOBS:
        calls.append(partial(daskprs.map_batches, dd.from_pandas(FRAME), same, collection="bag"))
    for call in calls:
        with pytest.raises(OptionError, match=rf"^{name}[=,]"):
            call(**{name: value})


def test_the_command_line_has_every_option_with_its_help() -> None:
    """What Python can say, `daskprs run` can say."""
    run = main.commands["run"]
    there = {one.name: one for one in run.params if isinstance(one, click.Option)}
    for name in OPTIONS:
        own = OTHERWISE_ON_THE_COMMAND_LINE.get(name, name)
        assert own is None or there[own].help


def test_a_plan_takes_every_option_of_the_input() -> None:
    """With the defaults of the table."""
    parameters = inspect.signature(daskprs.plan).parameters
    spelled = {name: one.default for name, one in parameters.items()}
    of_input = {name: OPTIONS[name].default for name, row in TABLE.items() if row.group == INPUT}
    assert spelled == {"data": inspect.Parameter.empty, **of_input, "unknown": spelled["unknown"]}


def test_the_pages_and_docstrings_with_options_are_made_from_the_table() -> None:
    """``python -m tests.support.options_page`` writes them anew after the table has changed."""
    page, api = options_page.PAGE.read_text(), options_page.API_PAGE.read_text()
    anew = "run .venv/bin/python -m tests.support.options_page"
    assert page == options_page.written(page), anew
    assert api == options_page.written_api(api), anew
    for call in options_page.CALLS:
        source = options_page.source_of(call).read_text()
        assert source == options_page.written_source(source, call), anew


def test_options_are_listed_in_one_table() -> None:
    """A new option needs what CONTRIBUTING.md lists, and no entry in any other list.

    So no other module of the package lists options by name, except those that translate the names
    of Azure.
    """
    package = Path(daskprs.__file__).parent
    lists = (ast.Dict, ast.Set, ast.Tuple, ast.List)
    found = {
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "azure"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, lists) and len(_options_in(node)) >= MANY
    }
    assert found == set()


MANY = 4
"""A list of fewer options is about these options, and not about all."""


def _options_in(node: ast.Dict | ast.Set | ast.Tuple | ast.List) -> set[str]:
    """Return the options that a literal names by itself."""
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    names = {part.value for part in parts if isinstance(part, ast.Constant)}
    return names & OPTIONS.keys()


def test_the_command_line_leaves_defaults_to_the_options() -> None:
    """A default is written down once."""
    with main.commands["run"].make_context("run", ["score.py", "input"]) as context:
        given = {name: value for name, value in context.params.items() if name in OPTIONS}
    assert len(given) > 30
    assert not any(given.values())


def test_options_can_be_handed_on_and_changed() -> None:
    """They are a mapping for `**`, and `replace` checks again."""
    options = RunOptions(mini_batch_size="10 MB", run_max_try=1)
    assert RunOptions(**options) == options
    assert RunOptions(**{**options, "run_max_try": 2}) == options.replace(run_max_try=2)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(OptionError, match="run_max_try"):
        options.replace(run_max_try=0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"A": 1}, "{'A': 'int'}"),
        ({"A=B": "hunter2"}, "{'A=B': '***'}"),
        ({"": "hunter2"}, "{'': '***'}"),
        (["A=hunter2"], "<class 'list'>"),
    ],
)
def test_values_of_environment_variables_are_in_no_message(value: Any, shown: str) -> None:
    """Names and types are enough to mend the call, and a log has no secret."""
    with pytest.raises(OptionError) as error:
        RunOptions(environment_variables=value)
    rule = "must be a mapping of names to strings."
    assert str(error.value) == f"environment_variables={shown}: {rule}"
    assert "hunter2" not in repr(RunOptions(environment_variables={"A": "hunter2"}))


def test_secrets_are_those_of_the_caller() -> None:
    """What is lacking, or too short to be masked, is named without its value."""
    one = RunOptions(secrets=["KEY", "OTHER"], environment_variables={"OTHER": "of the call"})
    variables = one.with_secrets({"KEY": "of the shell", "OTHER": "of the shell"})
    assert variables.environment_variables == {"KEY": "of the shell", "OTHER": "of the call"}
    with pytest.raises(OptionError, match=r"secrets=\('KEY',\): .* has none"):
        one.with_secrets({})
    with pytest.raises(OptionError, match=r"secrets=\('KEY',\): its value has 3 characters"):
        one.with_secrets({"KEY": "abc"})


def test_digests_stand_for_values() -> None:
    """Only a holder of the key can make them; another value of a secret makes the same job."""
    plain = RunOptions(environment_variables={"A": "1"})
    digest = plain.of_results()["environment_variables"]["A"]
    assert digest == keyed_digest("A=1") != keyed_digest("A=1", b"another key")
    assert RunOptions().of_results()["environment_variables"] is None
    kept = RunOptions(environment_variables={"DASKPRS_ASSETS": "/m"}).of_results()
    assert kept["environment_variables"] == {"DASKPRS_ASSETS": "/m"}
    secret = plain.replace(secrets=["A"])
    assert secret.comparable(plain.of_results())["environment_variables"] is None
    assert plain.comparable(plain.of_results()) == plain.of_results()
    assert secret.of_results()["environment_variables"] is None


def test_only_what_was_changed_is_shown() -> None:
    """The log shows what the user wrote, not forty defaults."""
    assert RunOptions().changed() == {}
    assert RunOptions(progress=False, run_max_try=1).changed() == {
        "progress": False,
        "run_max_try": 1,
    }


def test_options_that_change_no_result_do_not_stand_in_the_way_of_a_resume() -> None:
    """Timeouts, tries, thresholds and process counts may change; sizes and arguments may not."""
    plain = RunOptions().of_results()
    changed = RunOptions(
        run_invocation_timeout=5,
        run_max_try=1,
        error_threshold=5,
        process_count_per_node=7,
        max_node_losses=1,
        logging_level="DEBUG",
        overwrite=True,
        resume=True,
    )
    assert changed.of_results() == plain
    assert RunOptions(arguments=["--fast"]).of_results() != plain
    assert RunOptions(mini_batch_size=3).of_results() != plain
    count, rows = RunOptions(mini_batch_size=3), RunOptions(mini_batch_size="3 rows")
    assert count.of_results(unit="item") == rows.of_results(unit="item")
    assert count.of_results() != rows.of_results()  # those are bytes
    kept = {name: OPTIONS[name].default for name, row in TABLE.items() if not row.changes_results}
    assert kept.keys().isdisjoint(plain)
    assert kept.keys() | plain.keys() == OPTIONS.keys()


UNCOMPARED = """
independent_rows on_error
    source_directory secrets side_inputs logging_level
    node_count process_count_per_node gpus_per_process start_method preload
    agent_memory_limit
    agent_max_mini_batches preprocess_processes concurrency_per_process
    rate_limit store_requests
    run_max_try retry_delay allowed_failed_count allowed_failed_percent error_threshold
    max_node_losses fail_on_timeout
    run_invocation_timeout task_overhead_timeout init_timeout init_idle_timeout
    shutdown_timeout
    first_task_creation_timeout progress_update_timeout no_workers_timeout deadline
    output_file_size overwrite
    resume accept_changes trust retain usage_limits metrics_file shared progress show_output
    profiling_module report resource_monitor_interval
"""


def test_a_resume_compares_every_option_but_those_that_change_no_row() -> None:
    """A further one here is a decision: a resume would put rows of two values into one output."""
    assert OPTIONS.keys() - RunOptions().of_results().keys() == {*UNCOMPARED.split()}


def test_the_same_options_written_otherwise_are_the_same() -> None:
    """Neither the order of a mapping nor the unit of a size makes another job."""
    one = RunOptions(mini_batch_size="1 KB", environment_variables={"A": "1", "B": "2"})
    two = RunOptions(mini_batch_size=1024, environment_variables={"B": "2", "A": "1"})
    assert one.of_results() == two.of_results()
    assert json.loads(json.dumps(one.of_results())) == one.of_results()


def test_default_timeouts_follow_the_others() -> None:
    """progress: 2 × (load + run) + what init may be idle; until one is up, + what it may take."""
    assert RunOptions().limits() == Limits(finds_gpu_use=True)
    limits = RunOptions(run_invocation_timeout=10, task_overhead_timeout=20).limits()
    assert (limits.init_timeout_s, limits.init_idle_timeout_s) == (3600, 210)
    assert (limits.progress_update_timeout_s, limits.first_progress_timeout_s) == (270, 3660)
    limits = RunOptions(init_timeout=5, progress_update_timeout=7).limits()
    assert (limits.init_timeout_s, limits.init_idle_timeout_s) == (5, 5)
    assert (limits.progress_update_timeout_s, limits.first_progress_timeout_s) == (7, 7)


def test_limits_are_numbers() -> None:
    """A size in words becomes bytes."""
    assert RunOptions(agent_memory_limit="2 GB").limits().agent_memory_bytes == 2 << 30
    assert RunOptions().limits().agent_memory_bytes is None


FIRST_OF_OTHERS = "keep_labels"


def test_reading_options_reach_the_sources() -> None:
    """Each under the same name; what the job or an MLTable says is no option."""
    reading = RunOptions(delimiter=";", partition_keys="a", columns=["b", "a"]).reading()
    assert (reading.delimiter, reading.partition_keys) == (";", ("a",))
    assert reading.columns == ("b", "a")
    of_reading = list(inspect.signature(type(reading)).parameters)
    of_options = of_reading[: of_reading.index(FIRST_OF_OTHERS)]
    assert [name for name in of_options if not hasattr(RunOptions(), name)] == []
    others = of_reading[len(of_options) :]
    assert [name for name in others if hasattr(RunOptions(), name)] == [], "move it up"


FRAME = pd.DataFrame({"run": [1]})


def same(mini_batch: Any) -> Any:
    """Return the mini-batch."""
    return mini_batch


class Scorer:
    """An object with a method `run`."""

    def run(self, mini_batch: Any) -> Any:
        """Return the mini-batch."""
        return mini_batch


SWAPPED = {
    "a function": (same, FRAME, "a pandas.DataFrame is given as the script, and 'same' as input"),
    "a class": (Scorer, "a.csv", "'a.csv' is given as the script, and 'Scorer' as input"),
    "an object": (Scorer(), pa.table({"a": [1]}), "a pyarrow.Table is given as the script, and a "),
    "a module": (inspect, FRAME, "a pandas.DataFrame is given as the script"),
    "a path": ("score.py", FRAME, "a pandas.DataFrame is given as the script, and 'score.py'"),
    "a dotted name": ("score", ["a.csv"], "a list is given as the script, and 'score' as input"),
    "a glob": ("score.py", "*.csv", "'*.csv' is given as the script, and 'score.py' as input"),
    "a dask frame": (same, dd.from_pandas(FRAME, npartitions=1), "a dask.DataFrame is given"),
}


@pytest.mark.parametrize("case", SWAPPED)
def test_swapped_arguments_are_asked_about(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the script and the input are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (tmp_path / "a.csv").write_text("a\n1\n")
    data, script, said = SWAPPED[case]
    with pytest.raises(UsageError, match=r"Is it the other way round\?$") as caught:
        daskprs.parallel_run(data, script)
    assert said in str(caught.value)
    assert not (tmp_path / "daskprs-jobs").exists()


def test_python_files_as_input_are_not_swapped_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a script by a script's name is said as ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text("x = 1\n")
    (tmp_path / "text.py").write_text("")
    for script in ("score.py", "score"):
        with pytest.raises(UsageError, match=r"has no function run\(mini_batch\)\.$"):
            daskprs.parallel_run("text.py", script)
    with pytest.raises(UsageError, match="a method run") as caught:
        daskprs.parallel_run(FRAME, FRAME)
    assert "other way" not in str(caught.value)


TYPED = """
import daskprs

options = daskprs.RunOptions(run_max_try=1)
try:
    daskprs.parallel_run("a.csv", "score.py", **options)
    daskprs.parallel_run("a.csv", "score.py", run_max_tries=1)  # misspelt
    daskprs.start("a.csv", "score.py", init_timout=1)  # misspelt
    daskprs.map_batches("a.csv", "score.py", run_max_tries=1)  # misspelt
    daskprs.plan("a.csv", delimeter=";")  # misspelt
except daskprs.ParallelRunFailed as error:
    print(error.result.mini_batches.failed)
"""


@pytest.mark.long
def test_a_type_checker_finds_misspelt_options_and_no_missing_result(tmp_path: Path) -> None:
    """Each in its line, and nothing else."""
    pytest.importorskip("mypy", reason="the group style is not installed")
    script = tmp_path / "typed.py"
    script.write_text(TYPED)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", script],
        cwd=Path(daskprs.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    misspelt = [n for n, line in enumerate(TYPED.splitlines(), 1) if line.endswith("# misspelt")]
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in errors] == misspelt, checked.stdout
    assert all("Unexpected keyword argument" in line for line in errors)


def test_misspelt_options_get_the_nearest_name() -> None:
    """Also where a type checker was not asked."""
    misspelt: Any = {"delimeter": ";"}
    for call in (daskprs.plan, lambda data, **given: daskprs.parallel_run(data, same, **given)):
        with pytest.raises(OptionError, match=r"no such option\. Did you mean delimiter\?"):
            call(FRAME, **misspelt)
    for wrong, right in {"jobdir": "job_dir", "clinet": "client"}.items():
        with pytest.raises(OptionError, match=f"no such option. Did you mean {right}?"):
            daskprs.parallel_run(FRAME, same, **{wrong: "x"})  # type: ignore[arg-type]
