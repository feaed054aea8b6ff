"""Formulas as MathML, which browsers draw themselves: no script, no font and no network is needed to read them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def _written(node: nodes.Element, as_block: bool) -> str:
    source = node.astext().replace(r"\dots", r"\ldots")
    try:
        return str(tex2mathml(source, as_block=as_block))
    except MathError as error:
        LOGGER.warning("formula %r: %s", source, error, location=node)
        return f"<code>{source}</code>"


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
