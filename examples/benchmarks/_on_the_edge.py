"""Searches for a step size whose best step is the smallest or largest that was tried, with reasons.

A benchmark does not write its page if a best step is on the edge of its grid and not listed here,
or if one that is listed is not on the edge any more. The page gives the reason.
"""

LEVEL = (
    "The best step of every method is the smallest of the grid, but accuracies do not differ by "
    "more than a standard deviation up to h = 0.0003, so smaller steps were not tried."
)
NO_PROGRESS = (
    "After one pass, Euler's scheme has its best step on 20 Newsgroups at the smallest of the "
    "grid: the three that are stable are level (1207 to 1208), since topics hardly move in so few "
    "steps."
)
#: by page and search
ON_THE_EDGE = {
    **{("m3_a9a_thermostats", f"{name}, mass {mass}"): LEVEL
       for name in ("mSGNHT-S", "mSGNHT-E") for mass in (1.0, "auto")},
    **{("m3_a9a_thermostats", name): LEVEL for name in ("SGHMC-S", "SGHMC-E")},
    ("m5_dpfa", "20news, mSGNHT-E, one pass"): NO_PROGRESS,
}  # fmt: skip
