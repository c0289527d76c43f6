"""An agent's outbox and loader where the system refuses threads; run under that limit."""

from __future__ import annotations

import os
import time
from multiprocessing import Pipe
from typing import Any

from daskprs._agent.child.inbox import WORTH_A_THREAD_S, Loader
from daskprs._agent.child.outbox import MemoryReserve, Outbox
from daskprs._agent.protocol.answers import parsed
from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Outcome, Status


class Slow:
    """A reader whose loads are worth a thread."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Take some time."""
        time.sleep(2 * WORTH_A_THREAD_S)
        return [mini_batch.index]


page_fd = new_page()
page = SharedPage(page_fd)
os.close(page_fd)
reserve = MemoryReserve(page)
loader = Loader(page, reserve)
loader.reader = Slow()
loader.start()
assert loader.take(0, Assigned(MiniBatch(7, None, ""), 1)).data == [7]
assert not loader.pays
ours, theirs = Pipe()
outbox = Outbox(theirs, reserve)
outbox.start()
outbox.open(1)
outbox.add(Outcome(0, 1, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0), b"")
assert ours.poll()
answer = parsed(ours.recv_bytes())
assert isinstance(answer, Outcomes)
print([outcome.index for outcome in answer.results.outcomes])
