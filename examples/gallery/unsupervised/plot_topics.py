"""
Topics with words
=================

What are the functions of a scientific library about? Topics of their docstrings, and how sure the
posterior is of each word.
"""

# %%
# A corpus that every reader has: the docstrings of scikit-learn, one document for each class and
# function. Counts of words are made in the usual way.

import importlib
import inspect
import pkgutil

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.decomposition import LatentDirichletAllocation as VariationalLDA
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from skbayes_sgmcmc import LatentDirichletAllocation, document_completion_perplexity
from skbayes_sgmcmc.inspection import TopicDisplay

documents = {}
for module in pkgutil.iter_modules(sklearn.__path__):
    if module.name.startswith(("_", "conftest", "experimental")):
        continue
    found = importlib.import_module(f"sklearn.{module.name}")
    for name in getattr(found, "__all__", []):
        text = inspect.getdoc(vars(found).get(name))
        if text and len(text) > 500:
            documents[f"{module.name}.{name}"] = text

house_words = """default shape array like int float str bool none true false parameter parameters
return returns see user guide read example examples optional added changed version versionadded
versionchanged sklearn import object ndarray using used use set value values given dtype class doc
attributes attribute method methods fit len string ignored seen number order names name print
numpy warning future deprecated input output callable note notes instance"""
vectorizer = CountVectorizer(
    token_pattern=r"(?u)\b[a-z]{3,}\b",
    stop_words=list(ENGLISH_STOP_WORDS | set(house_words.split())),
    min_df=8,
    max_df=0.3,
)
X = vectorizer.fit_transform(documents.values())
print(X.shape[0], "documents,", X.shape[1], "words")

# %%
# The estimator is a drop-in replacement for scikit-learn's own. Half of each held-out document
# predicts the other half; perplexity is the number of words among which a guess would be as hard.

test = np.arange(X.shape[0]) % 5 == 0
lda = LatentDirichletAllocation(
    12, doc_topic_prior=0.1, burn_in=500, n_draws=50, thinning=10, random_state=0
).fit(X[~test])
rival = VariationalLDA(12, doc_topic_prior=0.1, max_iter=30, random_state=0).fit(X[~test])
for name, topics in {
    "posterior": lda.posterior_["components"].reshape(-1, 12, X.shape[1]),
    "variational": rival.components_,
}.items():
    score = document_completion_perplexity(topics, X[test], doc_topic_prior=0.1, random_state=0)
    print(f"{name:12} perplexity {score:.0f}")

# %%
# What is a page about? The proportions of topics of one document, with its topics' words.

words = vectorizer.get_feature_names_out()
top = lda.top_words(5, words)
row = list(documents).index("linear_model.Lasso")
share = lda.transform(X[row : row + 1])[0]
for k in np.argsort(-share)[:3]:
    print(f"{share[k]:.2f}  {', '.join(top[k])}")

# %%
# The bars are the probabilities of the most frequent words of six topics, with 90% intervals. The
# draws are of one chain: another chain would number the topics differently, and find some
# different ones.

chosen = np.argsort(-lda.transform(X).sum(axis=0))[:6]
axes = plt.subplots(2, 3, figsize=(10.5, 6))[1].ravel()
TopicDisplay.from_estimator(lda, chosen, n_words=7, feature_names=words, ax=axes)
for ax, k in zip(axes, chosen, strict=True):
    ax.set_title(f"Words of topic {k}")
plt.show()
