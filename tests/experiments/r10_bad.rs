//! R10: one of four members speaks nothing but broken HTTP. Each lie has a load of its own, and every answer of 200 must carry
//! what was asked for: the good members say it, and no lie does.

use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::origin::Origin;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::{Answer, Step, When};
use crate::harness::wait::{now, pause};
use crate::load::{Connections, Paced, Tally, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted};

/// A whole answer that nobody asked for, behind another: whoever takes it for an answer has the wrong one.
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstray\n";

/// Each lie by the path that is asked for, and what the member sends; one that may be read as a whole answer is a 203.
const LIES: [(&str, &str); 10] = [
    ("/load/garbage", "\u{1}\u{2}\u{3} no HTTP at all \u{7f}\r\n\r\n"),
    ("/load/half", "HTTP/1.1 200 OK\r\nContent-Le"),
    ("/load/short", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort\n"),
    ("/load/unended", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"),
    ("/load/lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nwrong\n"),
    (
        "/load/both",
        "HTTP/1.1 203 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nwrong\n\r\n0\r\n\r\n",
    ),
    ("/load/status", "HTTP/1.1 2x0 OK\r\nContent-Length: 6\r\n\r\nwrong\n"),
    ("/load/chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nwrong\r\n0\r\n\r\n"),
    ("/load/more", "HTTP/1.1 203 OK\r\nContent-Length: 3\r\n\r\nok\n"),
    ("/load/flood", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
];

#[test]
fn r10_one_of_four_speaks_broken_http() {
    let scale = Scale::wanted();
    let (rate, time) = (scale.of(20, 50), Duration::from_secs(scale.of(3, 60)));
    let (nginx, bad, log) = (members(3), liar(), LogFile::new());
    let mut all = quoted(&nginx);
    all.push(bad.to_string());
    let mut proxy = Proxy::start(&format!("{}{}", log.key(), config_of(&all, PROBE)));
    proxy.await_all_healthy();
    let wish = |path| Wish { clients: 2, rate, connections: Connections::Kept, method: "GET", path };
    let start = |path| (path, Paced::start(proxy.address(), wish(path)));
    let loads: Vec<(&str, Paced)> = LIES.iter().map(|(path, _)| start(*path)).collect();
    // Its probes are answered well, so that traffic goes on to meet the lies.
    pause(time);
    loads.iter().for_each(|(_, load)| load.fence());
    let lies = bad.traffic_count();
    let mark = proxy.mark();
    let began = now();
    bad.when(When::probe(), told(LIES[0].1));
    proxy.await_event(mark, &[("kind", "member"), ("member", &bad.address()), ("standing", "ejected")]);
    let ejected = began.elapsed();
    loads.iter().for_each(|(_, load)| load.fence());
    let reached = bad.traffic_count();
    loads.iter().for_each(|(_, load)| load.await_each(5));
    let late = bad.traffic_count() - reached;
    let loads: Vec<(&str, Tally)> = loads.into_iter().map(|(path, load)| (path, load.finish())).collect();
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let mut figures = Figures::new("R10: one of four speaks broken HTTP", scale);
    let sum = |count: fn(&Tally) -> usize| loads.iter().map(|(_, tally)| count(tally)).sum::<usize>();
    figures.told("load", format!("{rate} GET/s for each of {} lies", LIES.len()));
    figures.must("lies that reached the proxy", lies, "> 0", lies > 0);
    for (path, tally) in &loads {
        figures.told(path, format!("{} of {} failed: {}", tally.failed(), tally.total(), tally.reasons()));
    }
    figures.none("answers of 200 with another body", sum(|tally| tally.strange));
    let panics = proxy.log().iter().filter(|line| line.text("target") == "panic").count();
    figures.none("panics", panics);
    figures.same("client, log", sum(Tally::total), Logged::read(&log.files(), "/load/").lines);
    figures.none("requests to it once it was ejected", late);
    figures.judged("probes fail → ejected", ms(ejected), "5 s", ejected <= Duration::from_secs(5));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}

/// The one that lies to all but the prober.
fn liar() -> Origin {
    let origin = Origin::start();
    for (path, lie) in LIES {
        origin.when(When::path(path), told(lie));
    }
    origin
}

/// The lie, and what belongs to it behind it.
fn told(lie: &str) -> Answer {
    let bytes = |text: &str| Step::Bytes(text.as_bytes().to_vec());
    Answer::raw(match lie {
        // Five thousand interim answers and no other.
        flood if flood.contains(" 103 ") => vec![bytes(&flood.repeat(5_000)), Step::Close],
        // More than it said, at once and a little later: the connection stays open for whoever takes it again.
        more if more.ends_with("\r\n\r\nok\n") => {
            vec![bytes(&format!("{more}{STRAY}")), Step::Pause(Duration::from_millis(1)), bytes(STRAY)]
        }
        lie => vec![bytes(lie), Step::Close],
    })
}
