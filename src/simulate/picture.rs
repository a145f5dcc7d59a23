//! The same as a picture, in SVG: for each pool a band of its modes, a row for each member, and bars of what went wrong.
//!
//! A row is coloured by how the member stood; the line below it is dark while the member was ill by the story, whoever knew.
//! What is narrower than a point of the picture is shown as what held longest there. Not here: scripts, styles, fonts.

use std::fmt::Write;
use std::time::Duration;

use super::{BINS, Bin, PoolRun, Run, Track, Truth, in_days};
use crate::config::scenario::Scenario;
use crate::health::{Mode, Standing};
use crate::telemetry::is_deceptive;

const WIDTH: usize = 960;
/// Where time begins.
const LEFT: usize = 150;
/// Points of time.
const SPAN: usize = 790;
/// More rows than this are thin and have no names.
const MANY: usize = 24;
const BARS: usize = 36;

/// The picture of all policies of a scenario, one below the other.
pub fn picture(scenario: &Scenario, runs: &[Run]) -> String {
    let mut page = Page { body: String::new(), y: 0, end: scenario.duration };
    page.text(12, 24, 15, "#111", &scenario.title);
    page.y = 34;
    for run in runs {
        if runs.len() > 1 {
            page.y += 20;
            page.text(12, page.y, 13, "#111", &run.policy);
            page.y += 6;
        }
        run.pools.iter().for_each(|pool| page.pool(pool));
    }
    page.legend(runs);
    let Page { body, y, .. } = page;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" \
         font-family=\"sans-serif\">\n<rect width=\"{WIDTH}\" height=\"{y}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// What is drawn so far.
struct Page {
    body: String,
    /// What comes next is below this.
    y: usize,
    end: Duration,
}

impl Page {
    fn pool(&mut self, pool: &PoolRun) {
        self.y += 8;
        let top = self.y;
        self.text(12, self.y + 10, 11, "#111", &format!("pool {}", pool.name));
        self.row(&pool.modes, 12, |mode| Some(of_mode(mode)));
        self.y += 15;
        let (height, named) = if pool.members.len() > MANY { (4, false) } else { (15, true) };
        for member in &pool.members {
            if named {
                self.text(12, self.y + 10, 10, "#444", &member.label);
            }
            let ill = if named { 3 } else { 1 };
            self.row(&member.standings, height - ill - 1, |standing| standing.map(of_standing));
            self.y += height - ill - 1;
            self.row(&member.ills, ill, |truth| (truth == Truth::Ill).then_some(ILL));
            self.y += ill + 1;
        }
        self.y += 4;
        self.bars(&pool.bins);
        self.axis(top);
    }

    /// What held in each point of time, from the left to the right.
    fn row<T: Copy + PartialEq>(
        &mut self,
        track: &Track<T>,
        height: usize,
        colour: impl Fn(T) -> Option<&'static str>,
    ) {
        let points = points(track, self.end);
        let mut from = 0;
        for at in 1..=SPAN {
            if at < SPAN && points[at] == points[from] {
                continue;
            }
            if let Some(colour) = points[from].and_then(&colour) {
                self.rect(LEFT + from, at - from, height, colour);
            }
            from = at;
        }
    }

    /// Attempts on ill members, and before them requests that failed.
    fn bars(&mut self, bins: &[Bin]) {
        let most = bins.iter().map(|bin| bin.to_ill.max(bin.failed)).max().unwrap_or_default();
        if most == 0 {
            self.text(12, self.y + 8, 10, "#444", "nothing went wrong");
            self.y += 10;
            return;
        }
        let base = self.y + BARS;
        self.text(12, self.y + 10, 10, "#444", "went wrong");
        let scale = format!("{most} at most in {}", spelt(self.end / BINS as u32));
        self.text(12, self.y + 22, 9, "#777", &scale);
        self.skyline(base, most, bins.iter().map(|bin| bin.to_ill), TO_ILL);
        self.skyline(base, most, bins.iter().map(|bin| bin.failed), FAILED);
        self.y = base;
    }

    /// One bar beside the other on `base`, the highest possible for `most`.
    fn skyline(&mut self, base: usize, most: u32, counts: impl Iterator<Item = u32>, colour: &str) {
        let (mut path, mut height) = (String::new(), 0);
        for (index, count) in counts.enumerate() {
            let next = (u64::from(count) * BARS as u64).div_ceil(u64::from(most)) as usize;
            if next != height {
                let _ = write!(path, "H{}V{}", LEFT + index * SPAN / BINS, base - next);
                height = next;
            }
        }
        if !path.is_empty() {
            let right = LEFT + SPAN;
            let _ = writeln!(self.body, "<path d=\"M{LEFT} {base}{path}H{right}V{base}Z\" fill=\"{colour}\"/>");
        }
    }

    /// Times below what is drawn, with lines up to `top`.
    fn axis(&mut self, top: usize) {
        let step =
            STEPS.into_iter().map(Duration::from_secs).find(|step| self.end.as_secs_f64() / step.as_secs_f64() <= 8.0);
        let step = step.unwrap_or(self.end);
        let _ = writeln!(self.body, "<g stroke=\"#000\" stroke-opacity=\"0.12\">");
        let ticks: Vec<Duration> = (0..=8).map(|n| step * n).take_while(|at| *at <= self.end).collect();
        let whole = self.end.as_micros().max(1);
        let x = |at: Duration| LEFT + (at.as_micros() * SPAN as u128 / whole) as usize;
        for at in &ticks {
            let _ = writeln!(self.body, "<path d=\"M{0} {top}V{1}\"/>", x(*at), self.y + 3);
        }
        let _ = writeln!(self.body, "</g>");
        self.y += 13;
        for at in &ticks {
            let words = spelt(*at);
            self.text(x(*at).min(WIDTH - 6 * words.len()), self.y, 9, "#777", &words);
        }
        self.y += 4;
    }

    /// What the colours mean that are seen.
    fn legend(&mut self, runs: &[Run]) {
        let pools = || runs.iter().flat_map(|run| &run.pools);
        let stands =
            |standing| pools().flat_map(|pool| &pool.members).any(|m| m.standings.times(|s| s == Some(standing)) > 0);
        let serves = |mode| pools().any(|pool| pool.modes.times(|m| m == mode) > 0);
        let standings = Standing::ALL.into_iter().filter(|standing| stands(*standing));
        let modes = Mode::ALL.into_iter().rev().filter(|mode| serves(*mode));
        let members = standings.map(|standing| (of_standing(standing), standing.as_str()));
        let rest = [(ILL, "ill by the story"), (TO_ILL, "attempts on ill members"), (FAILED, "failed requests")];
        self.y += 10;
        self.key("members", members.chain(rest).collect());
        self.key("pools", modes.map(|mode| (of_mode(mode), mode.as_str())).collect());
        self.y += 6;
    }

    fn key(&mut self, what: &str, keys: Vec<(&str, &str)>) {
        self.text(12, self.y + 9, 10, "#444", what);
        let mut x = LEFT;
        for (colour, word) in keys {
            self.rect(x, 10, 10, colour);
            self.text(x + 14, self.y + 9, 10, "#444", word);
            x += 26 + word.len() * 6;
        }
        self.y += 16;
    }

    fn rect(&mut self, x: usize, width: usize, height: usize, colour: &str) {
        let y = self.y;
        let _ =
            writeln!(self.body, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>");
    }

    fn text(&mut self, x: usize, y: usize, size: usize, colour: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\">{text}</text>");
    }
}

const ILL: &str = "#333333";
const TO_ILL: &str = "#e9a23b";
const FAILED: &str = "#b3261e";

/// Between times on the axis, in seconds: the first of which there are not too many.
const STEPS: [u64; 17] =
    [1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 432_000];

fn of_standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Healthy => "#5aa469",
        Standing::Kept => "#f0c419",
        Standing::Ejected => "#d1495b",
        Standing::Unknown => "#c9c9c9",
        Standing::Fallback => "#8e6bbf",
        Standing::Standby => "#b9d7ea",
        Standing::Draining => "#a9825a",
        Standing::Disabled => "#6b6b6b",
    }
}

