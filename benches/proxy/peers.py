"""The proxies that are measured: how each is started, and what it has to do.

All forward to one origin and keep connections to it. pulsegate, nginx and HAProxy write an access log to a file and set the
forwarded fields; pulsegate and HAProxy probe the origin once a second, which nginx cannot. Bare Pingora does none of it.
"""

import os
import re
import shutil


class Peer:
    """One proxy, in one configuration."""

    def __init__(self, name, about, command, files=None, log=None, status=None, strays=0):
        self.name, self.about = name, about
        # Of (listen, origin), both with address and port; `files` gives the text of each file it reads, by name.
        self.command, self.files = command, files or (lambda listen, origin: {})
        # The file in its folder that has its access log, if it has one, and where a line of that has the status.
        self.log, self.status = log, status and re.compile(status)
        # Lines it writes for a connection that asked for nothing.
        self.strays = strays


def proxies(built):
    """Bare Pingora first: the one that ratios are to."""
    return [
        Peer("bare", "bare Pingora", lambda listen, origin: [os.path.join(built, "examples/bare"), listen, str(origin)]),
        pulsegate(built, "pulsegate", "pulsegate"),
        Peer("nginx", "nginx", lambda *_: [program("nginx"), "-p", ".", "-c", "nginx.conf", "-e", "error.log"],
             lambda listen, origin: {"nginx.conf": nginx(listen, origin)}, "access.log", rb'" (\d{3}) '),
        Peer("haproxy", "HAProxy", lambda *_: [program("haproxy"), "-db", "-f", "haproxy.cfg"],
             lambda listen, origin: {"haproxy.cfg": HAPROXY.format(listen=listen, origin=origin)},
             # A line that begins its flags with C is of a client that left.
             "stdout", rb" (\d{3}) \d+ - - [^C]", strays=1),
    ]


def features(built):
    """pulsegate as it is compared with others, then with one thing less, or one more."""
    def with_(name, about, **parts):
        return pulsegate(built, name, about, **parts)

    hall = "max_in_flight: 10000, each_member: { max_in_flight: 10000 }, queue: { size: 100 }"
    return [
        with_("pulsegate", "pulsegate"),
        with_("no-log", "without access log", log=None),
        with_("no-probes", "without probes", probe="off"),
        with_("neither", "without either", log=None, probe="off"),
        with_("combined", "log in combined format", log="format: combined"),
        with_("sampled", "log of one request in 100", log="filter: { sample: 1% }"),
        with_("ten-members", "ten members", members=10),
        with_("least-requests", "ten members, least requests", members=10, pool="balance: least_requests"),
        with_("hash", "ten members, consistent hash, bounded", members=10,
              pool="balance: { consistent_hash: { key: path, bounded_load_percent: 200 } }"),
        with_("limits", "with limits and a queue", pool=hall),
        with_("routes", "1,000 routes", routes=1_000),
    ]


def pulsegate(built, name, about, log="format: json", probe="{ path: /, interval: 1s }", members=1, routes=1, pool=None):
    def config(listen, origin):
        addresses = ", ".join(f'"{address}"' for address in origin.addresses[:members])
        others = "".join(f"  - {{ path: /service-{number}, pool: web }}\n" for number in range(1, routes))
        return {"proxy.yaml": f"""\
threads: 1
admin: off
lame_duck: 0s
drain_timeout: 1s
listeners: [{{ address: "{listen}", keepalive_requests: 1000000000 }}]
access_log: {f"{{ path: access.log, {log} }}" if log else "off"}
pools: {{ web: {{ members: [{addresses}], probe: {probe}{f", {pool}" if pool else ""} }} }}
routes:
  - {{ path: /, pool: web }}
{others}"""}

    status = rb'" (\d{3}) ' if log and "combined" in log else rb'"status":(\d{3})'
    # A sample says nothing of how many requests there were.
    counted = log and "sample" not in log
    command = [os.path.join(built, "pulsegate"), "run", "--config", "proxy.yaml"]
    return Peer(name, about, lambda *_: command, config, "access.log" if counted else None, status)


def nginx(listen, origin):
    return NGINX.format(listen=f"listen {listen};", http=f"""
  access_log access.log combined buffer=64k flush=200ms;
  upstream origin {{ server {origin}; keepalive 128; keepalive_requests 1000000000; }}""", location=f"""
    proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Request-Id $request_id;""")


def origin_nginx(addresses):
    listen = " ".join(f"listen {address};" for address in addresses)
    return NGINX.format(listen=listen, http="access_log off;", location="return 200 'ok';")


# One process. nginx closes a connection after 1,000 requests unless it is told otherwise.
NGINX = """\
master_process off; daemon off; pid nginx.pid; error_log error.log; worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_requests 1000000000;{http}
  server {{ {listen} location / {{ {location} }} }}
}}
"""

# The log is the frontend's alone: what is said of servers goes elsewhere.
HAPROXY = """\
global
  nbthread 1
  maxconn 2000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend in
  bind {listen}
  log stdout format raw local0 info
  option httplog
  option forwardfor
  http-request set-header X-Forwarded-Proto http
  default_backend out
backend out
  option httpchk GET /
  server origin {origin} check inter 1s
"""


def names():
    return list(dict.fromkeys(peer.name for peer in [*proxies(""), *features("")]))


def program(name):
    return shutil.which(name) or name
