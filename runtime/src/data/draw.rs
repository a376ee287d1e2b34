//! Which items of a data set are held out, and in which order the others come.
//!
//! Files may be sorted, so both are drawn: what is held out once for all, an order for each epoch. An item is known by its number in the data.

use odec_program::rng::Stream;

/// Numbers below n, drawn into a training and a held-out part: each has a number of the stream that is drawn by its own, and those with the
/// largest ones are held out, `percent` per cent (rounded down). So items that are added later move few others.
pub(crate) fn divided(stream: &str, n: u32, percent: u32) -> (Vec<u32>, Vec<u32>) {
    let stream = Stream::new(0, stream);
    let mut order: Vec<u32> = (0..n).collect();
    order.sort_by_cached_key(|n| (stream.below(u64::from(*n), u64::MAX), *n));
    let cut = u64::from(n) - u64::from(n) * u64::from(percent) / 100;
    let mut held_out = order.split_off(cut as usize);
    order.sort_unstable();
    held_out.sort_unstable();
    (order, held_out)
}

/// The item at a place of so many that are spread evenly over all.
pub(crate) fn spread(place: usize, taken: usize, all: usize) -> usize {
    (place as u128 * all as u128 / taken as u128) as usize
}

/// Which of `0..n` is at a place of an epoch's order: a Feistel network over the numbers of twice `half` bits, walked until it gives one
/// below n (Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Each comes once.
pub(crate) fn permuted(stream: &Stream, epoch: u64, place: u64, n: u64) -> u64 {
    const ROUNDS: u64 = 6;
    let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut x = place;
    loop {
        for round in 0..ROUNDS {
            let (left, right) = (x >> half, x & mask);
            let number = (epoch * ROUNDS + round).wrapping_shl(half) | right;
            x = right << half | (left ^ (u64::from(stream.block(number)[0]) & mask));
        }
        if x < n {
            return x;
        }
    }
}

/// What is drawn at a number of all draws, where n of them are an epoch that draws each once.
pub(crate) fn drawn(stream: &Stream, number: u128, n: u64) -> u64 {
    let epoch = (number / u128::from(n)) as u64;
    let place = (number % u128::from(n)) as u64;
    permuted(stream, epoch, place, n)
}
