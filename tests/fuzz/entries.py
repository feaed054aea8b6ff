"""Every public entry with its inputs, its judge, and its share of a run."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hypothesis.strategies import SearchStrategy

from tests.fuzz import judging, linear, pages, rest, sets, tables_on_disk


@dataclass(frozen=True)
class Entry:
    """A strategy, a check that returns whether there was a result, and how many inputs of 100,000 are its own."""

    inputs: SearchStrategy
    check: Callable
    share: int


ENTRIES = {
    "confidence_radius": Entry(sets.radius_case, sets.check_radius, 7_000),
    "KLBall.worst_case": Entry(sets.ball_case, sets.check_worst_case, 10_000),
    "KLBall.interval": Entry(sets.interval_case, sets.check_interval, 4_000),
    "KLBall.contains": Entry(sets.contains_case, sets.check_contains, 3_000),
    "minimize": Entry(sets.minimize_case, sets.check_minimize, 3_000),
    **{name: Entry(linear.case(name), partial(linear.check, name), 6_000) for name in linear.ESTIMATORS},
    "RobustNewsvendor": Entry(linear.stock_case(), linear.check_stock, 8_000),
    "plan_stock": Entry(linear.stock_case(), linear.check_plan, 4_000),
    "ContextRobust": Entry(rest.any_learner_case, rest.check_any_learner, 2_500),
    "boosting": Entry(rest.booster_case, rest.check_booster, 1_500),
    "confidence_path": Entry(rest.path_case, rest.check_path, 3_000),
    "compare": Entry(rest.compare_case, rest.check_compare, 300),
    "evaluate": Entry(rest.evaluate_case, rest.check_evaluate, 1_500),
    "excess_bounds": Entry(judging.bounds_case, judging.check_bounds, 3_000),
    "metrics": Entry(rest.metric_case, rest.check_metrics, 4_000),
    "pages and figures": Entry(pages.page_case, pages.check_page, 400),
    "text files": Entry(tables_on_disk.text_case, tables_on_disk.check_reading, 4_000),
    "typed files": Entry(tables_on_disk.typed_case, tables_on_disk.check_reading, 4_000),
    "command": Entry(tables_on_disk.command_case, tables_on_disk.check_command, 300),
}

if importlib.util.find_spec("torch") is not None:
    from tests.fuzz import deep

    ENTRIES["torch losses"] = Entry(deep.torch_case, deep.check_torch, 2_000)
