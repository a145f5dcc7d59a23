//! Counts that mostly stay at nothing, for which there is no memory until the first: ten thousand members have a dozen
//! ways to fail each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `N` counts.
#[derive(Debug)]
pub struct Rare<const N: usize>(OnceLock<Box<[AtomicU64; N]>>);

impl<const N: usize> Default for Rare<N> {
    fn default() -> Self {
        Rare(OnceLock::new())
    }
}

impl<const N: usize> Rare<N> {
    /// One more at `place`, which is under `N`.
    pub fn count(&self, place: usize) {
        let places = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; N]));
        if let Some(place) = places.get(place) {
            place.fetch_add(1, Relaxed);
        }
    }

    /// The count at `place`.
    pub fn read(&self, place: usize) -> u64 {
        self.0.get().and_then(|places| places.get(place)).map_or(0, |count| count.load(Relaxed))
    }
}
