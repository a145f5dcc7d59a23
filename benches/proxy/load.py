"""One measurement: a proxy is started, loaded, looked at and ended."""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import time

import peers

WARM_UP_SECONDS = 1
# What is waited for at most: a start, a log that is written, an end.
DEADLINE = 10
# A log that has not grown for so long is whole.
SETTLED = 0.5
PR_SET_PDEATHSIG = 1
# What nginx logs of a request whose client left; others log no status then.
CUT = b"499"

# wrk's own report, to be read by a program. Its errors of status are those over 399.
REPORT = """
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('{"requests":%d,"microseconds":%d,"p50":%d,"p99":%d,"connect":%d,"read":%d,"write":%d,'
    .. '"timeout":%d,"status":%d}\\n', summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
"""


class Wrong(Exception):
    """Something that makes the figures worthless."""


def processors():
    """Which processor is the proxy's and which the others': the last and the first; the same where there is only one."""
    there = sorted(os.sched_getaffinity(0))
    return there[-1], there[0]


class Program:
    """A process of ours, on one processor, which ends with us whatever happens."""

    def __init__(self, command, folder, processor):
        self.command, self.folder = command, folder
        libc = ctypes.CDLL(None)

        def before():
            os.sched_setaffinity(0, {processor})
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        with open(os.path.join(folder, "stdout"), "ab") as out, open(os.path.join(folder, "stderr"), "ab") as err:
            self.child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          preexec_fn=before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def await_answer(self, address):
        """Until it answers 200: a proxy does so as soon as its origin is known to be well."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline and self.child.poll() is None:
            try:
                connection = http.client.HTTPConnection(address, timeout=2)
                connection.request("GET", "/")
                answer = connection.getresponse()
                if (answer.status, answer.read()) == (200, b"ok"):
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        raise Wrong(f"{self.command[0]} did not begin to serve; it said:\n{self.last_words()}")

    def last_words(self):
        with open(os.path.join(self.folder, "stderr"), errors="replace") as said:
            return "".join(said.readlines()[-10:])

    def cpu_seconds(self):
        """Of all its threads since it started, to the nanosecond: the clock that clock_getcpuclockid(3) names."""
        return time.clock_gettime((~self.child.pid << 3) | 2)

    def resident_bytes(self):
        with open(f"/proc/{self.child.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Origin(Program):
    """nginx, on ten addresses; beside the load."""

    def __init__(self, folder, processors):
        self.proxy_processor, self.processor = processors
        self.top = folder
        port = free_port()
        self.addresses = [f"127.0.0.{number}:{port}" for number in range(1, 11)]
        write(folder, {"report.lua": REPORT, "origin.conf": peers.origin_nginx(self.addresses)})
        super().__init__([peers.program("nginx"), "-p", ".", "-c", "origin.conf", "-e", "error.log"], folder, self.processor)
        self.await_answer(self.addresses[0])

    def __str__(self):
        return self.addresses[0]


def measure(peer, origin, seconds, connections):
    """One proxy's figures."""
    folder = os.path.join(origin.top, peer.name)
    os.makedirs(folder, exist_ok=True)
    listen = f"127.0.0.1:{free_port()}"
    write(folder, peer.files(listen, origin))
    if peer.log and os.path.exists(os.path.join(folder, peer.log)):
        os.remove(os.path.join(folder, peer.log))
    with Program(peer.command(listen, origin), folder, origin.proxy_processor) as proxy:
        proxy.await_answer(listen)
        wrk(peer, origin, listen, WARM_UP_SECONDS, connections)
        log = Log(peer, folder)
        before = proxy.cpu_seconds()
        report = wrk(peer, origin, listen, seconds, connections)
        cpu = proxy.cpu_seconds() - before
        if proxy.child.poll() is not None:
            raise Wrong(f"{peer.name} ended under load; it said:\n{proxy.last_words()}")
        memory = proxy.resident_bytes()
        log.check(report["requests"], connections)
    took = report["microseconds"] / 1e6
    return {
        "cpu": cpu / report["requests"] * 1e6, "rate": report["requests"] / took, "busy": cpu / took * 100,
        "p50": report["p50"] / 1000, "p99": report["p99"] / 1000, "memory": memory / 2**20,
    }


def wrk(peer, origin, listen, seconds, connections):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", "report.lua", f"http://{listen}/"]
    pin = lambda: os.sched_setaffinity(0, {origin.processor})
    said = subprocess.run(command, cwd=origin.top, capture_output=True, text=True, preexec_fn=pin,
                          timeout=seconds + DEADLINE)
    try:
        report = json.loads(said.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Wrong(f"wrk failed against {peer.name}:\n{said.stdout}{said.stderr}") from None
    errors = {kind: report[kind] for kind in ["connect", "read", "write", "timeout", "status"] if report[kind]}
    if errors or report["requests"] == 0:
        raise Wrong(f"{peer.name}: {report['requests']} requests, errors {errors} (status: answers over 399)")
    return report


class Log:
    """A proxy's access log, if it has one, from here on."""

    def __init__(self, peer, folder):
        self.peer, self.begin = peer, 0
        self.path = peer.log and os.path.join(folder, peer.log)
        if self.path:
            self.settle()
            self.begin = os.path.getsize(self.path)

    def check(self, requests, connections):
        """One line for each request, each with a 2xx. wrk leaves at the end, and does not count what it then waits for:
        one request on each connection at most. Before it begins it connects once and asks for nothing, which is a line of
        the peer's `strays`."""
        if not self.path:
            return
        self.settle()
        with open(self.path, "rb") as log:
            log.seek(self.begin)
            lines = log.read().splitlines()
        found = [self.peer.status.search(line) for line in lines]
        statuses = [status[1] if status else CUT for status in found]
        wrong = [line for line, status in zip(lines, statuses) if status != CUT and not status.startswith(b"2")]
        if wrong or statuses.count(CUT) > connections + self.peer.strays:
            line = (wrong or [line for line, status in zip(lines, statuses) if status == CUT])[0]
            raise Wrong(f"{self.peer.name} logged what is not of a 2xx ({len(wrong)} lines, {statuses.count(CUT)} cut): {line[:300]!r}")
        if not requests <= len(lines) <= requests + connections + self.peer.strays:
            raise Wrong(f"{self.peer.name} logged {len(lines)} lines for {requests} requests on {connections} connections")

    def settle(self):
        """Until no more comes."""
        deadline, size, since = time.monotonic() + DEADLINE, -1, time.monotonic()
        while time.monotonic() < deadline:
            if os.path.getsize(self.path) != size:
                size, since = os.path.getsize(self.path), time.monotonic()
            elif time.monotonic() - since > SETTLED:
                break
            time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write(folder, files):
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
