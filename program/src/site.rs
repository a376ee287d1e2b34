//! Where in a model a computation stands: step, evaluation, field and part, and the pass of training it belongs to.
//!
//! The one origin of everything that is computed. Whoever builds a graph gives each node its site; derivatives take that of what they
//! derive ([`Pass::Backward`]), what is computed again that of the first time ([`Site::replay`]), an optimiser's launches have their own
//! ([`Pass::Update`]). Passes keep it, and where several nodes become one launch, [`naming_site`] says which of them names it. Programs list
//! each site once ([`crate::Program::sites`]), and messages, listings, profiles and traces print it: as a path (`Display`) or in
//! words ([`names`]).
//!
//! A new name for launches is a method here. A new sum of launches is a function of `runtime/src/profile/sums.rs`, a table of
//! `src/commands/profile.rs`, and keys of docs/json.md.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Which part of training a computation belongs to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    #[default]
    Forward,
    Backward,
    /// The optimiser's: in programs alone, no graph has it.
    Update,
}

impl Pass {
    fn is_forward(&self) -> bool {
        *self == Pass::Forward
    }
}

/// Where in the model a node stands: KV caches, checkpoints, profiles and folded printing go by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    /// Label of the evolve, empty when there is one without a label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evolve: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Number of the field evaluation within the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<u32>,
    /// Field and part: `att.q`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[serde(default, skip_serializing_if = "Pass::is_forward")]
    pub pass: Pass,
    /// Number, from 1, of the stretch of steps that is computed again for the gradient; 0 the first time.
    #[serde(default, skip_serializing_if = "first")]
    pub replay: u32,
}

fn first(replay: &u32) -> bool {
    *replay == 0
}

/// What a computation is done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Forward,
    Backward,
    /// Computed again for the gradient, where memory was short.
    Recompute,
    Update,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Forward, Role::Backward, Role::Recompute, Role::Update];

    pub const fn name(self) -> &'static str {
        match self {
            Role::Forward => "forward",
            Role::Backward => "backward",
            Role::Recompute => "recompute",
            Role::Update => UPDATE,
        }
    }
}

impl Site {
    /// A site of the optimiser.
    pub fn update(path: impl Into<String>) -> Site {
        Site {
            path: path.into(),
            pass: Pass::Update,
            ..Site::default()
        }
    }

    pub fn role(&self) -> Role {
        match (self.replay, self.pass) {
            (0, Pass::Forward) => Role::Forward,
            (0, Pass::Backward) => Role::Backward,
            (0, Pass::Update) => Role::Update,
            _ => Role::Recompute,
        }
    }

    /// The field, with the label of its evolve: `att`, `decoder ffn`. What stands in a step beside its fields is its `scheme`; what stands
    /// outside of all steps is called by its own first part, `embed`, `output`, `loss`, and all that an optimiser does `update`.
    pub fn field(&self) -> String {
        if self.pass == Pass::Update {
            return UPDATE.into();
        }
        let own = self.path.split('.').next().unwrap_or_default();
        let own = if own.is_empty() { SCHEME } else { own };
        match self.evolve.as_str() {
            "" => own.into(),
            evolve => format!("{evolve} {own}"),
        }
    }

    /// Evolve, step, evaluation, pass and replay: only row ops that agree in it are joined merely for reading the same value.
    pub fn neighbourhood(&self) -> (&str, Option<u32>, Option<u32>, Pass, u32) {
        (
            &self.evolve,
            self.step,
            self.evaluation,
            self.pass,
            self.replay,
        )
    }

    /// In words: `step 3 ffn.up forward`.
    fn words(&self, evaluation: bool) -> String {
        let mut parts = Vec::new();
        if !self.evolve.is_empty() {
            parts.push(self.evolve.clone());
        }
        parts.extend(self.step.map(|k| format!("step {k}")));
        let evaluation = self.evaluation.filter(|_| evaluation);
        parts.extend(evaluation.map(|k| format!("evaluation {k}")));
        parts.push(match self.path.as_str() {
            "" => SCHEME.into(),
            path => path.into(),
        });
        parts.push(self.role().name().into());
        if self.replay > 1 {
            parts.push(self.replay.to_string());
        }
        parts.join(" ")
    }
}

