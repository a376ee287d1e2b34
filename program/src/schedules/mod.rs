//! Schedules: how the learning rate goes over a run. What each of them says of itself, and the list.
//!
//! A schedule is one file and one line in the list. The trait has no default methods: a missing rule does not compile. Nothing outside of this
//! folder knows which schedules there are. Factors of each are tested in this file.

mod position;

pub use position::Position;

use crate::choice::{Choice, Given, Values, choices, restored};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// The learning rate over a run, as a factor of the optimiser's.
pub trait Schedule: Choice {
    /// Steps before the rate is at its peak.
    fn warmup(&self) -> u64;
    /// The factor for the step that starts at `p`, from 0 to 1.
    fn factor(&self, p: Position) -> f64;
}

choices! { ScheduleKind of Schedule, "a schedule":
    constant::Constant,
    cosine::Cosine,
    linear::Linear,
    inverse_sqrt::InverseSqrt,
    wsd::Wsd,
}

/// Its name, with its arguments where it has some: `"constant"`, `{"cosine": {"warmup": 50, "floor": 0.1}}`.
impl Serialize for ScheduleKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let values = Values::of(self);
        if values.0.is_empty() {
            return s.serialize_str(self.name());
        }
        let mut map = s.serialize_map(Some(1))?;
        map.serialize_entry(self.name(), &values)?;
        map.end()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Word(String),
    Call(BTreeMap<String, Given>),
}

