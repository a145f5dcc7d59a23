//! Effective weights as whole numbers.
//!
//! A member's weight is `weight / split` (a name's weight divided among its addresses, health.md §7). The rest of the
//! balance wants whole numbers in the same proportion: they can be added without error, and a schedule has as many
//! slots as they sum up to.

use super::Candidate;

/// Sums stay below this, so that one more unit for each member can never overflow.
const ROOM: u64 = 1 << 62;

/// One number a candidate, at least 1 each, in the proportion of `weight / split`, with no common divisor.
///
/// Exact, unless numbers beyond 2^62 would be needed (splits like 97, 101, 103 … all at once); then true to one part
/// in 2^50.
pub(super) fn units(candidates: &[Candidate]) -> Vec<u64> {
    exact(candidates).unwrap_or_else(|| rounded(candidates))
}

/// Divides all by their greatest common divisor.
pub(super) fn reduce(units: &mut [u64]) {
    let divisor = units.iter().fold(0, |divisor, &unit| if divisor == 1 { 1 } else { gcd(divisor, unit) });
    if divisor > 1 {
        units.iter_mut().for_each(|unit| *unit /= divisor);
    }
}

fn exact(candidates: &[Candidate]) -> Option<Vec<u64>> {
    let mut multiple = 1u64;
    for candidate in candidates {
        let split = u64::from(candidate.split);
        if !multiple.is_multiple_of(split) {
            multiple = multiple.checked_mul(split / gcd(multiple, split))?;
        }
    }
    let unit = |candidate: &Candidate| u64::from(candidate.weight).checked_mul(multiple / u64::from(candidate.split));
    let mut units = candidates.iter().map(unit).collect::<Option<Vec<u64>>>()?;
    reduce(&mut units);
    let sum = units.iter().try_fold(0u64, |sum, &unit| sum.checked_add(unit))?;
    (sum <= ROOM).then_some(units)
}

fn rounded(candidates: &[Candidate]) -> Vec<u64> {
    let weight = |candidate: &Candidate| f64::from(candidate.weight) / f64::from(candidate.split);
    let scale = ROOM as f64 / candidates.iter().map(weight).sum::<f64>();
    candidates.iter().map(|candidate| ((weight(candidate) * scale) as u64).max(1)).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[(u32, u32)]) -> Vec<u64> {
        let candidate = |(index, &(weight, split))| Candidate { index, weight, split, kept: false, latency: None };
        units(&weights.iter().enumerate().map(candidate).collect::<Vec<_>>())
    }

    #[test]
    fn units_are_the_smallest_whole_numbers_in_proportion() {
        for (weights, expected) in [
            (&[(5, 1), (1, 1), (1, 1)][..], &[5, 1, 1][..]),
            (&[(200, 1), (100, 1)], &[2, 1]),
            (&[(1, 1), (1, 2), (1, 2)], &[2, 1, 1]),
            (&[(1, 3), (1, 3), (1, 3), (1, 2), (1, 2)], &[2, 2, 2, 3, 3]),
            (&[(7, 1)], &[1]),
            (&[], &[]),
        ] {
            assert_eq!(of(weights), expected, "{weights:?}");
        }
    }

    #[test]
    fn what_would_overflow_keeps_its_proportion() {
        let primes = [4_294_967_291, 4_294_967_279, 4_294_967_231, 4_294_967_197];
        let units = of(&primes.map(|prime| (1_000, prime)));
        for pair in units.windows(2) {
            assert!((pair[0] as f64 / pair[1] as f64 - 1.0).abs() < 1e-6, "{units:?}");
        }
        let extremes = of(&[(u32::MAX, 1), (1, u32::MAX), (1, 4_294_967_279), (1, 4_294_967_291)]);
        assert!(extremes.iter().all(|&unit| unit >= 1), "{extremes:?}");
        assert!(extremes.iter().map(|&unit| u128::from(unit)).sum::<u128>() < 1 << 63, "{extremes:?}");
    }
}