/// The part of a step that joins what its fields give.
pub const SCHEME: &str = "scheme";
/// What the optimiser does.
pub const UPDATE: &str = "update";

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.evolve.is_empty() {
            parts.push(self.evolve.clone());
        }
        if self.pass == Pass::Update {
            parts.push(UPDATE.into());
        }
        if let Some(k) = self.step {
            parts.push(format!("step.{k}"));
        }
        if let Some(k) = self.evaluation {
            parts.push(format!("eval.{k}"));
        }
        if !self.path.is_empty() {
            parts.push(self.path.clone());
        }
        match (self.replay, self.pass) {
            (0, Pass::Backward) => parts.push("backward".into()),
            (0, _) => {}
            (n, _) => parts.push(format!("replay.{n}")),
        }
        f.write_str(&parts.join("."))
    }
}

/// Which of the sites that become one launch names it: the last in the neighbourhood that most of them belong to.
pub fn naming_site(sites: &[&Site]) -> usize {
    let mut counts = BTreeMap::new();
    for site in sites {
        *counts.entry(site.neighbourhood()).or_insert(0) += 1;
    }
    let most = counts.values().max().copied();
    let is_in_most = |site: &&Site| counts.get(&site.neighbourhood()).copied() == most;
    sites.iter().rposition(is_in_most).unwrap_or_default()
}

/// Sites in words, each by its own: `step 3 ffn.up forward`. The evaluation is said of steps that evaluate a field more than once.
pub fn names(sites: &[Site]) -> Vec<String> {
    let but_evaluation = |s: &Site| Site {
        evaluation: None,
        ..s.clone()
    };
    let mut once = BTreeSet::new();
    let mut more = BTreeSet::new();
    for site in sites.iter().collect::<BTreeSet<_>>() {
        let key = but_evaluation(site);
        if !once.insert(key.clone()) {
            more.insert(key);
        }
    }
    let name = |s: &Site| s.words(more.contains(&but_evaluation(s)));
    sites.iter().map(name).collect()
}

/// Distinct sites, numbered as they come.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    pub list: Vec<Site>,
    numbers: HashMap<Site, u32>,
}

impl Sites {
    pub fn number(&mut self, site: &Site) -> u32 {
        if let Some(known) = self.numbers.get(site) {
            return *known;
        }
        let number = self.list.len() as u32;
        self.list.push(site.clone());
        self.numbers.insert(site.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(step: u32, evaluation: u32, path: &str) -> Site {
        Site {
            step: Some(step),
            evaluation: Some(evaluation),
            path: path.into(),
            ..Site::default()
        }
    }

    #[test]
    fn words_say_the_evaluation_where_there_are_several() {
        let backward = |s: Site| Site {
            pass: Pass::Backward,
            ..s
        };
        let sites = [
            site(3, 0, "ffn.up"),
            site(3, 0, "att.q"),
            site(3, 1, "att.q"),
            backward(site(3, 0, "ffn.up")),
            Site {
                replay: 2,
                ..backward(site(3, 0, "ffn.up"))
            },
            Site::update("adamw"),
            Site {
                evolve: "decoder".into(),
                step: Some(0),
                ..Site::default()
            },
        ];
        let want = [
            "step 3 ffn.up forward",
            "step 3 evaluation 0 att.q forward",
            "step 3 evaluation 1 att.q forward",
            "step 3 ffn.up backward",
            "step 3 ffn.up recompute 2",
            "adamw update",
            "decoder step 0 scheme forward",
        ];
        assert_eq!(names(&sites), want);
        assert_eq!(sites[6].field(), "decoder scheme");
        assert_eq!(sites[5].to_string(), "update.adamw");
        assert_eq!(sites[5].field(), "update");
    }

    #[test]
    fn the_last_of_most_speaks() {
        let [a, b, c] = [site(0, 0, "a"), site(0, 1, "b"), site(0, 1, "c")];
        assert_eq!(naming_site(&[&a, &b, &c]), 2);
        assert_eq!(naming_site(&[&b, &c, &a]), 1);
        assert_eq!(naming_site(&[&a]), 0);
    }

    #[test]
    fn a_site_survives_its_json_and_leaves_out_what_it_has_not() {
        let text = serde_json::to_string(&site(0, 1, "att.q")).unwrap();
        assert_eq!(text, r#"{"step":0,"evaluation":1,"path":"att.q"}"#);
        assert_eq!(
            serde_json::from_str::<Site>(&text).unwrap(),
            site(0, 1, "att.q")
        );
    }
}
