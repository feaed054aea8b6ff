"""One entry, many inputs."""

import time
import traceback

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.entries import ENTRIES
from tests.fuzz.verdicts import where


def run(name, n, first_seed):
    """Judge so many inputs of an entry; return counts, findings with an example each, and seconds."""
    entry, counts, findings = ENTRIES[name], {"result": 0, "refused": 0}, {}

    @seed(first_seed)
    @settings(
        max_examples=n,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(entry.inputs)
    def judged(drawn):
        try:
            counts["result" if entry.check(drawn) else "refused"] += 1
        except Exception as error:
            known = findings.setdefault(where(error), [0, repr(drawn), traceback.format_exc()])
            known[0] += 1
            if len(repr(drawn)) < len(known[1]):
                known[1:] = [repr(drawn), traceback.format_exc()]

    start = time.perf_counter()
    judged()
    return counts, findings, time.perf_counter() - start
