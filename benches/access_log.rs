//! What an access-log line costs the request it is about.
//!
//! `render` makes the line alone, in JSON unless another format is named. `write` is the whole of it: rendering, and the copy into the queue, while the log's thread writes to `/dev/null`.
//! With more threads it shows what the queue's lock costs under contention.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, SystemTime};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pulsegate::config::{self, Field, Sink};
use pulsegate::health::{Mode, Standing, Window};
use pulsegate::telemetry::{AccessLog, Attempt, AttemptResult, Pick, PickReason, Record};

/// About what the combined line has, and who served it.
const TEMPLATE: &str = "format: '$time $client \"$method $path $proto\" $status $response_bytes $(duration_ms)ms \"$user_agent\" $attempts.member'";

fn every_field() -> String {
    let fields: Vec<String> = Field::ALL.iter().map(|(name, _)| format!("${name}")).collect();
    format!("format: '{}'", fields.join(" "))
}

fn attempt() -> Attempt {
    Attempt {
        member: "10.0.0.17:8080".into(),
        standing: Standing::Healthy,
        window: Some(Window { passes: 4, shown: 4, size: 4, required: Some(3) }),
        probe: Some(Duration::from_micros(12_412)),
        status: Some(200),
        result: AttemptResult::Ok,
        connect: Some(Duration::from_micros(213)),
        ttfb: Some(Duration::from_micros(3_517)),
        duration: Duration::from_micros(4_020),
        bytes: 18_234,
        reused: false,
        observed: None,
    }
}

fn record(attempts: &[Attempt]) -> Record<'_> {
    Record {
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_123),
        request_id: Some("8f14e45fceea167a5a36dedd4bea2543".into()),
        client: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 44))),
        listener: "0.0.0.0:8080",
        proto: Some("HTTP/1.1"),
        method: Some("GET".into()),
        scheme: Some("http"),
        host: Some("www.example.com".into()),
        path: Some("/catalogue/items/1729/reviews".into()),
        query: Some("page=2&sort=newest".into()),
        status: Some(200),
        response_bytes: 18_234,
        duration: Duration::from_micros(4_131),
        ttfb: Some(Duration::from_micros(3_611)),
        user_agent: Some("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".into()),
        referer: Some("https://www.example.com/catalogue/items/1729".into()),
        route: Some("catalogue"),
        pool: Some("web"),
        connection: 90_210,
        lb: Some(Pick {
            mode: Mode::Normal,
            reason: Some(PickReason::Balanced),
            in_rotation: 4,
            total: 4,
            tier: Some(0),
            rank: 0,
            waited: Duration::ZERO,
        }),
        attempts,
        ..Record::default()
    }
}

/// A format, or a filter, as a file means it.
fn wanted(keys: &str) -> config::AccessLog {
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:80\" }}]\naccess_log: {{ path: /dev/null, {keys} }}\npools: {{ web: {{ members: \
         [\"10.0.0.1:80\"], probe: off }} }}\nroutes: [{{ pool: web }}]\n"
    );
    config::parse("bench", &text, &|_| None).expect("it is right").config.access_log
}

fn access_log(criterion: &mut Criterion) {
    let attempts = [attempt()];
    let record = record(&attempts);
    let mut group = criterion.benchmark_group("access_log");
    group.throughput(Throughput::Elements(1));

    let formats = [
        ("render", "format: json"),
        ("render combined", "format: combined"),
        ("render a template", TEMPLATE),
        ("render a template of all fields", &every_field()),
    ];
    for (name, keys) in formats {
        let format = wanted(keys).format;
        let mut line = Vec::new();
        record.render(&format, &mut line);
        eprintln!("{name}: a line of {} bytes", line.len());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                line.clear();
                black_box(&record).render(&format, &mut line)
            });
        });
    }

    let log = AccessLog::start(&wanted("format: json")).expect("/dev/null opens");
    group.bench_function("write", |bencher| bencher.iter(|| log.write(black_box(&record))));

    let filtered = AccessLog::start(&wanted("filter: { status: \"500-599\", min_duration: 1s }")).expect("it opens");
    group.bench_function("filtered", |bencher| bencher.iter(|| filtered.write(black_box(&record))));
    let sampled = AccessLog::start(&wanted("filter: { sample: 0.0001% }")).expect("it opens");
    group.bench_function("not in the sample", |bencher| bencher.iter(|| sampled.write(black_box(&record))));

    let contended = |iterations: u64, log: &AccessLog| {
        for _ in 0..iterations {
            log.write(black_box(&record));
        }
    };
    group.bench_function("write beside three other threads", |bencher| {
        bencher.iter_custom(|iterations| {
            let log = &log;
            let started = pulsegate::clock::monotonic();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(move || contended(iterations.div_ceil(4), log));
                }
            });
            pulsegate::clock::monotonic() - started
        });
    });

    let off = AccessLog::start(&config::AccessLog { sink: Sink::Off, ..wanted("format: json") }).expect("it opens");
    group.bench_function("off", |bencher| bencher.iter(|| off.write(black_box(&record))));
    group.finish();
    eprintln!("dropped: {}", log.dropped());
}

criterion_group!(benches, access_log);
criterion_main!(benches);
