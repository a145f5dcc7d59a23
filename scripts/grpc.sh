# A server of gRPC's health protocol that is not ours, for the tests; sourced by scripts/test.
# shellcheck shell=bash

# Pinned, and installed into target/ once.
grpcio_version=1.76.0
grpc_home=target/grpc

need_grpcio() {
    [[ "$("$grpc_home/bin/python" -c 'import grpc, grpc_health.v1.health; print(grpc.__version__)' 2>/dev/null)" == "$grpcio_version" ]] &&
        return
    # Wheels alone: from source it takes half an hour.
    need_venv "$grpc_home" --only-binary=:all: "grpcio==$grpcio_version" "grpcio-health-checking==$grpcio_version"
}
