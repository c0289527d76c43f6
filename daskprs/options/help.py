"""What each option means, in a sentence or two: for the command line."""

from __future__ import annotations

HELP = {
    "source_directory": (
        "The folder that the script imports from; a snapshot of it goes to the agents. "
        "Default: the folder of the script."
    ),
    "arguments": "What the script finds in sys.argv after the system's own flags.",
    "side_inputs": (
        "A file or folder that the script reads besides, such as a model; nodes that do not see it "
        "get a copy. The script finds it by EntryScript().side_inputs[NAME]."
    ),
    "environment_variables": (
        "Set in the agents before their first import. Thread counts (OMP_NUM_THREADS and "
        "the like) follow the agent's share of the cores unless they are set here."
    ),
    "logging_level": "Level of the root logger in the agents.",
    "input_type": (
        '"table", "files", or "auto": a table if all paths have one table suffix, files '
        "if none has, and an error for a mixture."
    ),
    "mini_batch_size": (
        'Bytes for tables, with or without a unit of 1024 ("10 MB"; default 1 MB); a count '
        "for files (default 10)."
    ),
    "partition_keys": (
        "Names of columns: one mini-batch for each combination of their values that "
        "exists, with all its rows in input order. For files, names of --partition-format. "
        "Not together with --mini-batch-size."
    ),
    "partition_format": (
        'How paths carry values, as in "{user}/{season}/{genre}.wav". They become '
        "columns, appended last."
    ),
    "columns": "The columns to read, in this order. Default: all.",
    "dtypes": (
        "Types of columns, by name. Default: those of text are fixed by samples before the start, "
        "other tables have types of their own."
    ),
    "delimiter": "Between the fields of delimited text. Default: a tab for .tsv, else a comma.",
    "header": (
        "Which files have a header line; all_files_different_headers puts columns together by "
        "name. Default: all_files_same_headers."
    ),
    "encoding": "Of text input.",
    "support_multi_line": "Whether a quoted field may contain line breaks.",
    "include_path_column": "Add the path of each row's file as the column Path.",
    "node_count": "How many nodes to use. Default: all of the cluster.",
    "process_count_per_node": (
        "Agent processes on each node. Default: the threads that its Dask workers "
        "declare; in-process: the usable cores, by affinity and cgroup; on a GPU node 1."
    ),
    "gpus_per_process": (
        "GPUs of each agent process: a whole number, or a part such as 0.5, so that two share "
        "one. 0 hides them. Only on nodes that have any."
    ),
    "start_method": (
        '"fork": agents are forked from a process that has imported pandas and pyarrow '
        'once. "spawn": each agent is a fresh interpreter, for libraries that do not '
        "stand a fork."
    ),
    "error_threshold": "The job fails when more items than this have failed; -1: never for that.",
    "allowed_failed_count": (
        "The job fails when more mini-batches than this have failed; -1: never for that."
    ),
    "allowed_failed_percent": (
        "The same in percent of all mini-batches, judged once each of them has been tried."
    ),
    "run_invocation_timeout": (
        "Seconds for one call of run, iterating what it returned included; then the agent "
        "is killed and the attempt has failed."
    ),
    "run_max_try": "Attempts at one mini-batch.",
    "task_overhead_timeout": "Seconds for loading one mini-batch.",
    "first_task_creation_timeout": "Seconds within which the input must give its first mini-batch.",
    "progress_update_timeout": (
        "The job fails when for so many seconds no mini-batch was settled. Default: twice "
        "the timeouts of loading and running, and that of init."
    ),
    "init_timeout": (
        "Seconds for importing the script and init(). Default: three times "
        "--run-invocation-timeout, and 30."
    ),
    "shutdown_timeout": "Seconds for shutdown().",
    "no_workers_timeout": (
        "Seconds to wait for workers. Default: for ever; progress says that it waits."
    ),
    "agent_memory_limit": (
        'Bytes, or with a unit as in "2 GB": an agent that holds more, its sub-processes '
        "included, is killed. Default: none."
    ),
    "max_node_losses": (
        "A mini-batch that was at work on so many lost workers is failed: it may be the cause."
    ),
    "fail_on_timeout": (
        "A mini-batch that runs out of time in each of its attempts fails the job, whatever the "
        "thresholds say."
    ),
    "output_action": (
        '"append_row": what run returns is output. "summary_only": it is counted and '
        "dropped, and the script writes files of its own."
    ),
    "append_row_file_name": "Name of the output file.",
    "append_row_dataframe_header": "Write the header of the frames, once.",
    "append_row_dataframe_sep": "Between the fields of frames.",
    "keep_rows": "Keep the rows with their types too, for to_pandas in Python.",
    "overwrite": "Replace an existing output file, at the moment of publishing.",
    "resume": "Go on with the job in --job-dir: what it has done is not done again.",
    "accept_changes": (
        "Go on although these have changed, script, input or options, and keep what is done; "
        "of a changed input, what is the same by content."
    ),
    "progress": (
        "Show progress. Default: in a terminal and in notebooks a live display, else a "
        "line now and then."
    ),
}
