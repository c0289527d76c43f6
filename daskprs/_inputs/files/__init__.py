"""Lists of files, and the columns that their paths carry."""