fn of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Normal => "#cfe8d5",
        Mode::Capped => "#f0c419",
        Mode::Failover => "#4a90c2",
        Mode::Fallback => "#8e6bbf",
        Mode::Waiting => "#c9c9c9",
        Mode::Down => "#b3261e",
    }
}

/// What held longest in each point of time.
fn points<T: Copy + PartialEq>(track: &Track<T>, end: Duration) -> Vec<Option<T>> {
    let total = end.as_micros().max(1);
    let edge = |point: usize| total * point as u128 / SPAN as u128;
    let mut points = vec![None; SPAN];
    // For how long what is noted holds, of those that held there.
    let mut longest = vec![0; SPAN];
    for (from, to, held) in track.spans(end) {
        let (from, to) = (from.as_micros(), to.as_micros());
        let (first, last) = (from * SPAN as u128 / total, to.saturating_sub(1) * SPAN as u128 / total);
        for point in first as usize..=(last as usize).min(SPAN - 1) {
            let time = to.min(edge(point + 1)).saturating_sub(from.max(edge(point)));
            let sum = if points[point] == Some(held) { longest[point] + time } else { time };
            if points[point].is_none() || sum > longest[point] {
                (points[point], longest[point]) = (Some(held), sum);
            }
        }
    }
    points
}

fn spelt(time: Duration) -> String {
    in_days(Duration::from_millis(time.as_millis() as u64))
}

/// As text of XML; what no XML may have is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if is_deceptive(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
