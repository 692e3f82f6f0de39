"""Topic models: parametrizations of topics, latent variables of documents, LDA and DPFA."""
