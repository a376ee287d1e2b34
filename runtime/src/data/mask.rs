//! Masks tokens for masked-language training.
//!
//! Takes a batch of windows; hides some of its tokens behind another and makes all original ones the targets. Which ones is
//! drawn from a stream by the number of the window and the place in it, so that any step can be drawn again. Leaves the
//! loss over hidden tokens to the program.

use crate::data::dataset::{Batch, Numbers};
use odec_program::manifest::{Loss, Masked};
use odec_program::names::{TARGETS, TOKENS};
use odec_program::rng::Stream;

/// The stream of training steps, by window: row r of step s is window `s · 2¹⁶ + r`.
pub fn training(seed: u64) -> Stream {
    Stream::new(seed, "mask")
}

/// The stream of all evaluations, by window: they hide the same tokens whatever the run's seed.
pub fn held_out() -> Stream {
    Stream::new(0, "held-out mask")
}

/// Prepares a batch for a loss; `first` is the number of its first window.
pub fn prepare(batch: &mut Batch, loss: Loss, stream: &Stream, first: u64) {
    let Some(Masked { rate, token, kept }) = loss.masks() else {
        return;
    };
    let all = batch.whole(TOKENS).to_vec();
    let mut tokens = all.clone();
    let mut hidden = 0;
    for (r, row) in tokens.chunks_mut(batch.columns as usize).enumerate() {
        let draws = first.wrapping_add(r as u64).wrapping_shl(24);
        let at = |p: usize| draws.wrapping_add(p as u64);
        let is_kept = |p: usize| kept.is_some_and(|kept| row[p] == kept as i32);
        let mut places: Vec<usize> = (0..row.len())
            .filter(|p| stream.uniform(at(*p)) < rate && !is_kept(*p))
            .collect();
        // A window without a question has no loss.
        if places.is_empty() {
            let mut others: Vec<usize> = (0..row.len()).filter(|p| !is_kept(*p)).collect();
            if others.is_empty() {
                others.extend(0..row.len());
            }
            let drawn = stream.below(at(row.len()), others.len() as u64) as usize;
            places.push(others[drawn]);
        }
        hidden += places.len() as u64;
        places.iter().for_each(|p| row[*p] = token as i32);
    }
    for (name, numbers) in [(TOKENS, tokens), (TARGETS, all)] {
        let mut inputs = batch.inputs.iter_mut();
        if let Some((_, of)) = inputs.find(|(n, _)| n == name) {
            *of = Numbers::I32(numbers);
        }
    }
    batch.predicted = hidden;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let targets = (1..4001).map(|i| i % 256).collect();
        Batch::of_tokens(40, 100, (0..4000).map(|i| i % 256).collect(), targets)
    }

    const LOSS: Loss = Loss::Masked(Masked {
        rate: 0.15,
        token: 256,
        kept: None,
    });

    #[test]
    fn hidden_tokens_are_the_targets_and_the_others_stay() {
        let (mut b, before) = (batch(), batch());
        prepare(&mut b, LOSS, &training(3), 7);
        let hidden = b.predicted;
        assert_eq!(b.whole(TARGETS), before.whole(TOKENS));
        let pairs = b.whole(TOKENS).iter().zip(before.whole(TOKENS));
        assert!(pairs.clone().all(|(t, was)| t == was || *t == 256));
        assert_eq!(pairs.filter(|(t, was)| t != was).count() as u64, hidden);
        // 600 are expected, with a deviation of 23.
        assert!((500..700).contains(&hidden), "{hidden}");
    }

    #[test]
    fn windows_can_be_drawn_again_and_differ() {
        let draw = |seed, first| {
            let mut b = batch();
            prepare(&mut b, LOSS, &training(seed), first);
            b.whole(TOKENS).to_vec()
        };
        assert_eq!(draw(3, 7), draw(3, 7));
        assert_ne!(draw(3, 7), draw(4, 7));
        assert_ne!(draw(3, 7), draw(3, 8));
    }

    #[test]
    fn every_window_hides_a_token() {
        let mut b = batch();
        let rare = Loss::Masked(Masked {
            rate: 1e-9,
            token: 256,
            kept: None,
        });
        prepare(&mut b, rare, &held_out(), 0);
        assert_eq!(b.predicted, 40);
        for row in b.whole(TOKENS).chunks(100) {
            assert_eq!(row.iter().filter(|t| **t == 256).count(), 1);
        }
    }

    #[test]
    fn separators_are_not_hidden() {
        let kept = |rate| {
            Loss::Masked(Masked {
                rate,
                token: 256,
                kept: Some(10),
            })
        };
        let (mut b, before) = (batch(), batch());
        prepare(&mut b, kept(0.9), &training(3), 7);
        let separators = |b: &Batch| {
            let tokens = b.whole(TOKENS).iter().enumerate();
            tokens
                .filter(|(_, t)| **t == 10)
                .map(|(i, _)| i)
                .collect::<Vec<_>>()
        };
        assert_eq!(separators(&b), separators(&before));
        assert_eq!(separators(&b).len(), 16);
        // The one question of a window is no separator, unless there is nothing else.
        let tokens = || {
            (0..400)
                .map(|i| if i % 100 == 3 { 7 } else { 10 })
                .collect()
        };
        let mut b = Batch::of_tokens(4, 100, tokens(), tokens());
        prepare(&mut b, kept(1e-9), &held_out(), 0);
        assert!(b.whole(TOKENS).iter().all(|t| [10, 256].contains(t)));
        let mut b = Batch::of_tokens(1, 9, vec![10; 9], vec![10; 9]);
        prepare(&mut b, kept(0.5), &held_out(), 0);
        assert_eq!(b.predicted, 1);
    }

    #[test]
    fn the_next_token_needs_no_mask() {
        let mut b = batch();
        prepare(&mut b, Loss::Next, &training(0), 0);
        assert_eq!(b.predicted, 4000);
        assert_eq!(b, batch());
    }
}
