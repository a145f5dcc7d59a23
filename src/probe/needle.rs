//! Looks for the expected text in a body that comes in pieces.
//!
//! PURE. The text may lie across pieces of any size, since they are joined before they are searched; it must lie within
//! the first `limit` bytes, so that a probe never keeps or reads more than that in vain (health.md §1).

/// The search for one text in one body.
#[derive(Debug)]
pub(super) struct Search<'a> {
    needle: &'a [u8],
    limit: usize,
    /// Bytes looked at, at most `limit`.
    seen: usize,
    /// What the text may still begin in: the last bytes seen, one fewer than the text has.
    tail: Vec<u8>,
    found: bool,
}

/// What is known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there.
    Yes,
    /// It may still come.
    NotYet,
    /// The body is longer than the limit, and within it the text is not.
    NotWithinLimit,
}

impl<'a> Search<'a> {
    /// A search within the first `limit` bytes; an empty text is found at once.
    pub(super) fn new(needle: &'a str, limit: usize) -> Search<'a> {
        let needle = needle.as_bytes();
        Search { needle, limit, seen: 0, tail: Vec::new(), found: needle.is_empty() }
    }

    /// The next piece of the body.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Found {
        if self.found {
            return Found::Yes;
        }
        let room = self.limit - self.seen;
        let within = &piece[..piece.len().min(room)];
        self.seen += within.len();
        self.tail.extend_from_slice(within);
        if contains(&self.tail, self.needle) {
            self.found = true;
            self.tail = Vec::new();
            return Found::Yes;
        }
        let useless = (self.tail.len() + 1).saturating_sub(self.needle.len());
        self.tail.drain(..useless);
        if piece.len() > room { Found::NotWithinLimit } else { Found::NotYet }
    }

    /// Bytes looked at.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Whether it was found.
    pub(super) fn found(&self) -> bool {
        self.found
    }
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100;

    /// Feeds `body` in pieces of `step` bytes.
    fn search(body: &[u8], step: usize) -> Found {
        let mut search = Search::new("ALIVE", LIMIT);
        let mut found = Found::NotYet;
        for piece in body.chunks(step) {
            found = search.feed(piece);
            if found == Found::NotWithinLimit {
                break;
            }
        }
        found
    }

    fn body(at: usize, length: usize) -> Vec<u8> {
        let mut body = vec![b'A'; length];
        body[at..at + 5].copy_from_slice(b"ALIVE");
        body
    }

    #[test]
    fn the_place_decides_and_the_pieces_do_not() {
        let rows = [
            (0, 5, Found::Yes),
            (0, 5000, Found::Yes),
            (LIMIT - 6, LIMIT, Found::Yes),
            (LIMIT - 5, LIMIT, Found::Yes),
            (LIMIT - 5, LIMIT + 1, Found::Yes),
            (LIMIT - 4, LIMIT + 1, Found::NotWithinLimit),
            (LIMIT, LIMIT + 5, Found::NotWithinLimit),
            (4000, 5000, Found::NotWithinLimit),
        ];
        for (at, length, expected) in rows {
            for step in [1, 2, 3, 5, 7, 64, LIMIT, 10_000] {
                assert_eq!(search(&body(at, length), step), expected, "at {at} of {length} in steps of {step}");
            }
        }
    }

    #[test]
    fn a_body_as_long_as_the_limit_is_not_too_long() {
        assert_eq!(search(&[b'A'; LIMIT], 7), Found::NotYet);
        assert_eq!(search(&[b'A'; LIMIT + 1], 7), Found::NotWithinLimit);
    }

    #[test]
    fn no_more_is_kept_than_the_text_could_begin_in() {
        let mut search = Search::new("ALIVE", 1 << 20);
        for _ in 0..1000 {
            search.feed(&[b'A'; 100]);
            assert!(search.tail.len() < 5);
        }
        assert_eq!(search.seen(), 100_000);
    }

    #[test]
    fn an_empty_text_is_in_every_body() {
        assert!(Search::new("", LIMIT).found());
    }
}
