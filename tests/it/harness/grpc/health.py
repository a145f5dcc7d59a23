"""A server of gRPC's health protocol by gRPC's own authors, led by lines on standard input.

Arguments: a certificate and its key, for TLS. It writes its port, and `done` for each line `SERVICE STATUS` it has obeyed;
`-` is the server as a whole. It ends when its standard input does.
"""
import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if len(sys.argv) == 3:
        cert, key = (open(path, "rb").read() for path in sys.argv[1:])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    for line in sys.stdin:
        service, status = line.split()
        servicer.set("" if service == "-" else service, health_pb2.HealthCheckResponse.ServingStatus.Value(status))
        print("done", flush=True)
    server.stop(0)


main()
