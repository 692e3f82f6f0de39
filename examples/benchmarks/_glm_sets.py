"""The sets of ``tests/data/reference_glm.npz``, which have long NUTS runs."""

#: name: likelihood, and parameters of the estimator that name columns
SETS = {
    "linnerud": ("normal", {}),
    "diabetes_t": ("student_t", {}),
    "diabetes_gamma": ("gamma", {}),
    "rates": ("poisson", {"exposure": 0}),
    "wide_counts": ("poisson", {}),
    "overdispersed": ("negative_binomial", {}),
    "seeds": ("binomial", {"n_trials": 0}),
    "seeds_plates": ("binomial", {"n_trials": 0, "groups": 1}),
    "schools": ("normal", {"groups": 0, "group_slopes": 1}),
    "visits": ("zero_inflated_poisson", {"exposure": 0}),
    "catches": ("zero_inflated_negative_binomial", {}),
    "rain": ("tweedie", {}),
    "survival_log_normal": ("log_normal", {}),
    "survival_weibull": ("weibull", {}),
}
