"""
A corpus without labels: what to read next
==========================================

From a folder of files to a model of what they are about, the choice of its size, and a list of what
to read.
"""

# %%
# Raw data
# --------
#
# The corpus is on every reader's disk: Python's standard library. Each file is a document, made of
# the first 2,000 words of its docstrings. Files are parsed and not imported.

import ast
import sysconfig
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer, TfidfTransformer

from skbayes_sgmcmc import LatentDirichletAllocation

folder = Path(sysconfig.get_paths()["stdlib"])
skipped = {"test", "tests", "idlelib", "lib2to3", "site-packages", "encodings", "ensurepip",
           "turtledemo", "pydoc_data", "__pycache__", "idle_test", "dist-packages"}  # fmt: skip


def docstrings(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    return " ".join(ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds))


files = [
    path
    for path in sorted(folder.rglob("*.py"))
    if not skipped & set(path.relative_to(folder).parts)
]
corpus = {}
for path in files:
    text = docstrings(path)
    if len(text.split()) > 150:
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        corpus[name] = " ".join(text.split()[:2000])
print(f"{len(files)} files, {len(corpus)} of them with more than 150 words")

# %%
# From text to counts
# -------------------
#
# Words that nearly every file has, or fewer than five files, say nothing of topics.

house_words = """return returns object objects method class given used use value values true false
none default argument arguments function functions specified instance set new self called python
type module string list optional int str raise raises code create does name"""
vectorizer = CountVectorizer(
    token_pattern=r"(?u)\b[a-z]{3,}\b",
    stop_words=list(ENGLISH_STOP_WORDS | set(house_words.split())),
    min_df=5,
    max_df=0.4,
)
X = vectorizer.fit_transform(corpus.values())
words, names = vectorizer.get_feature_names_out(), np.array(list(corpus))
print(X.shape[0], "documents,", X.shape[1], "words,", X.sum(), "tokens")

# %%
# How many topics?
# ----------------
#
# As many as predict held-out halves of documents well, and not more. Perplexity is averaged over
# the draws, so a model is not punished for topics that it is unsure of. Here the largest number
# wins, and a longer search would go on.

test = np.arange(X.shape[0]) % 5 == 2
short = {"doc_topic_prior": 0.1, "random_state": 0}
short |= {"batch_size": 50, "burn_in": 150, "n_draws": 20, "thinning": 5}
sizes, scores = [5, 20, 40], []
for n_topics in sizes:
    lda = LatentDirichletAllocation(n_topics, **short).fit(X[~test])
    scores.append(lda.perplexity(X[test], random_state=0))
    print(f"{n_topics:3} topics: perplexity {scores[-1]:.0f}")
n_topics = sizes[int(np.argmin(scores))]

# %%
# What are the files about?
# -------------------------

lda = LatentDirichletAllocation(n_topics, **short).fit(X)
shares = lda.transform(X)
for k in np.argsort(-shares.sum(axis=0))[:8]:
    first = names[np.argsort(-shares[:, k])[:2]]
    print(f"{', '.join(lda.top_words(4, words)[k]):44} {', '.join(first)}")

# %%
# The decision: what to read next
# -------------------------------
#
# You have read ``tarfile`` and liked it. Which five files come next? Topics propose files that are
# about the same things, and cosines of word counts (tf-idf) files that use the same words. Neither
# has labels to learn from; the reader judges.

liked = np.flatnonzero(names == "tarfile")[0]
tfidf = TfidfTransformer().fit_transform(X)
by_topic = np.sqrt(shares) @ np.sqrt(shares[liked])  # overlap of the proportions
by_words = (tfidf @ tfidf[liked].T).toarray().ravel()
proposed = {}
for name, score in (("topics", by_topic), ("words", by_words)):
    proposed[name] = [i for i in np.argsort(-score) if i != liked][:5]
    print(f"by {name:7}", ", ".join(names[proposed[name]]))

# %%
# Left: perplexity by the number of topics. Right: the topics of the file and of the proposals.
# Those that both methods propose are the safest choice.

union = list(dict.fromkeys([liked, *proposed["topics"], *proposed["words"]]))
main = np.argsort(-shares[union].sum(axis=0))[:6]
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), width_ratios=(1, 2))
left.plot(sizes, scores, "o-")
left.set(title="Held-out halves", xlabel="topics", ylabel="perplexity", xticks=sizes)
start = np.zeros(len(union))
labels = lda.top_words(3, words)
for position, k in enumerate(main):
    width = shares[union, k]
    colour = f"C{position}"
    right.barh(np.arange(len(union)), width, left=start, color=colour, label=", ".join(labels[k]))
    start += width
both = set(proposed["topics"]) & set(proposed["words"])
ticks = [f"{names[i]}{' (both)' if i in both else ''}" for i in union]
right.set(yticks=np.arange(len(union)), yticklabels=ticks, xlim=(0, 1), xlabel="share of the topic")
right.set_title("The file that was liked, and the proposals")
right.invert_yaxis()
fig.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()
