def compose(args, tables, results, missing, failed, methods):
    for (k, n), r in results.items():
        print(
            k,
            n,
            {
                s: {a: round(b, 3) for a, b in v.items() if isinstance(b, float)}
                for s, v in r.items()
            },
        )
    print(missing, failed)
    return "x", []
