//! Open connections to members that have a limit: counted from before the dial until after the close, so that the member
//! never sees one too many, and idle ones given up where another needs their place.
//!
//! Each thread that serves keeps idle connections of its own, which no other can use. A thread that must dial while a
//! member is at its limit closes one that is idle, whoever has it. Whether one is idle is told by an atomic: it is taken up
//! before a request is sent and laid down when the request is over, and one that was given up is not taken up again.
//!
//! Not here: sockets. How a connection is hung up is a function that whoever dialled it gives.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::futures::Notified;

use super::Member;

/// One open connection.
pub struct Link {
    member: Arc<Member>,
    /// What it is doing in the lowest bits, and above them how often it was taken up: whoever lays it down late must not
    /// lay down another's.
    state: AtomicU64,
    hang_up: HangUp,
}

/// Ends a connection.
pub type HangUp = Box<dyn Fn(Manner) + Send + Sync>;

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// We say that we are done and wait a little for the member to close: only then its place is free, so that the member
    /// sees one go before it sees another come. One that does not close is cut, whether or not anybody still waits for it.
    Politely,
    /// At once.
    AtOnce,
}

const IDLE: u64 = 0;
const BUSY: u64 = 1;
const GIVEN_UP: u64 = 2;
const CLOSED: u64 = 3;
const DOING: u64 = 3;
const ONE_USE: u64 = 4;

/// A place for a connection; dropping it gives it back. A connection has one for as long as it is open.
#[derive(Debug)]
pub struct Berth {
    member: Arc<Member>,
    link: Option<Arc<Link>>,
}

/// A connection in use by one request; dropping it lays it down.
#[derive(Debug)]
pub struct InUse {
    link: Arc<Link>,
    state: u64,
}

/// Why there is no place for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    /// The member has as many as it may.
    Member,
    /// The members of the pool have as many as they may together.
    Pool,
}

impl Member {
    /// Whether connections to it are counted: it has a limit, or its pool has.
    pub fn counts_connections(&self) -> bool {
        self.berths.connections.limit().is_some() || self.hall.connections.limit().is_some()
    }

    /// A place for one more connection.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn berth(self: &Arc<Member>) -> Result<Berth, Crowded> {
        if !self.takes_connection() {
            return Err(Crowded::Member);
        }
        if !self.hall.connections.take() {
            self.berths.connections.give_back();
            return Err(Crowded::Pool);
        }
        Ok(Berth { member: self.clone(), link: None })
    }

    /// Gives up an idle connection where it is `crowded`; `None` when none is idle.
    pub fn make_room(&self, crowded: Crowded) -> Option<Arc<Link>> {
        let links = self.hall.links();
        // Also one from before the member left and came back.
        let in_the_way = |link: &&Arc<Link>| crowded == Crowded::Pool || link.member.key() == self.key();
        links.iter().filter(in_the_way).find(|link| link.give_up()).cloned()
    }

    /// Resolves when where it was `crowded` a connection was closed, or is idle. To miss none, enable it before looking.
    pub fn freed(&self, crowded: Crowded) -> Notified<'_> {
        match crowded {
            Crowded::Member => self.berths.freed.notified(),
            Crowded::Pool => self.hall.freed.notified(),
        }
    }

    fn tell_freed(&self) {
        self.berths.freed.notify_one();
        self.hall.freed.notify_one();
    }
}

impl Berth {
    /// The connection stands, and `hang_up` ends it.
    pub fn dialled(&mut self, hang_up: HangUp) -> Arc<Link> {
        let link = Arc::new(Link { member: self.member.clone(), state: AtomicU64::new(BUSY), hang_up });
        self.member.hall.links().push(link.clone());
        self.link = Some(link.clone());
        link
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.state.store(CLOSED, SeqCst);
            let mut links = self.member.hall.links();
            if let Some(at) = links.iter().position(|other| Arc::ptr_eq(other, &link)) {
                links.swap_remove(at);
            }
            drop(links);
            // Whoever dialled keeps a handle of its own to hang up with: without this the connection would stay open.
            (link.hang_up)(Manner::AtOnce);
        }
        self.member.berths.connections.give_back();
        self.member.hall.connections.give_back();
        self.member.tell_freed();
    }
}

impl Link {
    /// Takes it up for a request; `None` when it was given up.
    pub fn take_up(self: &Arc<Link>) -> Option<InUse> {
        let taken_up = |state: u64| (state & DOING < GIVEN_UP).then_some((state & !DOING) + ONE_USE + BUSY);
        let before = self.state.fetch_update(SeqCst, SeqCst, taken_up).ok()?;
        Some(InUse { link: self.clone(), state: taken_up(before)? })
    }

    /// Whether it is still open, or closing.
    pub fn is_open(&self) -> bool {
        self.state.load(SeqCst) & DOING != CLOSED
    }

    /// Gives it up if it is idle.
    fn give_up(&self) -> bool {
        let given_up = |state: u64| (state & DOING == IDLE).then_some((state & !DOING) + GIVEN_UP);
        let was_idle = self.state.fetch_update(SeqCst, SeqCst, given_up).is_ok();
        if was_idle {
            (self.hang_up)(Manner::Politely);
        }
        was_idle
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let idle = (self.state & !DOING) + IDLE;
        if self.link.state.compare_exchange(self.state, idle, SeqCst, SeqCst).is_err() {
            // Closed, or another request's already.
            return;
        }
        let member = &self.link.member;
        let is_over = |seats: &super::seats::Seats| seats.limit().is_some_and(|limit| seats.taken() > limit);
        if is_over(&member.berths.connections) || is_over(&member.hall.connections) {
            // The limit was lowered meanwhile.
            self.link.give_up();
        }
        member.tell_freed();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(SeqCst);
        f.debug_struct("Link").field("member", self.member.label()).field("state", &state).finish()
    }
}
