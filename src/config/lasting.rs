//! A digest that is the same in every process and every build: of what is written down for the next one.
//!
//! `DefaultHasher` promises that for no longer than a process. This is FNV-1a in 128 bits, folded. What a derived `Hash` feeds
//! it is the compiler's to say; should another one feed something else, a digest is another one, and what hangs on it is
//! taken for changed.

use std::hash::Hasher;

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A hasher whose digests last.
#[derive(Debug, Clone)]
pub struct Lasting(u128);

impl Default for Lasting {
    fn default() -> Lasting {
        Lasting(OFFSET)
    }
}

impl Hasher for Lasting {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    // As wide, and in the same order, on every machine.
    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::*;

    #[test]
    fn a_digest_is_what_it_was_in_every_build() {
        let of = |what: &dyn Fn(&mut Lasting)| {
            let mut hasher = Lasting::default();
            what(&mut hasher);
            hasher.finish()
        };
        // The test vectors of FNV-1a with 128 bits, folded.
        assert_eq!(of(&|_| ()), 0x6c62_272e_07bb_0142 ^ 0x62b8_2175_6295_c58d);
        assert_eq!(of(&|hasher| hasher.write(b"a")), 0xd228_cb69_6f1a_8caf ^ 0x7891_2b70_4e4a_8964);
        let words = of(&|hasher| ("GET", Some(8080_u16), [true, false]).hash(hasher));
        assert_eq!(words, WORDS, "{words:#018x}");
    }

    const WORDS: u64 = 0x9bab_36a0_a36e_1f30;
}
