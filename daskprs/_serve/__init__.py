"""A batch endpoint of one's own: an HTTP service that runs batch deployments as jobs.

Needs the extra ``serve``: ``pip install "daskprs[serve]"``.
"""
