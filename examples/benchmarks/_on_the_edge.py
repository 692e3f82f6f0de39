"""Searches for a step size whose best step is the smallest or largest that was tried, with reasons.

A benchmark does not write its page if a best step is on the edge of its grid and not listed here,
or if one that is listed is not on the edge any more. The page gives the reason.
"""

LEVEL = (
    "The best step of every method is the smallest of the grid, but accuracies do not differ by "
    "more than a standard deviation up to h = 0.0003, so smaller steps were not tried."
)
GROWING = (
    "The best step of splitting is the largest of the grid on both corpora, and that of Euler's "
    "scheme is the smallest, or none: other steps might be better, and none is called best here."
)
#: of M2, by corpus and size of batches
UNFINISHED = {
    ("20news", 5): ("SGHMC-E", "SGHMC-S", "SGRLD", "mSGNHT-E", "mSGNHT-S"),
    ("20news", 100): ("SGHMC-E", "SGHMC-S", "mSGNHT-S"),
    ("nips", 5): ("SGHMC-E", "SGHMC-S", "SGRLD"),
    ("nips", 100): ("SGRLD", "mSGNHT-S"),
    ("reuters", 100): ("SGRLD",),
}
NOT_FINISHED = (
    "Searches that are not finished, whose best step so far is the smallest or the largest: "
    + "; ".join(
        f"{', '.join(names)} on {corpus} with batches of {batch}"
        for (corpus, batch), names in UNFINISHED.items()
    )
    + ". These methods may do better than here, so the order says at most what they have."
)
#: by page and search
ON_THE_EDGE = {
    **{("m3_a9a_thermostats", f"{name}, mass {mass}"): LEVEL
       for name in ("mSGNHT-S", "mSGNHT-E") for mass in (1.0, "auto")},
    **{("m3_a9a_thermostats", name): LEVEL for name in ("SGHMC-S", "SGHMC-E")},
    **{("m5_dpfa", f"{corpus}, {name}"): GROWING
       for corpus in ("20news", "nips") for name in ("mSGNHT-S", "mSGNHT-E")},
    **{("m2_lda", (*where, name)): NOT_FINISHED
       for where, names in UNFINISHED.items() for name in names},
}  # fmt: skip
