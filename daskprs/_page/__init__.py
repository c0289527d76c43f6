"""The report of a job: what its folder has recorded, counted, drawn and told in words."""
