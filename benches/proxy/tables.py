"""What is printed: the circumstances, then a table; for people, or as Markdown."""

import os
import platform
import statistics
import subprocess
import time

# Of a figure: its heading, its digits after the point, and how it is compared with the first row's.
PEERS = [
    ("cpu", "CPU µs/request", 1, "ratio"),
    ("rate", "requests/s", 0, "ratio"),
    ("p50", "p50 ms", 2, None),
    ("p99", "p99 ms", 2, None),
    ("memory", "RSS MiB", 1, "ratio"),
    ("busy", "busy %", 0, None),
]
FEATURES = [("cpu", "CPU µs/request", 1, "more"), ("rate", "requests/s", 0, None), ("memory", "RSS MiB", 1, None)]


def introduce(args, profile, root, processors):
    """What a reader has to know of the run."""
    proxy, others = processors
    if proxy == others:
        print("WARNING: one processor. The load and the origin compete with the proxy: CPU per request and memory stand,\n"
              "requests/s and latencies say little.\n")
    facts = [
        f"{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} processors ({model()}), Linux {platform.release()}, "
        f"load average {os.getloadavg()[0]:.1f} at the start",
        f"pulsegate {first(['git', '-C', root, 'describe', '--always', '--dirty'])}, profile `{profile}`"
        + (" (a release is some percent faster)" if profile == "quick" else "")
        + (", as built before" if args.no_build else "")
        + f"; {first(['nginx', '-v'])}; {' '.join(first(['haproxy', '-v']).split()[:2])}; wrk",
        f"{args.rounds} × {args.seconds} s, {args.connections} connections; the proxy on processor {proxy}, origin "
        f"and load on processor {others}",
        "access logs to a file: pulsegate JSON; nginx combined, in a buffer of 64 KiB; HAProxy httplog, written line by "
        "line; bare Pingora none. Probes every second: pulsegate and HAProxy. `busy`: of the proxy's processor",
    ]
    print("\n".join(f"- {fact}" for fact in facts) + "\n", flush=True)


def model():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())


def first(command):
    """The first line of what it says, wherever it says it."""
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout.splitlines()
    return said[0].replace("nginx version: ", "").replace("HAProxy version", "HAProxy") if said else "?"


def show(args, chosen, rounds):
    base = chosen[0]
    columns = FEATURES if args.table == "features" else PEERS
    heading = [f"median (least–most) of {len(rounds)}"]
    for _, title, _, comparison in columns:
        heading += [title] + {"ratio": [f"× {base.about}"], "more": ["more"], None: []}[comparison]
    rows = [heading] + [row(peer, base, columns, rounds) for peer in chosen]
    (markdown if args.markdown else plain)(rows)


def row(peer, base, columns, rounds):
    cells = [peer.about]
    for figure, _, digits, comparison in columns:
        own = [figures[peer.name][figure] for figures in rounds]
        pairs = list(zip(own, (figures[base.name][figure] for figures in rounds)))
        cells.append(spread(own, digits))
        if comparison and peer is base:
            cells.append("")
        elif comparison == "ratio":
            cells.append(spread([one / other for one, other in pairs], 2))
        elif comparison == "more":
            cells.append(spread([one - other for one, other in pairs], 1, "+"))
    return cells


def spread(values, digits, sign=""):
    """Median, least and most."""
    written = [f"{value:{sign},.{digits}f}" for value in (statistics.median(values), min(values), max(values))]
    return written[0] if len(values) == 1 else f"{written[0]} ({written[1]}–{written[2]})"


def markdown(rows):
    heading, *others = rows
    for cells in [heading, ["---"] + ["--:"] * (len(heading) - 1), *others]:
        print(f"| {' | '.join(cells)} |")


def plain(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(row, widths))).rstrip())
