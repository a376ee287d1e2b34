//! The tokens of a sequence with the largest scores, beside a sorted list.

use crate::harness::{Buffer, Compiled, assert_same, noise, targets};
use odec_program::KernelSpec;
use odec_program::kernel::{Share, TopTokens};
use odec_program::real::Real;

const BATCH: usize = 3;

/// 1 for the first of the open tokens of a text, sorted by score.
fn chosen(scores: &[f64], open: &[f64], share: Share) -> Vec<f64> {
    let mut tokens: Vec<usize> = (0..scores.len()).filter(|t| open[*t] > 0.0).collect();
    let score = |t: &usize| match scores[*t].is_nan() {
        true => f64::NEG_INFINITY,
        false => scores[*t],
    };
    tokens.sort_by(|a, b| score(b).partial_cmp(&score(a)).expect("numbers"));
    tokens.truncate(share.rounded_up(scores.len() as u64) as usize);
    let is_chosen = |t| f64::from(u8::from(tokens.contains(&t)));
    (0..scores.len()).map(is_chosen).collect()
}

#[test]
fn they_are_those_of_a_sorted_list_on_every_target() {
    are_those_of_a_sorted_list::<f32>();
    are_those_of_a_sorted_list::<f64>();
}

fn are_those_of_a_sorted_list<T: Real>() {
    let shares = [(1, 1), (2, 3), (1, 3), (1, 1000)].map(|(of, from)| Share { of, from });
    let dtype = T::DTYPE;
    let specs = shares.map(|share| KernelSpec::TopTokens(TopTokens { dtype, share }));
    for target in targets() {
        let compiled = Compiled::new(&specs, target);
        let cases = (0..shares.len()).flat_map(|n| [1usize, 5, 16, 37].map(|seq| (n, seq)));
        for (n, seq) in cases {
            let (share, tokens) = (shares[n], BATCH * seq);
            let mut next = noise(seq as u64);
            // Few distinct numbers, so that there are ties; and some that are none.
            let mut scores: Vec<f64> = (0..tokens).map(|_| (4.0 * next()).round()).collect();
            scores.iter_mut().step_by(5).for_each(|x| *x = f64::NAN);
            let low = scores.iter_mut().step_by(7);
            low.for_each(|x| *x = f64::NEG_INFINITY);
            let open: Vec<f64> = (0..tokens).map(|_| next()).collect();
            let texts = scores.chunks(seq).zip(open.chunks(seq));
            let wanted: Vec<f64> = texts.flat_map(|(s, o)| chosen(s, o, share)).collect();
            let buffer = |x: &[f64]| Buffer::<T>::from_fn(tokens, |i| x[i]);
            let dims = [BATCH as u64, seq as u64];
            let tiles = specs[n].tiles(&dims);
            let split = [tiles / 2..tiles, 0..tiles / 2];
            let given = [buffer(&scores), buffer(&open), Buffer::nan(tokens)];
            let got = compiled.run(n, &given, &[], &dims, &[], &split);
            let what = format!("{target}, {dtype:?} {share:?} of {seq}");
            assert_same(&got[2], &buffer(&wanted), &what);
        }
    }
}
