"""What in this folder is not collected as doctests: the site's settings and what it builds.

Examples of the gallery are programs; tests/package/test_docs.py runs them.
"""

collect_ignore = ["conf.py", "_build", "gallery", "examples", "api/generated"]
