//! A curve in a line of text.

/// From low to high.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same where a terminal shows ASCII alone.
const ASCII: [char; 5] = ['_', '.', '-', '=', '#'];

/// Values as characters, the least as the lowest and the largest as the highest; what is not finite is a blank.
pub fn sparkline(values: &[f64], ascii: bool) -> String {
    let levels: &[char] = if ascii { &ASCII } else { &BLOCKS };
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let character = |x: &f64| {
        if !x.is_finite() {
            return ' ';
        }
        // Equal values have no height to compare.
        let share = if high > low {
            (x - low) / (high - low)
        } else {
            0.0
        };
        levels[(share * (levels.len() - 1) as f64).round() as usize]
    };
    values.iter().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_falls_from_the_highest_to_the_lowest() {
        assert_eq!(sparkline(&[7.0, 5.0, 3.0, 1.0, 0.0], false), "█▆▄▂▁");
        assert_eq!(sparkline(&[4.0, 3.0, 2.0, 1.0, 0.0], true), "#=-._");
        assert_eq!(sparkline(&[2.0, f64::NAN, 2.0], false), "▁ ▁");
        assert_eq!(sparkline(&[f64::NAN, f64::INFINITY], true), "  ");
        assert_eq!(sparkline(&[], false), "");
    }
}
