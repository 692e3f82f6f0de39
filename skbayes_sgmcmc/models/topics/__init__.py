"""Topic models: parametrizations of topics, documents' latent variables, LDA and DPFA."""
