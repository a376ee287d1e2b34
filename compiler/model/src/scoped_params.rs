//! The parameters below one path, as layers read them.
//!
//! Weights of time are made of parameters and the time at hand; all others are the parameters themselves.

use super::graph_builder::GraphBuilder;
use super::layers::{Angles, Routed, Weights};
use super::time_dependent::At;
use odec_graph::ops::Attention;
use odec_graph::{Builder, Site, TypeError, Value, nn};
use odec_program::manifest::Waves;

/// The parameters below a prefix.
pub(super) struct ScopedParams<'m, 's> {
    pub model: &'m mut GraphBuilder<'s>,
    pub prefix: String,
    /// When it is evaluated, and how the parameters depend on that.
    pub time: Option<At>,
}

impl Weights for ScopedParams<'_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let own = format!("{}.{path}", self.prefix);
        match &self.time {
            Some(At {
                weights: Some((weights, time)),
                factors,
                ..
            }) => {
                let factors = format!("{factors}.{path}");
                self.model.param_at(b, &own, *weights, time, &factors)
            }
            _ => self.model.param(b, &own),
        }
    }
    fn rotary(&mut self, b: &mut Builder, angles: Angles) -> Result<nn::Rotary, TypeError> {
        self.model.rotary(b, angles)
    }
    fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
        of: Option<&str>,
    ) -> Result<Value, TypeError> {
        self.model.attend(b, attention, operands, of)
    }
    fn state(&mut self, _: &mut Builder, label: &str) -> Result<Value, TypeError> {
        self.model.ended(label)
    }
    fn carry(
        &mut self,
        b: &mut Builder,
        name: &str,
        shape: [u64; 2],
    ) -> Result<Option<Value>, TypeError> {
        self.model.carry(b, name, shape)
    }
    fn shifted(&mut self, b: &mut Builder, x: Value, by: &[i32]) -> Result<Value, TypeError> {
        self.model.shifted(b, x, by)
    }
    fn depthwise(
        &mut self,
        b: &mut Builder,
        x: Value,
        taps: Value,
        by: &[i32],
    ) -> Result<Value, TypeError> {
        self.model.depthwise(b, x, taps, by)
    }
    /// One mask for each field and step, whatever the weights policy and however often the field is evaluated in it: the
    /// stages of a scheme see one right-hand side.
    fn mask(&mut self, b: &mut Builder, number: u32) -> Result<Option<(u32, Value)>, TypeError> {
        let place = Site {
            evaluation: None,
            ..(*b.site).clone()
        };
        self.model.mask(b, format!("{place} {number}"))
    }
    fn time(&mut self, b: &mut Builder, waves: Waves) -> Result<Value, TypeError> {
        let missing = || TypeError {
            op: "time",
            what: "is not known here".into(),
        };
        let evaluated = self.time.as_ref().and_then(|at| at.evaluated.as_ref());
        let evaluated = evaluated.ok_or_else(missing)?;
        self.model.features(b, waves, evaluated)
    }
    fn positions(&mut self, b: &mut Builder) -> Result<Value, TypeError> {
        self.model.sinusoids(b)
    }
    fn routed(&mut self, b: &mut Builder, router: &str, at: Routed) -> Result<(), TypeError> {
        let router = format!("{}.{router}", self.prefix);
        self.model.routed(b, Some(&router), at)
    }
}
