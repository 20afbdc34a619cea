"""Figures published for the headline benchmark, printed beside what is measured.

Goodput per second on the published trace. The upper bound is a clairvoyant schedule without
jitter: no scheduler can pass it.
"""

RATES = (40, 90, 150, 180, 200, 220, 240, 260, 320, 500)

MUST = dict(
    zip(RATES, (39.9, 89.6, 149.0, 176.0, 190.0, 204.0, 217.0, 230.0, 262.0, 335.0), strict=True)
)

PUBLISHED: dict[str, dict[int, float]] = {
    "none": dict(zip(RATES, (35.5, 0.5, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2), strict=True)),
    "fixed": dict(
        zip(RATES, (39.9, 89.6, 143.7, 155.6, 155.7, 51.1, 10.6, 5.2, 3.0, 1.7), strict=True)
    ),
    "fixed_tuned": {260: 153.5},
    "original": dict(
        zip(
            RATES,
            (39.9, 89.6, 143.9, 158.6, 163.6, 166.7, 171.5, 96.2, 31.3, 19.4),
            strict=True,
        )
    ),
    "edf_feasible": dict(
        zip(RATES[2:], (149.3, 173.9, 158.4, 148.0, 145.1, 142.3, 136.5, 129.8), strict=True)
    ),
    "smallest_feasible": dict(
        zip(RATES[2:], (148.7, 174.1, 189.6, 204.6, 218.2, 231.0, 265.9, 342.7), strict=True)
    ),
    "goodput": dict(
        zip(RATES[2:], (149.6, 177.7, 193.8, 208.8, 222.4, 235.5, 269.9, 346.2), strict=True)
    ),
}

UPPER_BOUND = dict(
    zip(
        RATES,
        (39.9, 89.9, 150.0, 179.0, 199.2, 217.5, 233.0, 247.3, 284.6, 367.3),
        strict=True,
    )
)
