//! Values that are solved for, and how trials share a machine.

use odec_explore::matching::{off, size, steps};
use odec_explore::share::{Share, share};

#[test]
fn steps_are_the_nearest_whole_number() {
    assert_eq!(steps(1000, 100), 10);
    assert_eq!(steps(1049, 100), 10);
    assert_eq!(steps(1050, 100), 11);
    assert_eq!(steps(3, 100), 1, "one step at least");
    assert_eq!(steps(u128::MAX / 2, 1), u64::MAX);
}

#[test]
fn differences_are_shares_of_the_aim() {
    assert_eq!(off(101, 100), 1.01 - 1.0);
    assert_eq!(off(0, 0), 0.0);
    assert_eq!(off(1, 0), f64::INFINITY);
}

/// Against looking at every size.
#[test]
fn the_nearest_size_is_found_wherever_the_search_begins() {
    // Multiples of 8 alone, as of a width of eight heads.
    let cost = |n: u64| n.is_multiple_of(8).then(|| 3 * u128::from(n * n) + 100);
    for aim in [50u128, 292, 1000, 20_000, 777_777, 5_000_000] {
        let all = (1..4096).filter_map(|n| Some((n, cost(n)?)));
        let best = all.min_by_key(|(_, c)| c.abs_diff(aim)).unwrap();
        for start in [8, 9, 64, 1000, 2048] {
            let found = size(start, aim, &mut |n| Ok(cost(n))).unwrap();
            assert_eq!(found, Some(best), "aim {aim} from {start}");
        }
    }
    assert_eq!(size(8, 10, &mut |_| Ok(None)).unwrap(), None);
}

#[test]
fn trials_share_cores_and_memory() {
    let of = |jobs, threads| Share { jobs, threads };
    assert_eq!(share(8, 100, 1000, None), of(8, 1));
    assert_eq!(
        share(8, 3, 1000, None),
        of(3, 2),
        "few trials have more threads"
    );
    assert_eq!(share(8, 100, 2, None), of(2, 4), "memory for two");
    assert_eq!(share(8, 100, 1000, Some(4)), of(4, 2));
    assert_eq!(share(2, 100, 0, None), of(1, 2), "one at least");
    assert_eq!(share(2, 100, 1000, Some(16)), of(16, 1), "as was asked for");
}
