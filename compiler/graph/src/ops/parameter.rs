//! A trained tensor, supplied by its path.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attr, Attrs},
    word,
};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::manifest::Init;

impl Attr for Init {
    const WHAT: &'static str = "`zeros`, `ones`, `constant(0.5)` or `normal(0.02)`";
    fn read(text: &str) -> Option<Init> {
        let number = |name: &str| {
            let inside = text.strip_prefix(name)?.strip_prefix('(')?;
            f64::read(inside.strip_suffix(')')?)
        };
        match text {
            "zeros" => Some(Init::Zeros),
            "ones" => Some(Init::Ones),
            _ => match number("constant") {
                Some(x) => Some(Init::Constant(x)),
                None => number("normal").map(|std| Init::Normal { std }),
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// `step.3.att.q.weight`; unique in a graph.
    pub path: String,
    pub shape: Vec<u64>,
    pub init: Init,
}

impl Parameter {
    /// Whether weight decay applies: to matrices, not to gains and scalars.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }
}

impl Op for Parameter {
    const NAME: &'static str = "parameter";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let init = match &self.init {
            Init::Zeros => "zeros".into(),
            Init::Ones => "ones".into(),
            Init::Constant(x) => format!("constant({x})"),
            Init::Normal { std } => format!("normal({std})"),
        };
        vec![("path", word(&self.path)), ("init", init)]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let path = given.need("path")?;
        let init = given.need("init")?;
        let shape = given.shape()?;
        Ok(Parameter { path, shape, init })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.path.is_empty() {
            return fail(Self::NAME, "has no path");
        }
        let shape: Vec<Dim> = self.shape.iter().map(|n| Dim::Fixed(*n)).collect();
        Ok(vec![TensorType::real(shape)])
    }

    fn eval(&self, _: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let what = format!("`{}` is fed from outside", self.path);
        Err(EvalError {
            op: Self::NAME,
            what,
        })
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Source
    }

    fn samples() -> Vec<Sample> {
        vec![]
    }
}
