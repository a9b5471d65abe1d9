"""Certificates of a replay: a line a request, from which anyone can check every hit.

A line is a JSON object. `hit` is the depth that the request resumed from, `from` the state there as
[request that wrote it, depth] (null where `hit` is 0), `evicted` the states that went and `written`
the depths of those that came. Requests count from 0; evictions come before writes. A state that
came and went within one request is in neither.
"""

from __future__ import annotations

import json

from tree_placement.replay.simulator import Served


def certificate_line(served: Served) -> str:
    """Return the line of one request.

    Examples
    --------
    >>> certificate_line(Served(640, 0, 0, None, (), (), 0))
    '{"hit": 0, "from": null, "written": [], "evicted": []}'
    """
    source = served.source
    return json.dumps(
        {
            "hit": served.hit,
            "from": [source.writer, source.depth] if source is not None else None,
            "written": sorted(state.depth for state in served.written),
            "evicted": [[state.writer, state.depth] for state in served.evicted],
        }
    )
