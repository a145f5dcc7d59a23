//! One pool on the stage: the real one, the origins behind its members, and the posts that probe them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::agenda::{Agenda, Item};
use super::origin::{Origin, sample};
use super::totals::Totals;
use super::{BINS, Bin, MemberRun, PoolRun, Track, Truth};
use crate::config::scenario::{Latency, Manner, Scenario, address_of};
use crate::config::{self, Probe};
use crate::health::{Admin, MemberId, Mode, Pace, Sample, Standing};
use crate::pool::{Pool, Roster};
use crate::probe::Haste;
use crate::probe::schedule::{Ask, Last, Tempo, Timetable};
use crate::snapshot::{Located, Served, Source};

/// One pool.
pub(super) struct Stand {
    place: usize,
    pub(super) served: Arc<Served>,
    seats: Vec<Seat>,
    /// Member's name to its place.
    names: HashMap<String, usize>,
    /// Member's id to its place: ids count up from 0.
    places: Vec<usize>,
    roster: Arc<Roster>,
    modes: Track<Mode>,
    pub(super) totals: Totals,
    pub(super) bins: Vec<Bin>,
    /// It was found to be idle, and is probed less for it.
    dozes: bool,
    deadline: Option<Duration>,
}

/// One member, there or not.
struct Seat {
    label: String,
    origin: Origin,
    /// Who it is in the pool now, with the fingerprint of its probe.
    who: Option<(MemberId, u64)>,
    attendance: Attendance,
    post: Post,
    flaps: u32,
    standings: Track<Option<Standing>>,
    ills: Track<Truth>,
}

/// Whether a member is one now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attendance {
    Present,
    Absent,
}

/// Who probes a member.
struct Post {
    timetable: Timetable,
    round: u32,
    flight: Option<Flight>,
    last: Option<Last>,
    due: Duration,
    doubts: bool,
    /// When traffic last had a probe hastened.
    hastened: Option<Duration>,
    /// Whether the member is probed at all.
    is_kept_up: bool,
    /// Another is wanted as soon as that under way is over.
    is_wanted: bool,
}

/// A probe under way.
struct Flight {
    id: MemberId,
    fingerprint: u64,
    planned: Duration,
    started: Duration,
    sample: Sample,
}

/// Who is a member of `pool` when those attend for whom `attends` says so.
pub(super) fn located(place: usize, pool: &config::Pool, attends: impl Fn(usize) -> Attendance) -> Vec<Located> {
    let present = pool.members.iter().enumerate().filter(|(index, _)| attends(*index) == Attendance::Present);
    let at = |(index, member): (usize, &config::Member)| {
        Located::all(member, &[address_of(place, index, &member.host)], &Source::Written(index), None)
    };
    present.flat_map(at).collect()
}

impl Stand {
    /// The pool `served`, which is the one at `place` of the scenario, with those who attend from the beginning. `timetable`
    /// gives the next post its own.
    pub(super) fn new(
        place: usize,
        served: Arc<Served>,
        scenario: &Scenario,
        attends: impl Fn(usize) -> Attendance,
        mut timetable: impl FnMut() -> Timetable,
    ) -> Stand {
        let roster = served.live.roster();
        let seat = |(index, member): (usize, &config::Member)| {
            let address = std::net::SocketAddr::new(address_of(place, index, &member.host), member.port);
            let seed = super::origin::mixed(scenario.seed ^ ((place as u64) << 32 | index as u64));
            Seat {
                label: address.to_string(),
                origin: Origin::new(scenario.latency, seed),
                who: None,
                attendance: attends(index),
                post: Post {
                    timetable: timetable(),
                    round: 0,
                    flight: None,
                    last: None,
                    due: Duration::ZERO,
                    doubts: false,
                    hastened: None,
                    is_kept_up: false,
                    is_wanted: false,
                },
                flaps: 0,
                standings: Track::new(None),
                ills: Track::new(Truth::Well),
            }
        };
        let names = served.config.members.iter().enumerate();
        let names = names.map(|(place, member)| (member.name.clone(), place)).collect();
        let seats = served.config.members.iter().enumerate().map(seat).collect();
        let mut stand = Stand {
            place,
            seats,
            names,
            places: Vec::new(),
            modes: Track::new(roster.mode()),
            roster,
            totals: Totals::default(),
            bins: vec![Bin::default(); BINS],
            dozes: false,
            deadline: None,
            served,
        };
        stand.recognise();
        stand.write_down(Duration::ZERO);
        stand
    }

    pub(super) fn live(&self) -> &Pool {
        &self.served.live
    }

    pub(super) fn config(&self) -> &config::Pool {
        &self.served.config
    }

    /// Has everyone probed who is there.
    pub(super) fn begin(&mut self, now: Duration, agenda: &mut Agenda) {
        for member in 0..self.seats.len() {
            self.look(now, member);
            self.begin_probing(now, member, agenda);
        }
    }

