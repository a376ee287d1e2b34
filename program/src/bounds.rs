//! What a number that somebody gives may be: checked where it is read, and again where a manifest is loaded.
//!
//! Leaves reading to whoever has a text.

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    NotNegative,
    Positive,
    /// From 0 to 1.
    Share,
    /// Above 0, to 1.
    PositiveShare,
    /// From 0 to below 1.
    BelowOne,
    /// From one number to another.
    Within(f64, f64),
}

impl Bounds {
    /// Whether a number is as it must be.
    pub fn holds(self, x: f64) -> bool {
        x.is_finite()
            && match self {
                Bounds::NotNegative => x >= 0.0,
                Bounds::Positive => x > 0.0,
                Bounds::Share => (0.0..=1.0).contains(&x),
                Bounds::PositiveShare => x > 0.0 && x <= 1.0,
                Bounds::BelowOne => (0.0..1.0).contains(&x),
                Bounds::Within(least, most) => (least..=most).contains(&x),
            }
    }

    /// "a number from 0 to 1".
    pub fn text(self) -> String {
        let text = match self {
            Bounds::NotNegative => "a number that is not negative",
            Bounds::Positive => "a positive number",
            Bounds::Share => "a number from 0 to 1",
            Bounds::PositiveShare => "a share above 0%, to 100%",
            Bounds::BelowOne => "a number from 0 to below 1",
            Bounds::Within(least, most) => {
                let short = |x: f64| match x == 0.0 || (1e-3..1e4).contains(&x.abs()) {
                    true => x.to_string(),
                    false => format!("{x:e}"),
                };
                return format!("a number from {} to {}", short(least), short(most));
            }
        };
        text.into()
    }
}
