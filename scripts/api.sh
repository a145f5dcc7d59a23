# The admin API against its own document, by schemathesis; sourced by scripts/test.
# shellcheck shell=bash

# Pinned, and installed into target/ once.
schemathesis_version=4.32.5
schemathesis_home=target/schemathesis
schemathesis=$schemathesis_home/bin/schemathesis

need_schemathesis() {
    "$schemathesis" --version 2>/dev/null | grep -qF "$schemathesis_version" && return
    need_venv "$schemathesis_home" "schemathesis==$schemathesis_version"
}

# Members that answer, that do not, from a name, from a file; so that every field of an answer has a value somewhere.
api_configuration() {
    cat <<END
listeners: [{ address: "127.0.0.1:0" }]
admin: { address: "127.0.0.1:0" }
access_log: off
lame_duck: 0s
pools:
  web:
    members: ["127.0.0.1:9001", { address: "127.0.0.2:9001", state: draining }, { file: "$PWD/$1/members.yaml" }]
    probe: { path: /, interval: 1s, timeout: 500ms, window: { size: 5, required: 3 } }
    max_in_flight: 10
    each_member: { max_connections: 10 }
    queue: { size: 10, timeout: 1s }
  other:
    members: ["localhost:9001"]
    probe: off
routes: [{ pool: web }, { path: /other, pool: other }]
END
}

# Bounded, and the same examples each time. The stream has no end that a client of this kind would see; the tests in
# tests/it have it.
test_api() {
    local root=$PWD folder=target/api proxy admin failed=0
    mkdir -p "$folder"
    api_configuration "$folder" >"$folder/proxy.yaml"
    printf -- '- 127.0.0.3:9001\n' >"$folder/members.yaml"
    cargo build --locked --quiet
    target/debug/pulsegate run --config "$folder/proxy.yaml" >/dev/null 2>"$folder/proxy.log" &
    proxy=$!
    # The kernel chose the port.
    for _ in $(seq 100); do
        admin=$(sed -n 's/.*"kind":"admin".*"address":"\([^"]*\)".*/\1/p' "$folder/proxy.log" 2>/dev/null || true)
        [[ -n "$admin" ]] && break
        sleep 0.1
    done
    if [[ -n "$admin" ]]; then
        # In its folder, since it leaves some of its own.
        (cd "$folder" && "$root/$schemathesis" --config-file "$root/scripts/schemathesis.toml" \
            run "http://$admin/api/v1/openapi.json") || failed=1
    fi
    kill "$proxy" 2>/dev/null || true
    wait "$proxy" || die "the proxy did not start, or not end well; see $folder/proxy.log"
    [[ "$failed" == 0 ]] || die "the API is not what its document says (see above)"
}