    /// What is behind the member with this id.
    pub(super) fn origin(&self, id: MemberId) -> &Origin {
        &self.seats[self.places[id.0 as usize]].origin
    }

    /// From now on the member takes so long.
    pub(super) fn takes(&mut self, now: Duration, member: usize, latency: Latency) {
        self.seats[member].origin.takes(latency);
        self.look(now, member);
    }

    /// From now on the member answers so.
    pub(super) fn behaves(&mut self, now: Duration, member: usize, manner: Manner, agenda: &mut Agenda) {
        let seat = &mut self.seats[member];
        seat.origin.behaves(now, manner);
        seat.flaps += 1;
        let round = seat.flaps;
        self.flap(now, member, round, agenda);
    }

    /// The member turns from well to ill or back, by itself or by the story.
    pub(super) fn flap(&mut self, now: Duration, member: usize, round: u32, agenda: &mut Agenda) {
        if self.seats[member].flaps != round {
            return;
        }
        self.look(now, member);
        if let Some(at) = self.seats[member].origin.turns_at(now) {
            agenda.note(at, Item::Flap { pool: self.place, member, round });
        }
    }

    /// Writes down whether the member is ill.
    fn look(&mut self, now: Duration, member: usize) {
        let seat = &mut self.seats[member];
        seat.ills.turn(now, seat.origin.truth(now, self.served.config.probe.as_deref()));
    }

    /// The member joins the pool, or leaves it.
    pub(super) fn attend(&mut self, now: Duration, member: usize, attendance: Attendance, agenda: &mut Agenda) {
        if self.seats[member].attendance == attendance {
            return;
        }
        self.seats[member].attendance = attendance;
        let located = located(self.place, &self.served.config, |index| self.seats[index].attendance);
        self.served.readdress(now, &located);
        self.recognise();
        self.begin_probing(now, member, agenda);
    }

    /// An operator's word on the member; one who is not there hears nothing.
    pub(super) fn order(&mut self, now: Duration, member: usize, admin: Admin, agenda: &mut Agenda) {
        let Some((id, _)) = self.seats[member].who else { return };
        let before = self.live().read(|health, _| health.member(id).map(|member| member.admin()));
        self.live().administer(now, id, admin);
        if (before == Some(Admin::Disabled)) != (admin == Admin::Disabled) {
            self.begin_probing(now, member, agenda);
        }
    }

    /// A request came: if the pool dozes and is in use by now, it wakes.
    pub(super) fn wake(&mut self, now: Duration, agenda: &mut Agenda) {
        let idle = self.config().probe.as_ref().and_then(|probe| probe.idle).filter(|_| self.dozes);
        if idle.is_none_or(|idle| self.live().usage().is_idle(now, idle.after)) {
            return;
        }
        self.dozes = false;
        for member in 0..self.seats.len() {
            let post = &self.seats[member].post;
            let (Some(last), None, due) = (post.last, &post.flight, post.due) else { continue };
            let Some(tempo) = self.tempo(now, member) else { continue };
            let due = self.seats[member].post.timetable.again(tempo, last, 1.0, now, due);
            self.plan(due, member, agenda);
        }
    }

    /// The member's probe begins.
    pub(super) fn probe(&mut self, now: Duration, member: usize, round: u32, agenda: &mut Agenda) {
        let Some(probe) = self.served.config.probe.clone() else { return };
        let seat = &mut self.seats[member];
        let (Some((id, fingerprint)), true) = (seat.who, seat.post.round == round) else { return };
        let (reply, took) = seat.origin.reply(now);
        let sample = sample(&probe, reply, took);
        agenda.note(now + sample.phases.total, Item::Sample { pool: self.place, member, round });
        let planned = seat.post.due.min(now);
        seat.post.flight = Some(Flight { id, fingerprint, planned, started: now, sample });
        self.totals.probes += 1;
    }

    /// It is over.
    pub(super) fn sample(&mut self, now: Duration, member: usize, round: u32, agenda: &mut Agenda) {
        let post = &mut self.seats[member].post;
        if post.round != round {
            return;
        }
        let Some(Flight { id, fingerprint, planned, started, sample }) = post.flight.take() else { return };
        let last = Last { planned, started, ended: now };
        post.last = Some(last);
        let Some(heard) = self.served.live.report(now, id, fingerprint, sample) else { return };
        self.seats[member].post.doubts = heard.pace == Pace::Fast;
        let Some(tempo) = self.tempo(now, member) else { return };
        let post = &mut self.seats[member].post;
        let due = post.timetable.next(tempo, last, 1.0, fastrand::f64());
        let due = if std::mem::take(&mut post.is_wanted) { now } else { due };
        self.plan(due, member, agenda);
    }

