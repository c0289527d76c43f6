"""The options of a job: their rules, their help, their values."""
