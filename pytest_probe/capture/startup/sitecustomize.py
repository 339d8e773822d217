"""The start of each Python process that a captured program starts: PYTHONPATH leads here.

A Python of the same environment records as well; in any other this does nothing. Then the environment's own
sitecustomize runs, as it does without this one. Any Python may run this, so it has no syntax that an old one refuses.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != _here]

if "PYTEST_PROBE_CAPTURE_CHILDREN" in os.environ:
    try:
        import json

        _settings = json.loads(os.environ["PYTEST_PROBE_CAPTURE_CHILDREN"])
        if _settings["python"] == [sys.prefix, sys.version]:
            # Last: what the environment finds by itself comes first.
            sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_here))))
            try:
                from pytest_probe.capture import children
            finally:
                sys.path.pop()
            children.follow(_settings)
    except Exception as error:
        _reason = type(error).__name__ + ": " + str(error)
        sys.stderr.write("pytest-probe: this process is not recorded (" + _reason + ")\n")

sys.modules.pop("sitecustomize", None)
# Python's own start expects this to raise if none exists.
__import__("sitecustomize")