    /// Traffic has met the member with this id failing: whoever is in doubt by now is probed at once, as far as that may be.
    pub(super) fn look_into(&mut self, now: Duration, id: MemberId, agenda: &mut Agenda) {
        let Some(interval) = self.config().probe.as_ref().map(|probe| probe.interval) else { return };
        let haste = |post: &Post| Haste::after(post.hastened, interval, now);
        // The pool is not asked with each failure of one whose probe was hastened already.
        let post = &self.seats[self.places[id.0 as usize]].post;
        if matches!(haste(post), Haste::TooSoon { .. }) {
            return;
        }
        for doubted in self.served.live.take_doubted() {
            let member = self.places[doubted.id().0 as usize];
            let post = &mut self.seats[member].post;
            match haste(post) {
                _ if !post.is_kept_up => {}
                Haste::TooSoon { before } => doubted.rest_until(before),
                Haste::Made { next } => {
                    post.hastened = Some(now);
                    doubted.rest_until(next);
                    match post.flight {
                        Some(_) => post.is_wanted = true,
                        None => self.plan(now, member, agenda),
                    }
                }
            }
        }
    }

    /// Writes down how everyone stands. True where that is another than before.
    pub(super) fn write_down(&mut self, now: Duration) -> bool {
        let roster = self.served.live.roster();
        let mut turned = self.modes.turn(now, roster.mode());
        let mut standings = vec![None; self.seats.len()];
        for (index, member) in roster.members().iter().enumerate() {
            standings[self.places[member.id().0 as usize]] = Some(roster.standing(index));
        }
        for (seat, standing) in self.seats.iter_mut().zip(standings) {
            turned |= seat.standings.turn(now, standing);
        }
        self.roster = roster;
        turned
    }

    /// Whether there is another roster than was written down.
    pub(super) fn is_other(&self) -> bool {
        !Arc::ptr_eq(&self.served.live.roster(), &self.roster)
    }

    /// Notes when time alone will change something next.
    pub(super) fn note_deadline(&mut self, agenda: &mut Agenda) {
        let deadline = self.live().next_deadline();
        if let Some(at) = deadline.filter(|_| deadline != self.deadline) {
            agenda.note(at, Item::Deadline { pool: self.place });
        }
        self.deadline = deadline;
    }

    /// What came of it.
    pub(super) fn run(self, end: Duration) -> PoolRun {
        let member = |seat: Seat| MemberRun { label: seat.label, standings: seat.standings, ills: seat.ills };
        let members: Vec<MemberRun> = self.seats.into_iter().map(member).collect();
        let mut totals = self.totals;
        totals.complete(end, &self.modes, &members);
        PoolRun { name: self.served.config.name.clone(), modes: self.modes, members, totals, bins: self.bins }
    }

    /// Who of the pool's members is who.
    fn recognise(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.who = None);
        let present = self.served.live.read(|health, _| {
            let who = health.members().iter().map(|m| (m.spec().key.name.clone(), m.id(), m.spec().fingerprint));
            who.collect::<Vec<_>>()
        });
        for (name, id, fingerprint) in present {
            let Some(place) = self.names.get(&name).copied() else { continue };
            self.seats[place].who = Some((id, fingerprint));
            let id = id.0 as usize;
            if self.places.len() <= id {
                self.places.resize(id + 1, usize::MAX);
            }
            self.places[id] = place;
        }
    }

    /// The member is probed from now on, or not any more.
    fn begin_probing(&mut self, now: Duration, member: usize, agenda: &mut Agenda) {
        let seat = &mut self.seats[member];
        let admin = |id: MemberId| self.served.live.read(|health, _| health.member(id).map(|member| member.admin()));
        let is_probed = seat.who.and_then(|(id, _)| admin(id)).is_some_and(|admin| admin != Admin::Disabled);
        let post = &mut seat.post;
        (post.flight, post.last, post.doubts) = (None, None, false);
        (post.hastened, post.is_kept_up, post.is_wanted) = (None, is_probed, false);
        match is_probed {
            true => self.plan(now, member, agenda),
            false => post.round += 1,
        }
    }

    fn plan(&mut self, due: Duration, member: usize, agenda: &mut Agenda) {
        let post = &mut self.seats[member].post;
        post.round += 1;
        post.due = due;
        agenda.note(due, Item::Probe { pool: self.place, member, round: post.round });
    }

    /// What is asked of the member's post.
    fn tempo(&mut self, now: Duration, member: usize) -> Option<Tempo> {
        let probe: &Probe = self.served.config.probe.as_deref()?;
        let is_idle = |idle: &config::Idle| self.served.live.usage().is_idle(now, idle.after);
        let idle = probe.idle.filter(is_idle).map(|idle| idle.interval);
        let doubts = self.seats[member].post.doubts;
        let ask = Ask { interval: probe.interval, fast: probe.fast_interval, idle, doubts };
        let tempo = Tempo::of(std::iter::once(ask))?;
        self.dozes |= tempo.idle;
        Some(tempo)
    }
}
