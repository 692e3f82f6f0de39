"""Formulas as MathML, which browsers draw themselves: no script, no fonts, no network."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def within_a_line(writer, node):
    """Write a formula within a line."""
    writer.body.append(f'<span class="math">{convert(node.astext())}</span>')
    raise SkipNode  # the writer must not add the source


def on_its_own(writer, node):
    """Write a formula on lines of its own, which scrolls if it is wide."""
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Add the renderer that ``html_math_renderer = "native"`` names."""
    app.add_html_math_renderer("native", (within_a_line, None), (on_its_own, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
