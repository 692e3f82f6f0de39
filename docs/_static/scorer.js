// Order of the search: pages of the guide, the API, then examples, results and project pages.
// Within each, Sphinx's own scores, which are below 100 unless a name of the API is given.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const last = ["gallery/", "results/", "project/", "design"];
    if (last.some((place) => docname.startsWith(place))) return score;
    return score + (docname.includes("/") ? 100 : 200);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
