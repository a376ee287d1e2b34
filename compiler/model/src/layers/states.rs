//! States of evolves that a field reads beside its own: keys and values of attention, `attention(heads: 8, from: encoder)`.
//!
//! A value of another evolve stands where attention reads keys and values and nowhere else, for rows of two sequences have nothing to do with
//! each other. It begins with the evolve's label; what follows sees one token at a time. In a body it may have a name.
//!
//! An argument that takes such a state is `Form::State`, the value in a network `Network::State`. Which sequences a model reads, and in what order,
//! is said by `beginnings.rs`.

use super::network::Network;
use super::pipeline::{Input, LayerReader, Read, pipeline};
use crate::codes;
use crate::scheme::args::Args;
use crate::scheme::scalar::name_of;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident};
use odec_grammar::diag::Diagnostic;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The evolves of a model, as a field of one of them sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct States {
    /// Those with labels, by these. `None`: no model is known, and any name may be that of an evolve.
    pub known: Option<Rc<BTreeMap<String, State>>>,
    /// The number of the evolve at hand among all; behind the last one: the output.
    pub at: usize,
    /// The sequence whose tokens the field is applied to; `None`: it is not known yet.
    pub sequence: Option<usize>,
    /// The same for its stage.
    pub stage: Option<usize>,
    /// Columns of the model's `condition`, where it has one.
    pub condition: Option<u64>,
}

/// An evolve with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub label: Span,
    /// Among all evolves, in the order in which they are computed.
    pub number: usize,
    /// Which of the model's sequences its rows are of.
    pub sequence: usize,
    /// Which of the model's states: a sequence may have several, one after the other.
    pub stage: usize,
}

/// The evolve that a value is of, where it is not the one at hand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Elsewhere {
    pub label: String,
    /// Whether its rows are the tokens that the field is applied to.
    pub own: bool,
}

impl States {
    fn get(&self, name: &str) -> Option<&State> {
        self.known.as_ref()?.get(name)
    }

    /// Whether an evolve is called so.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let known = self.known.iter().flat_map(|known| known.keys());
        known.map(String::as_str)
    }
}

/// A state in the place of a value.
pub(super) fn misplaced(name: &str, span: Span) -> Diagnostic {
    let message = format!("`{name}` is the state of another evolve, which only attention reads");
    Diagnostic::error(codes::MISPLACED, span, message)
        .label("its rows may be those of another sequence")
        .help(format!(
            "write `attention(heads: …, from: {name})`, or `attend(linear, {name} |> linear, {name} |> linear, heads: …)`"
        ))
}

/// Tokens of two sequences have no distance, and none of one comes before one of the other.
pub(super) fn compares_places(word: &str, label: &str, span: Span) -> Diagnostic {
    let message = format!("`{word}` compares places, and `{label}` is another sequence");
    Diagnostic::error(codes::INCOMPATIBLE, span, message)
        .label(format!("all tokens of `{label}` are seen"))
        .help(format!("leave `{word}` out"))
}

impl LayerReader<'_> {
    /// What stands behind `from:`.
    pub(super) fn elsewhere(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let mut parts = Vec::new();
        pipeline(e, &mut parts);
        let (first, rest) = parts.split_first()?;
        let named = name_of(first);
        if named
            .as_ref()
            .is_some_and(|n| input.find(&n.name).is_some())
        {
            return self.value(e, input);
        }
        let is_state = |head: &Ident| self.of_field.states.has(&head.name);
        let Some(head) = named.filter(|head| is_state(head) || !self.is_layer(&head.name)) else {
            let message = "keys and values begin with the label of an evolve";
            let d = Diagnostic::error(codes::INVALID_VALUE, first.span, message);
            return self.fail(d.help("write `from: encoder`, or `from: encoder |> rmsnorm`"));
        };
        let read = self.state(&head)?;
        self.of_each_token(read, rest)
    }

    /// The state that an evolve ended with, before the one at hand.
    pub(super) fn state(&mut self, label: &Ident) -> Option<Read> {
        let own = self.is_own(label)?;
        Some(Read {
            network: Network::State(label.name.clone()),
            columns: self.of_field.sizes.width,
            fixed: false,
            rows: None,
            from: Some(Elsewhere {
                label: label.name.clone(),
                own,
            }),
        })
    }

    /// What stands behind a value of another evolve sees its tokens one by one.
    pub(super) fn of_each_token(&mut self, value: Read, rest: &[&Expr]) -> Option<Read> {
        let Some(from) = &value.from else {
            return Some(value);
        };
        let (mut networks, mut out) = (vec![value.network], value.columns);
        for part in rest {
            let at = Input {
                before: Some(out),
                named: &[],
            };
            let (network, next) = self.layer(part, at)?;
            let reads = network.reads();
            let alone = reads.kept == 0 && reads.carried == 0 && !reads.all_tokens;
            if !alone || reads.later_tokens || !reads.capacities.is_empty() {
                let message = format!("`{}` is read one token at a time", from.label);
                let d = Diagnostic::error(codes::INCOMPATIBLE, part.span, message);
                let d = d.label("this reads other tokens");
                return self.fail(d.help(format!(
                    "let it be a field of `{}`, or of an evolve behind it",
                    from.label
                )));
            }
            if !from.own && !reads.rotary.is_empty() {
                let word = Args::of(part).map_or(String::new(), |a| a.callee.name);
                return self.fail(compares_places(&word, &from.label, part.span));
            }
            networks.push(network);
            out = next;
        }
        Some(Read {
            network: Network::Pipe(networks),
            columns: out,
            ..value
        })
    }

    /// Whether the rows of an evolve that ends before this one are the field's tokens.
    fn is_own(&mut self, label: &Ident) -> Option<bool> {
        let states = &self.of_field.states;
        if states.known.is_none() {
            return Some(true);
        }
        let name = &label.name;
        let Some(state) = states.get(name) else {
            let message = format!("there is no evolve `{name}`");
            let d = Diagnostic::error(codes::UNKNOWN_NAME, label.span, message);
            let d = d.label("the label of an evolve before this one is expected");
            let near = odec_grammar::nearest(name, states.names());
            return self.fail(match near {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(format!(
                    "label one: `evolve {name}: lie(att, ffn) for 6 steps`"
                )),
            });
        };
        let (order, place) = (state.number.cmp(&states.at), state.label);
        let wrong = |message: String| Diagnostic::error(codes::MISPLACED, label.span, message);
        match order {
            Ordering::Less => {
                let own = states.sequence.is_none_or(|own| own == state.sequence);
                if own && states.stage.is_some_and(|stage| stage != state.stage) {
                    return self.fail(
                        wrong(format!("`{name}` moves the state of another stage"))
                            .also(place, "an `embed` stands between this evolve and the field's own")
                            .help("a field reads evolves of its own stage: their states have its width and its tokens"),
                    );
                }
                Some(own)
            }
            Ordering::Equal => self.fail(
                wrong(format!("`{name}` is the evolve that this field belongs to"))
                    .also(place, "not done before its last step")
                    .help("tokens of the state at hand are seen without `from`: write `attention(heads: …)`"),
            ),
            Ordering::Greater => self.fail(
                wrong(format!("`{name}` comes later"))
                    .also(place, "this evolve stands behind the one that the field belongs to")
                    .help("a field reads evolves that stand before its own: move that one up"),
            ),
        }
    }
}
