//! What a model is trained to predict, and all that others ask of it.
//!
//! A new kind is a variant of [`Loss`]. Each question is a match without `_`, so the compiler names those that it leaves open; who asks does not
//! know which kinds there are. The term that is written, and what it adds to the graph, is a file of `compiler/model/src/losses/`.

use serde::{Deserialize, Serialize};

/// What a model is to predict. Cross-entropy in nats, a mean over tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Every token from those before it.
    #[default]
    Next,
    /// Tokens that are hidden, from all others.
    Masked(Masked),
    /// The class of each image.
    Class,
    /// Numbers: the mean square of what is off, over columns and rows.
    Mse,
    /// Whether events happen, each by its logit, in nats, a mean over columns and rows.
    Bce,
    /// The velocity between noise and data: the mean square of what is off, over columns and rows.
    Velocity,
    /// Every token of the second of two sequences, from those before it and all of the first. The mean is over targets that are not `padding`.
    Pairs { padding: u64 },
}

/// Tokens are hidden, each with the probability `rate`, behind `token` (Devlin et al. 2019). The mean is over hidden tokens: the inputs that are
/// `token`. A token that is `kept`, which ends a segment, is not hidden.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Masked {
    pub rate: f64,
    pub token: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
}

/// What an output says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicts {
    /// How likely each kind of tokens is.
    Tokens,
    /// How likely each class is.
    Class,
    Numbers,
}

impl Predicts {
    /// What a model of one sequence is trained for where its loss says nothing else.
    pub fn loss(self) -> Loss {
        match self {
            Predicts::Tokens => Loss::Next,
            Predicts::Class => Loss::Class,
            Predicts::Numbers => Loss::Mse,
        }
    }
}

/// Which rows of a result count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    All,
    /// As many as the input has. A state may have more.
    OfInput,
    /// Those whose token in the input is this one.
    Hidden(u64),
    /// Those whose target is not this token.
    Except(u64),
}

impl Loss {
    /// What evaluation computes of it, as the term of a loss is called.
    pub fn measured(self) -> &'static str {
        match self {
            Loss::Next | Loss::Masked(_) | Loss::Class | Loss::Pairs { .. } => "cross_entropy",
            Loss::Mse => "mse",
            Loss::Bce => "bce",
            Loss::Velocity => "velocity",
        }
    }

    pub fn predicts(self) -> Predicts {
        match self {
            Loss::Next | Loss::Masked(_) | Loss::Pairs { .. } => Predicts::Tokens,
            Loss::Class => Predicts::Class,
            Loss::Mse | Loss::Bce | Loss::Velocity => Predicts::Numbers,
        }
    }

    pub fn counted(self) -> Counted {
        match self {
            Loss::Next | Loss::Class | Loss::Mse | Loss::Bce => Counted::All,
            Loss::Velocity => Counted::OfInput,
            Loss::Masked(Masked { token, .. }) => Counted::Hidden(token),
            Loss::Pairs { padding } => Counted::Except(padding),
        }
    }

    /// What its mean is over, of a model that reads `many` in each `row`.
    pub fn mean_over(self, row: &str, many: &str) -> String {
        match self {
            Loss::Next => "target tokens".into(),
            Loss::Masked(_) => "hidden tokens".into(),
            Loss::Class => format!("{row}s, or over their {many}"),
            Loss::Mse | Loss::Bce => "sequences, or over their positions".into(),
            Loss::Velocity => format!("{many} or states"),
            Loss::Pairs { .. } => "target tokens that are not padding".into(),
        }
    }

    /// Which tokens are hidden from the model.
    pub fn masks(self) -> Option<Masked> {
        match self {
            Loss::Masked(masked) => Some(masked),
            Loss::Next
            | Loss::Class
            | Loss::Mse
            | Loss::Bce
            | Loss::Velocity
            | Loss::Pairs { .. } => None,
        }
    }

    /// Tokens that stand for something else than text, and what each is called.
    pub fn special(self) -> Vec<(&'static str, u64)> {
        match self {
            Loss::Masked(Masked { token, kept, .. }) => {
                let kept = kept.map(|kept| ("separator", kept));
                [("mask token", token)].into_iter().chain(kept).collect()
            }
            Loss::Pairs { padding } => vec![("padding", padding)],
            Loss::Next | Loss::Class | Loss::Mse | Loss::Bce | Loss::Velocity => vec![],
        }
    }

    /// Whether targets say if events happen: numbers from 0 to 1.
    pub fn is_of_events(self) -> bool {
        match self {
            Loss::Bce => true,
            Loss::Next
            | Loss::Masked(_)
            | Loss::Class
            | Loss::Mse
            | Loss::Velocity
            | Loss::Pairs { .. } => false,
        }
    }

    /// Whether the model writes one text for another, token by token.
    pub fn translates(self) -> bool {
        match self {
            Loss::Pairs { .. } => true,
            Loss::Next | Loss::Masked(_) | Loss::Class | Loss::Mse | Loss::Bce | Loss::Velocity => {
                false
            }
        }
    }

    /// Whether the model continues a text, token by token.
    ///
    /// # Errors
    /// Where it does not: why, in words for users.
    pub fn continues(self) -> Result<(), &'static str> {
        Err(match self {
            Loss::Next => return Ok(()),
            Loss::Masked(_) => {
                "this model fills in masked tokens and was not trained to continue a text; `odec eval` measures its loss"
            }
            Loss::Class => {
                "this model tells classes, so there is nothing to generate; `odec classify` gives it texts or images, `odec eval` measures how many it tells right"
            }
            Loss::Mse | Loss::Bce => {
                "this model gives numbers, so there is nothing to generate; `odec eval` measures how far off they are"
            }
            Loss::Velocity => {
                "this model draws images or vectors, and does not continue a text: `odec generate RUN --scheme heun --steps 16 -o samples.png` draws images, `-o samples.npz` vectors"
            }
            Loss::Pairs { .. } => {
                "this model makes one text of another, and does not continue one; `odec translate` gives it texts"
            }
        })
    }
}
