"""Traffic for a gateway, and what came of it as its clients saw it.

    workload.py   what is asked: sizes, deadlines, texts, from one seed
    pattern.py    when: the rate over time, and Poisson arrivals from it
    sender.py     one request over aiohttp, and how it ended
    loops.py      closed loop (N clients) and open loop (arrivals that wait for nobody)
    tally.py      counts and histograms; the summary
    report.py     the table, JSON, CSV and the page

Open-loop latency counts from when a request *should* have left, so a client that cannot
keep up shows as latency, not as a lower rate.
"""