impl<'de> Deserialize<'de> for ScheduleKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ScheduleKind, D::Error> {
        match Written::deserialize(d)? {
            Written::Word(name) => restored(&name, Given::new()),
            Written::Call(mut one) => match (one.pop_first(), one.is_empty()) {
                (Some((name, given)), true) => restored(&name, given),
                _ => Err(Error::custom("a schedule has one name")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choices;
    use std::collections::BTreeSet;

    fn factors(s: impl Into<ScheduleKind>, at: &[u64], steps: u64) -> Vec<f64> {
        let s = s.into();
        let factor = |step: &u64| s.factor(Position::new(*step, steps, None));
        at.iter().map(factor).collect()
    }

    fn close(got: Vec<f64>, want: impl IntoIterator<Item = f64>) {
        let want: Vec<f64> = want.into_iter().collect();
        let near = got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-12);
        assert!(near && got.len() == want.len(), "{got:?} and {want:?}");
    }

    #[test]
    fn cosine_by_steps() {
        let cosine = Cosine {
            warmup: 10,
            floor: 0.1,
        };
        let got = factors(cosine.clone(), &[0, 9, 10, 60, 110, 1000], 110);
        close(got, [0.1, 1.0, 1.0, 0.55, 0.1, 0.1]);
        close(factors(Constant, &[0, 3, 9], 5), [1.0; 3]);
        // A run that is out of time is at its end.
        let late = Position::new(5, 110, Some((90.0, 60.0)));
        assert!((cosine.factor(late) - 0.1).abs() < 1e-12);
    }

    /// `get_linear_schedule_with_warmup` of the Hugging Face library, with a floor: `max(0, (steps − t)/(steps − w))` behind the warm-up.
    #[test]
    fn linear_by_steps() {
        for (warmup, floor, steps) in [(10, 0.1, 110), (0, 0.0, 7), (3, 1.0, 9)] {
            let all: Vec<u64> = (0..=steps).collect();
            let want = all.iter().map(|t| match *t < warmup {
                true => (t + 1) as f64 / warmup as f64,
                false => {
                    let left = (steps - t) as f64 / (steps - warmup) as f64;
                    floor + (1.0 - floor) * left
                }
            });
            close(factors(Linear { warmup, floor }, &all, steps), want);
        }
    }

    /// Equation 3 of Vaswani et al. 2017, `width^−½ · min(t^−½, t · w^−3/2)`, as a part of its largest value, at t = w.
    #[test]
    fn inverse_sqrt_by_steps() {
        let rate = |t: f64, w: f64| 512f64.powf(-0.5) * t.powf(-0.5).min(t * w.powf(-1.5));
        for (warmup, w) in [(4000, 4000.0), (7, 7.0), (1, 1.0), (0, 1.0)] {
            let at = [0, 1, 5, 6, 7, 3998, 3999, 4000, 99_999];
            let want = at.map(|t| rate((t + 1) as f64, w) / rate(w, w));
            close(factors(InverseSqrt { warmup }, &at, 100), want);
        }
    }

    /// Hu et al. 2024, equation 1: `s/W η` up to s = W, η up to s = T, `f(s − T) η` up to the end; f as in Hägele et al. 2024, section 3:
    /// `1 − (s − T)/d` or `1 − √((s − T)/d)`.
    #[test]
    fn wsd_by_steps() {
        for (warmup, decay, floor, steps) in [(10, 20, 0.1, 110), (0, 7, 0.0, 7), (3, 0, 0.0, 9)] {
            for (shape, power) in [("linear", 1.0), ("sqrt", 0.5)] {
                let all: Vec<u64> = (0..=steps + 2).collect();
                let want = all.iter().map(|t| {
                    let (t, stable) = (*t as f64, (steps - decay) as f64);
                    if t < warmup as f64 {
                        (t + 1.0) / warmup as f64
                    } else if t <= stable {
                        1.0
                    } else {
                        let u = ((t - stable) / (decay as f64).max(1.0)).min(1.0);
                        1.0 - (1.0 - floor) * u.powf(power)
                    }
                });
                let wsd = Wsd {
                    warmup,
                    decay,
                    shape,
                    floor,
                };
                close(factors(wsd, &all, steps), want);
            }
        }
        // A run that is half way by the clock when its last half decays is at the end of the stable phase, whatever its steps.
        let wsd = Wsd {
            decay: 50,
            ..Wsd::default()
        };
        let at = |seconds| wsd.factor(Position::new(3, 100, Some((seconds, 60.0))));
        assert_eq!([at(30.0), at(45.0), at(60.0)], [1.0, 0.5, 0.0]);
        // Where warm-up and decay are longer than the run, the decay begins behind the warm-up.
        let wsd = Wsd {
            warmup: 6,
            decay: 8,
            ..Wsd::default()
        };
        close(factors(wsd, &[5, 6, 8, 10], 10), [1.0, 1.0, 0.5, 0.0]);
    }

    #[test]
    fn odd_runs_have_a_rate() {
        for (warmup, steps) in [(0, 1), (5, 5), (9, 5), (0, 0)] {
            let decay = steps;
            let wsd = Wsd {
                warmup,
                decay,
                ..Wsd::default()
            };
            let schedules: [ScheduleKind; 4] = [
                wsd.into(),
                Cosine { warmup, floor: 0.0 }.into(),
                Linear { warmup, floor: 0.0 }.into(),
                InverseSqrt { warmup }.into(),
            ];
            for s in schedules {
                assert_eq!(s.warmup(), warmup);
                for step in 0..10 {
                    let f = s.factor(Position::new(step, steps, None));
                    assert!((0.0..=1.0).contains(&f), "{s:?} {steps} {step}: {f}");
                }
            }
        }
    }

    /// As every version has written it.
    #[test]
    fn manifests_hold_schedules_as_they_always_did() {
        for (schedule, text) in [
            (ScheduleKind::from(Constant), r#""constant""#),
            (
                Cosine {
                    warmup: 50,
                    floor: 0.1,
                }
                .into(),
                r#"{"cosine":{"warmup":50,"floor":0.1}}"#,
            ),
            (
                Linear {
                    warmup: 0,
                    floor: 0.0,
                }
                .into(),
                r#"{"linear":{"warmup":0,"floor":0.0}}"#,
            ),
            (
                InverseSqrt { warmup: 4000 }.into(),
                r#"{"inverse_sqrt":{"warmup":4000}}"#,
            ),
            (
                Wsd {
                    decay: 9,
                    shape: "sqrt",
                    ..Wsd::default()
                }
                .into(),
                r#"{"wsd":{"warmup":0,"decay":9,"shape":"sqrt","floor":0.0}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&schedule).unwrap(), text);
            let read: ScheduleKind = serde_json::from_str(text).unwrap();
            assert_eq!(read, schedule);
        }
        for (text, why) in [
            (r#""poly""#, "`poly` is not a schedule"),
            (r#""wsd""#, "`wsd` needs `decay`"),
            (
                r#"{"wsd":{"decay":5,"shape":"cubic"}}"#,
                "`wsd` has no such `shape`",
            ),
            (r#""inverse_sqrt""#, "`inverse_sqrt` needs `warmup`"),
            (
                r#"{"cosine":{"warmup":0.5}}"#,
                "`cosine` has no such `warmup`",
            ),
            (r#"{"cosine":{"end":1}}"#, "`cosine` has no argument `end`"),
            (r#"{"cosine":{},"linear":{}}"#, "a schedule has one name"),
            (r#"{}"#, "a schedule has one name"),
        ] {
            let said = serde_json::from_str::<ScheduleKind>(text).unwrap_err();
            assert!(said.to_string().contains(why), "{text}: {said}");
        }
        let names: BTreeSet<&str> = ScheduleKind::all().iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), ScheduleKind::all().len());
    }
}
