"""Times for records that are to stay in their topics.

A broker deletes what is older than a week, even if it was written a moment ago: it looks half a
minute after its start and then every five minutes. A test whose records are old loses them in one
run of many.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

_DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)
DAY_MS = (NOW_MS // _DAY_MS - 1) * _DAY_MS  # yesterday's midnight of UTC
DAY = datetime.fromtimestamp(DAY_MS / 1000, timezone.utc).date().isoformat()
