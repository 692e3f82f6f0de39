"""Run the Python blocks of the pages when the site is built, and show what they print and draw.

The pages stay plain markdown, which tests and GitHub read, too. In the build, each block becomes a
cell of a notebook, which myst-nb runs; a page is one session. A block that cannot run here has the
reason above it (``<!-- not run: ... -->``) and stays as it is. One that draws has the text of its
figures there (``<!-- alt: ... -->``), for readers who cannot see them.
"""

import json
import re

#: an optional comment, the code
BLOCK = re.compile(r"(?:^<!-- (not run|alt): ([^\n]*) -->\n+)?^```python\n(.*?^```)$", re.M | re.S)
#: the first cell, which is not shown. Figures are shown whatever backend MPLBACKEND names
BEGIN = """\
---
file_format: mystnb
kernelspec:
  name: python3
---
```{code-cell}
:tags: [remove-cell]

%%matplotlib inline
import sys

sys.path[:0] = %r
from gallery_style import begin_example

begin_example(None, None)
```

"""
#: pages that are about what goes wrong
NOT_RUN = {"warnings"}


def make_cells(name: str, text: str, path: list[str]) -> str:
    """The text of a page with its Python blocks as cells, if it has some that can run."""

    def cell(block: re.Match[str]) -> str:
        kind, comment, code = block.groups()
        if kind == "not run":
            return block[0]
        alt = f":mystnb: {{image: {{alt: {json.dumps(comment)}}}}}\n\n" if kind else ""
        return f"```{{code-cell}}\n{alt}{code}"

    changed = BLOCK.sub(cell, text)
    return text if changed == text or name in NOT_RUN else BEGIN % path + changed
