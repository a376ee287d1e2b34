//! The graph of one layer without a model, for documentation and tests.
//!
//! Takes the text of a field, and perhaps a file whose definitions it may name; gives `x → y` of a text's tokens, at the start of an evolve, nothing dropped.

use super::CompileError;
use super::layers::network::Network;
use super::layers::pipeline;
use super::layers::{
    Angles, Grid, LayerParam, OfModel, Reads, Routed, SINUSOID_BASE, Sizes, TypeResult, VOCABULARY,
    Weights,
};
use crate::error::BuildError;
use crate::scheme::names::Loader;
use crate::scheme::{Field, Namespace, NoFiles, Resolver};
use odec_grammar::Sources;
use odec_grammar::ast::Item;
use odec_graph::ops::{Attention, Depthwise, Input, Parameter, ShiftTokens, Table};
use odec_graph::{Builder, Graph, TensorType, TypeError, Value, nn};
use odec_library::Library;
use odec_program::Dim;
use odec_program::manifest::{self, Waves};
use std::collections::BTreeMap;

/// The model whose states the example of a page is applied to.
pub const SHOWN: Sizes = Sizes {
    vocab: Some(256),
    context: 1024,
    width: 512,
    grid: Some(Grid::square(32)),
};
/// Deviation of random parameters.
const STD: f64 = 0.02;

/// What a text may name beside the library: the definitions of a file.
#[derive(Clone, Copy, Default)]
pub struct Around<'t> {
    /// The file's path, from which its imports are found.
    pub path: &'t str,
    pub text: &'t str,
}

/// A field's inside without a model.
pub struct Alone {
    /// Of the model whose states it is applied to.
    pub sizes: Sizes,
    pub params: Vec<LayerParam>,
    pub reads: Reads,
    /// Width of the result, as the rules say.
    pub columns: u64,
    /// `x → y`.
    pub graph: Graph,
}

/// Reads a pipeline, and builds what it computes of one state. Layers of the library are known in it.
///
/// # Errors
/// The text is no field, or one that does not fit its input; a layer's graph contradicts its rules.
pub fn alone(text: &str, sizes: Sizes, library: Library) -> Result<Alone, CompileError> {
    let around = Around {
        path: "layer",
        text: "",
    };
    alone_in(around, text, sizes, library, &mut NoFiles)
}

/// The same, with the definitions of a file.
///
/// # Errors
/// As [`alone`].
pub fn alone_in(
    around: Around,
    text: &str,
    sizes: Sizes,
    library: Library,
    loader: &mut dyn Loader,
) -> Result<Alone, CompileError> {
    let mut sources = Sources::with(library);
    // A name that the file does not have.
    let mut own = String::from("shown");
    while around.text.contains(&own) {
        own.push('_');
    }
    let text = format!("{}\nfield {own} = {text}\n", around.text);
    let main = sources.add(around.path, &text);
    let (file, mut wrong) = odec_grammar::parse(main, &text);
    let mut names = Namespace::new((&file, main), &VOCABULARY, &mut sources, loader, &mut wrong);
    let field = file.items.iter().find_map(|item| match item {
        Item::Field(f) if f.name.name == own => Some(f),
        _ => None,
    });
    let read = field.and_then(|f| {
        let mut r = Resolver::new(&mut names, &mut wrong);
        let Field::Leaf(leaf) = &*r.pipeline(&f.name.name, Vec::new(), &f.body)? else {
            return None;
        };
        pipeline::read(leaf, &[sizes.width], &OfModel::alone(sizes), r.sink)
    });
    let Some((network, columns)) = read else {
        return Err(CompileError::Source(wrong));
    };
    let params = network.params();
    let graph = graph(&network, &params, sizes).map_err(BuildError::from)?;
    Ok(Alone {
        sizes,
        reads: network.reads(),
        params,
        columns,
        graph,
    })
}

fn graph(network: &Network, params: &[LayerParam], sizes: Sizes) -> Result<Graph, TypeError> {
    let mut b = Builder::new();
    // As many as the grid has, where windows lie over it.
    let tokens = match network.reads().grid {
        true => Dim::Fixed(sizes.context),
        false => Dim::Seq,
    };
    let x = Input {
        name: "x".into(),
        ty: TensorType::real([Dim::Batch, tokens, Dim::Fixed(sizes.width)]),
    };
    let x = b.push1(x, &[])?;
    let mut weights = Bare {
        params,
        sizes,
        made: BTreeMap::new(),
    };
    let y = network.build(&mut b, &[x], &mut weights)?;
    b.output("y", y);
    Ok(b.finish())
}

/// Parameters without a model that owns them.
struct Bare<'p> {
    params: &'p [LayerParam],
    sizes: Sizes,
    /// Each is one node.
    made: BTreeMap<String, Value>,
}

impl Weights for Bare<'_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult {
        if let Some(v) = self.made.get(path) {
            return Ok(*v);
        }
        let known = self.params.iter().find(|p| p.path == path);
        let missing = || TypeError {
            op: "parameter",
            what: format!("`{path}` is not among the layer's"),
        };
        let p = known.ok_or_else(missing)?;
        let parameter = Parameter {
            path: p.path.clone(),
            shape: p.shape.clone(),
            init: p.init(STD),
        };
        let v = b.push1(parameter, &[])?;
        self.made.insert(path.to_string(), v);
        Ok(v)
    }

    fn rotary(&mut self, b: &mut Builder, of: Angles) -> TypeResult<nn::Rotary> {
        nn::rotary(b, self.sizes.context, (of.head, of.base), of.turns)
    }

    fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
        _: Option<&str>,
    ) -> TypeResult {
        nn::attend(b, attention, operands)
    }

    /// Given, as what it is applied to.
    fn state(&mut self, b: &mut Builder, label: &str) -> TypeResult {
        if let Some(v) = self.made.get(label) {
            return Ok(*v);
        }
        let x = Input {
            name: label.into(),
            ty: TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(self.sizes.width)]),
        };
        let v = b.push1(x, &[])?;
        self.made.insert(label.to_string(), v);
        Ok(v)
    }

    fn carry(&mut self, _: &mut Builder, _: &str, _: [u64; 2]) -> TypeResult<Option<Value>> {
        Ok(None)
    }

    fn shifted(&mut self, b: &mut Builder, x: Value, by: &[i32]) -> TypeResult {
        b.push1(ShiftTokens { by: by.to_vec() }, &[x])
    }

    fn depthwise(&mut self, b: &mut Builder, x: Value, taps: Value, by: &[i32]) -> TypeResult {
        b.push1(Depthwise { by: by.to_vec() }, &[x, taps])
    }

    fn mask(&mut self, _: &mut Builder, _: u32) -> TypeResult<Option<(u32, Value)>> {
        Ok(None)
    }

    fn time(&mut self, b: &mut Builder, waves: Waves) -> TypeResult {
        let table = manifest::Table::Time { t: 0.0, waves };
        b.push1(Table { table }, &[])
    }

    fn positions(&mut self, b: &mut Builder) -> TypeResult {
        let table = manifest::Table::Sinusoid {
            positions: self.sizes.context,
            width: self.sizes.width,
            base: SINUSOID_BASE,
        };
        b.push1(Table { table }, &[])
    }

    fn routed(&mut self, _: &mut Builder, _: &str, _: Routed) -> TypeResult<()> {
        Ok(())
    }
}
