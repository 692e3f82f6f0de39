"""Run the Python of a page from top to bottom, in one session, with warnings as errors.

    python .ci/blocks.py README.md

tests/test_pages.py does the same with everything installed. This needs nothing but what the page
itself says, so that it shows what a reader of the page meets.
"""

import re
import sys
import warnings
from pathlib import Path

text = Path(sys.argv[1]).read_text()
warnings.simplefilter("error")
names = {"__name__": "a_page"}
for match in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
    line = text.count("\n", 0, match.start(1))
    exec(compile("\n" * line + match[1], sys.argv[1], "exec"), names)
