"""Formulas as MathML, which browsers draw themselves: no script, no font and no network is needed to read them."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


SPELLINGS = {
    r"\\dots\b": r"\\ldots",
    # As a fence a double bar would grow with what is around it; between distributions it is a relation.
    r"\\\|": r"\\parallel ",
    # Docutils would put the index of an accented letter below it; that of an empty group beside it stays in its place.
    r"\\hat\s*(\\[a-z]+|\w)(?=[_^])": r"\\hat \1{}",
    # Not as a superscript: the sign stands high already.
    r"'": r"{\\prime}",
    # A logarithm keeps its distance from what it is multiplied with, and from its argument unless that has brackets.
    r"(?<=[\w)}])\s+(?=\\(?:ln|log)(?![a-z]))": r" \\, ",
    r"(\\(?:ln|log)(?:_\w)?)\s+(?!\(|\\left|\\,)": r"\1 \\, ",
}
"""What docutils does not know, or reads otherwise than a reader would, and how to say it."""


def _written(node: nodes.Element, as_block: bool) -> str:
    source = node.astext()
    for pattern, spelling in SPELLINGS.items():
        source = re.sub(pattern, spelling, source)
    try:
        return str(tex2mathml(source, as_block=as_block))
    except MathError as error:
        LOGGER.warning("formula %r: %s", source, error, location=node)
        return f"<code>{html.escape(source)}</code>"


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_written(node, as_block=False))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(_written(node, as_block=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer the renderer under the name ``native``."""
    app.add_html_math_renderer("native", inline_renderers=(_inline, None), block_renderers=(_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
