"""Networks as functions of flat parameters (network, mlp, cnn, module), and models with them."""
